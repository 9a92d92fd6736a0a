"""A catalog of Iceberg tables within this process: what it promises of snapshots, files and conflicts, in few lines.

Files are real, below a folder; a `LocalTable` is a handle that sees the table as it was at its last look.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kuvasz.errors import ForeignChange, LakeError, TableGone, place_of
from kuvasz.lake.files.commit import TableCommit
from kuvasz.lake.files.files import read_dead
from kuvasz.lake.files.live_file import LiveFile
from kuvasz.lake.format.layout import Layout
from kuvasz.lake.format.schema import Field, LakeSchema
from kuvasz.lake.format.schema_steps import AddField, RelaxFields, RenameField, Step, WidenField
from kuvasz.lake.jvm.jvm_calls import CurrentState
from kuvasz.lake.jvm.jvm_errors import gone


@dataclasses.dataclass(frozen=True, kw_only=True)
class Snapshot:
    number: int
    parent: int | None
    sequence: int
    summary: Mapping[str, str]
    files: tuple[LiveFile, ...]
    made_ms: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metadata:
    """All of a table at one moment."""

    schema: LakeSchema
    schemas: tuple[LakeSchema, ...]
    layout: Layout
    properties: Mapping[str, str]
    snapshots: tuple[Snapshot, ...] = ()
    current: int | None = None
    branches: Mapping[str, tuple[LiveFile, ...]] = dataclasses.field(default_factory=dict)
    sequence: int = 0

    def find(self, number: int | None) -> Snapshot | None:
        return next((one for one in self.snapshots if one.number == number), None)

    @property
    def files(self) -> tuple[LiveFile, ...]:
        now = self.find(self.current)
        return () if now is None else now.files


class Stored:
    """A table as the catalog has it."""

    def __init__(self, name: str, location: str, metadata: Metadata) -> None:
        self.name, self.location, self.uuid = name, location, uuid.uuid4().hex
        self.now = metadata
        self.is_dropped = False
        self.lock = threading.RLock()
        self.before_commit: list[Callable[[], None]] = []  #: each is run once, before a commit is taken
        self.after_commit: list[Callable[[], None]] = []  #: the same, once it is there

    def change(self, **facts: Any) -> None:
        with self.lock:
            self.now = dataclasses.replace(self.now, **facts)

    def take(self, commit: TableCommit) -> None:
        """Take a commit as Iceberg does.

        Raises:
            ForeignChange: A file that it resolved rows in is not what it was.
        """
        if self.before_commit:
            self.before_commit.pop(0)()
        with self.lock:
            properties = {**self.now.properties, **commit.properties}
            kept = {name: text for name, text in properties.items() if name not in commit.removed_properties}
            if not commit.is_empty:
                self._check(commit)
                self._show(_changed(self.now.files, commit, self.now.sequence + 1), commit.summary)
            self.change(properties=kept)
        if self.after_commit:
            self.after_commit.pop(0)()

    def _check(self, commit: TableCommit) -> None:
        base, now = self.now.find(commit.snapshot_id), _by_path(self.now.files)
        before = _by_path(base.files) if base is not None else {}
        named = [json.loads(text)["file-path"] for text in commit.removed_files] + (commit.existing() or [])
        for path in named:
            if path not in now or now[path].deletes != before[path].deletes:
                raise ForeignChange(f"{place_of(table=self.name)}: {path} has changed", hint="another writer did it")

    def _show(self, files: tuple[LiveFile, ...], summary: Mapping[str, str]) -> None:
        number = self.now.sequence + 1
        made = Snapshot(number=number, parent=self.now.current, sequence=number, summary=summary, files=files,
                        made_ms=int(time.time() * 1000))  # fmt: skip
        self.change(snapshots=(*self.now.snapshots, made), current=number, sequence=number)

    def touch(self) -> None:
        """Make an empty snapshot."""
        with self.lock:
            self._show(self.now.files, {})

    def exchange_files(self) -> None:
        """Have other files hold the same rows, as another engine's compaction does to files without deletes."""
        with self.lock:
            self._show(tuple(_copied(file) for file in self.now.files), {})

    def merge_files(self, sid_id: int, *, is_bounded: bool = True) -> None:
        """Have one file hold the live rows of all, as another engine's compaction does."""
        with self.lock:
            self._show((_merged(self.now.files, sid_id, is_bounded=is_bounded),), {})

    def roll_back(self, number: int) -> None:
        """Make an older snapshot the current one, as another engine may."""
        self.change(current=number)


def _by_path(files: Iterable[LiveFile]) -> dict[str, LiveFile]:
    return {file.data["file-path"]: file for file in files}


def _changed(files: Iterable[LiveFile], commit: TableCommit, sequence: int) -> tuple[LiveFile, ...]:
    """Return the files with what a commit brings, and without what it takes away."""
    found = _by_path(files)
    for text in commit.removed_files:
        del found[json.loads(text)["file-path"]]
    gone_ones = [_name(json.loads(text)) for text in commit.removed_deletes]
    for path, file in found.items():
        left = tuple(delete for delete in file.deletes if _name(delete) not in gone_ones)
        found[path] = dataclasses.replace(file, deletes=left)
    for text in commit.data_files:
        data = json.loads(text)
        found[data["file-path"]] = LiveFile(data=data, deletes=(), sequence=commit.sequence or sequence)
    for text in commit.added_deletes:
        delete = json.loads(text)
        file = found[delete["referenced-data-file"]]
        found[file.data["file-path"]] = dataclasses.replace(file, deletes=(*file.deletes, delete))
    return tuple(found.values())


def _copied(file: LiveFile) -> LiveFile:
    path = file.data["file-path"]
    other = path.replace(".parquet", f"-{uuid.uuid4().hex}.parquet").replace("kvsz-", "other-")
    shutil.copy(path.removeprefix("file://"), other.removeprefix("file://"))
    return dataclasses.replace(file, data={**file.data, "file-path": other}, deletes=())


def _merged(files: Sequence[LiveFile], sid_id: int, *, is_bounded: bool) -> LiveFile:
    parts = []
    for file in files:
        path = file.data["file-path"]
        dead = read_dead({}, path, [json.dumps(delete) for delete in file.deletes])
        rows = pq.read_table(path.removeprefix("file://"))
        parts.append(rows.take(pa.array([row for row in range(rows.num_rows) if row not in dead], pa.int64())))
    whole = pa.concat_tables(parts)
    other = f"{files[0].data['file-path'].rpartition('/')[0]}/other-{uuid.uuid4().hex}.parquet"
    pq.write_table(whole, other.removeprefix("file://"))
    sids = [sid.encode().hex().upper() for sid in sorted(set(whole.column("sid").to_pylist()))]
    bounds = {"lower-bounds": sids[0], "upper-bounds": sids[-1]} if is_bounded else {}
    data = {
        **files[0].data, "file-path": other, "record-count": whole.num_rows,
        "file-size-in-bytes": Path(other.removeprefix("file://")).stat().st_size,
        "lower-bounds": None, "upper-bounds": None,
        **{side: {"keys": [sid_id], "values": [sid]} for side, sid in bounds.items()},
    }  # fmt: skip
    return LiveFile(data=data, deletes=(), sequence=max(file.sequence for file in files))


def _name(delete: Mapping[str, Any]) -> tuple[str, int]:
    return delete["file-path"], delete.get("content-offset", 0)


class LocalCatalog:
    """A catalog with the tables of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stored: dict[str, Stored] = {}
        self.is_down = False  #: it does not answer
        self.before_swap: list[Callable[[], None]] = []  #: each is run once, before tables are changed together
        self.after_swap: list[Callable[[], None]] = []  #: the same, once they are

    def ask(self) -> None:
        if self.is_down:
            raise LakeError("the catalog does not answer", hint="it is tried again")

    def ensure_namespace(self, namespace: str) -> None:
        self.ask()

    def namespaces(self) -> list[str]:
        self.ask()
        return sorted({name.rpartition(".")[0] for name in self.stored})

    def tables(self, namespace: str) -> list[str]:
        self.ask()
        return [name for name in self.stored if name.startswith(f"{namespace}.")]

    def load(self, name: str) -> LocalTable | None:
        self.ask()
        found = self.stored.get(name)
        return None if found is None else LocalTable(self, found)

    def create(
        self, name: str, fields: Sequence[Field], key: Iterable[str], layout_: Layout, properties: Mapping[str, str],
        location: str | None = None,
    ) -> LocalTable:  # fmt: skip
        self.ask()
        folder = self.folder / name.replace(".", "/") if location is None else Path(location.removeprefix("file://"))
        (folder / "data").mkdir(parents=True, exist_ok=True)
        schema = LakeSchema(schema_id=0, fields=tuple(fields))
        layout = dataclasses.replace(layout_, order_id=1 if layout_.order else 0)
        metadata = Metadata(schema=schema, schemas=(schema,), layout=layout, properties=dict(properties))
        self.stored[name] = Stored(name, f"file://{folder}", metadata)
        return LocalTable(self, self.stored[name])

    def drop(self, name: str) -> None:
        self.stored.pop(name).is_dropped = True

    @functools.cache  # noqa: B019 (it lives as long as the test)
    def joint(self) -> LocalJoint:
        return LocalJoint(self)

    def known_files(self, name: str) -> set[str]:
        """Return the names of all files that any snapshot knows."""
        self.ask()
        files = [file for one in self.stored[name].now.snapshots for file in one.files]
        paths = [path["file-path"] for file in files for path in (file.data, *file.deletes)]
        return {path.rpartition("/")[2] for path in paths}


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalStaged:
    name: str
    base: Metadata
    made: Metadata


class LocalJoint:
    """See `kuvasz.lake.jvm.joint.joint_commit.JointCommit`."""

    def __init__(self, catalog: LocalCatalog) -> None:
        self._catalog = catalog
        self.dropped: list[str] = []

    def swap(self, staged: Sequence[LocalStaged]) -> list[str]:
        self._catalog.ask()
        if self._catalog.before_swap:
            self._catalog.before_swap.pop(0)()
        stored = self._catalog.stored
        moved = [one.name for one in staged if stored[one.name].now is not one.base]
        if not moved:
            for one in staged:
                stored[one.name].change(**{f.name: getattr(one.made, f.name) for f in dataclasses.fields(Metadata)})
        if self._catalog.after_swap:
            self._catalog.after_swap.pop(0)()
        return moved

    def tidy(self, staged: LocalStaged) -> None:
        """There is no log."""

    def drop(self, staged: LocalStaged) -> None:
        self.dropped.append(staged.name)


class LocalTable:
    """A handle of one table; see `kuvasz.lake.jvm.iceberg_table.IcebergTable` for what it promises."""

    def __init__(self, catalog: LocalCatalog, stored: Stored) -> None:
        self._catalog = catalog
        self.stored = stored
        self.name, self.uuid, self.location = stored.name, stored.uuid, stored.location
        self.seen = stored.now
        self.snapshots = _Snapshots(self)
        self.branch = _Branch()
        self.remains = _Remains()
        self.schema = _Schema(self)
        self.layout = _Layout(self)

    @property
    def format_version(self) -> int:
        return int(self.seen.properties.get("format-version", "3"))

    def unchanged(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def refresh(self) -> None:
        self._catalog.ask()
        if self.stored.is_dropped:
            raise gone(self.name)
        self.seen = self.stored.now

    def look(self) -> CurrentState:
        self.refresh()
        now = self.seen.find(self.seen.current)
        if now is None:
            return CurrentState(None, None, self.seen.schema.schema_id, 0, self.format_version)
        return CurrentState(now.number, now.parent, self.seen.schema.schema_id, now.sequence, self.format_version)

    @property
    def properties(self) -> dict[str, str]:
        if self.stored.is_dropped:
            raise TableGone(f"{place_of(table=self.name)}: someone dropped it from the lake")
        return dict(self.seen.properties)

    def property_of(self, name: str) -> str | None:
        return self.properties.get(name)

    def set_properties(self, properties: Mapping[str, str | None]) -> None:
        self._catalog.ask()
        merged = {**self.stored.now.properties, **properties}
        self.stored.change(properties={name: text for name, text in merged.items() if text is not None})
        self.refresh()

    def remove_properties(self, names: Iterable[str]) -> None:
        self.set_properties(dict.fromkeys(names))

    def touch(self, properties: Mapping[str, str]) -> None:
        self.stored.touch()
        self.set_properties(properties)

    def commit(self, commit: TableCommit) -> tuple[int | None, int | None]:
        self._catalog.ask()
        try:
            self.stored.take(commit)
        finally:
            self.seen = self.stored.now
        now = self.look()
        return now.snapshot_id, now.parent_id

    def stage(self, commit: TableCommit, joint: LocalJoint) -> LocalStaged:
        self._catalog.ask()
        base = self.seen = self.stored.now
        tried = Stored(self.name, self.location, base)
        tried.before_commit, self.stored.before_commit = self.stored.before_commit, []
        tried.take(commit)
        return LocalStaged(name=self.name, base=base, made=tried.now)

    def live_files(self, *, in_order: bool = False) -> Iterator[LiveFile]:
        files = self.seen.files
        return iter(sorted(files, key=lambda file: file.age) if in_order else files)

    def list_data(self) -> Iterator[tuple[str, float]]:
        return self._list("data")

    def list_metadata(self) -> Iterator[tuple[str, float]]:
        return self._list("metadata")

    def _list(self, kind: str) -> Iterator[tuple[str, float]]:
        self._catalog.ask()
        folder = Path(self.location.removeprefix("file://"), kind)
        for file in folder.iterdir() if folder.is_dir() else ():
            yield f"{self.location}/{kind}/{file.name}", file.stat().st_mtime


class _Remains:
    """See `kuvasz.lake.jvm.remains.remains.Remains`; the metadata is in memory."""

    def metadata_files(self) -> set[str]:
        return set()


class _Branch:
    """See `kuvasz.lake.jvm.refs.branch.Branch`; there is none but the table's own."""

    name = "main"

    def settle(self, name: str) -> None:
        assert name == self.name

    def note_lineage(self) -> None:
        pass


class _Snapshots:
    """See `kuvasz.lake.jvm.snapshots.Snapshots`."""

    def __init__(self, table: LocalTable) -> None:
        self._table = table

    @property
    def _now(self) -> Snapshot | None:
        return self._table.seen.find(self._table.seen.current)

    @property
    def current_id(self) -> int | None:
        return self._table.seen.current

    @property
    def sequence(self) -> int:
        return 0 if self._now is None else self._now.sequence

    @property
    def parent_id(self) -> int | None:
        return None if self._now is None else self._now.parent

    @property
    def rows(self) -> int | None:
        return None

    @property
    def count(self) -> int:
        return len(self._table.seen.snapshots)

    @property
    def oldest_ms(self) -> int | None:
        return self._table.seen.snapshots[0].made_ms if self._table.seen.snapshots else None

    def _line(self) -> Iterator[Snapshot]:
        one = self._now
        while one is not None:
            yield one
            one = self._table.seen.find(one.parent)

    def goes_on_from(self, snapshot_id: int, sequence: int) -> bool:
        line = list(self._line())
        is_cut = bool(line) and line[-1].parent is not None  # what came before was expired
        return is_cut or any(one.number == snapshot_id for one in line)

    def newest_of_summaries(self, entry: str) -> tuple[str | None, bool]:
        return self.newest_that_says(lambda entry_of: entry_of(entry))

    def newest_that_says(self, say: Callable[[Callable[[str], str | None]], str | None]) -> tuple[str | None, bool]:
        line = list(self._line())
        found = [value for one in line if (value := say(one.summary.get)) is not None]
        is_whole = not line or line[-1].parent is None
        return (found[0], True) if found else (None, is_whole)

    def newer_than(self, sequence: int, most: int | None = None) -> list[dict[str, Any]]:
        found = [one for one in self._table.seen.snapshots if one.sequence > sequence]
        return [
            {"snapshot-id": one.number, "sequence-number": one.sequence, "timestamp-ms": one.made_ms,
             "summary": {"operation": "overwrite", **one.summary}}
            for one in found[:most]
        ]  # fmt: skip

    def set_branch(self, branch: str, commit: TableCommit) -> None:
        base = self._table.stored.now.find(commit.snapshot_id)
        assert base is not None
        files = _changed(base.files, commit, base.sequence)
        self._table.stored.change(branches={**self._table.stored.now.branches, branch: files})
        self._table.refresh()

    def expire(self, older_than_ms: int, keep: int) -> None:
        snapshots = self._table.stored.now.snapshots
        kept = {one.number for one in snapshots[-keep:]} | {self._table.stored.now.current}
        left = tuple(one for one in snapshots if one.number in kept or one.made_ms >= older_than_ms)
        self._table.stored.change(snapshots=left)
        self._table.refresh()


class _Schema:
    """See `kuvasz.lake.jvm.iceberg_schema.IcebergSchema`."""

    def __init__(self, table: LocalTable) -> None:
        self._table = table

    @property
    def id(self) -> int:
        return self._table.seen.schema.schema_id

    def read(self) -> LakeSchema:
        return self._table.seen.schema

    def earlier_columns(self) -> dict[str, str | None]:
        current = {field.field_id: field.name for field in self.read().fields}
        earlier = [field for schema in self._table.seen.schemas for field in schema.fields]
        pairs = [(field.name, current.get(field.field_id)) for field in earlier]
        return {name: now for name, now in pairs if now != name} | {name: None for name, now in pairs if now is None}

    def change(self, steps: Sequence[Step], properties: Callable[[LakeSchema], Mapping[str, str | None]]) -> None:
        stored = self._table.stored
        schema = stored.now.schema
        for step in steps:
            schema = changed(schema, step)
        merged = {**stored.now.properties, **properties(schema)}
        kept = {name: text for name, text in merged.items() if text is not None}
        stored.change(schema=schema, schemas=(*stored.now.schemas, schema), properties=kept)
        self._table.refresh()


def changed(schema: LakeSchema, step: Step) -> LakeSchema:
    """Return a schema after a step."""
    fields = list(schema.fields)
    match step:
        case AddField():
            number = 1 + max(max(field.field_id, *field.inner_ids, 0) for field in fields)
            fields.append(dataclasses.replace(step.field, field_id=number))
        case RenameField():
            fields = [dataclasses.replace(f, name=step.to) if f.name == step.name else f for f in fields]
        case WidenField():
            fields = [dataclasses.replace(f, type=step.type) if f.name == step.name else f for f in fields]
        case RelaxFields():
            fields = [dataclasses.replace(f, required=f.required and f.name not in step.names) for f in fields]
    return LakeSchema(schema_id=schema.schema_id + 1, fields=tuple(fields))


class _Layout:
    """See `kuvasz.lake.jvm.iceberg_layout.IcebergLayout`."""

    def __init__(self, table: LocalTable) -> None:
        self._table = table

    def read(self, *, age_s: float = 0.0) -> Layout:
        return self._table.seen.layout

    def partition_names(self) -> frozenset[tuple[str, int]]:
        return frozenset()  # a column may have any name here

    def replace(self, now: Layout, wanted: Layout) -> None:
        spec = now.spec_id + (wanted.partition != now.partition)
        order = now.order_id + (wanted.order != now.order)
        self._table.stored.change(layout=dataclasses.replace(wanted, spec_id=spec, order_id=order))
        self._table.refresh()
