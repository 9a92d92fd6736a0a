"""One Iceberg table as Spark's JVM has it, reached through py4j.

A handle is cheap to keep and safe to use from several threads; each table is committed to by one thread at a time.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, TypeVar

from py4j.protocol import Py4JJavaError
from typing_extensions import ParamSpec

from kuvasz.lake.files.commit import TableCommit
from kuvasz.lake.files.live_file import LiveFile
from kuvasz.lake.format import layout
from kuvasz.lake.format.evolution import AddField, RelaxFields, RenameField, Step, WidenField
from kuvasz.lake.format.layout import Layout
from kuvasz.lake.format.partition_transforms import Term
from kuvasz.lake.format.schema import SID, Field, LakeSchema, parse, render
from kuvasz.lake.jvm import jvm_calls
from kuvasz.lake.jvm.jvm_errors import class_of, gone, translated
from kuvasz.model import LakeType

if TYPE_CHECKING:
    from kuvasz.lake.jvm.iceberg_classes import IcebergClasses

P = ParamSpec("P")
T = TypeVar("T")

#: Iceberg's ids of snapshots are positive.
_NO_SNAPSHOT = -1


def _asking(read: Callable[Concatenate[IcebergTable, P], T]) -> Callable[Concatenate[IcebergTable, P], T]:
    """Have a read of what is in memory fail as one of the catalog does: after a commit that failed it is one."""

    @functools.wraps(read)
    def asked(table: IcebergTable, /, *arguments: P.args, **options: P.kwargs) -> T:
        with translated(f"table {table.name}"):
            return read(table, *arguments, **options)

    return asked


class IcebergTable:
    """One table in the catalog."""

    def __init__(self, classes: IcebergClasses, handle: Any, name: str) -> None:  # noqa: ANN401 (a Java object)
        self._classes = classes
        self._handle = handle
        self._is_local = str(handle.location()).startswith("file:")
        self.name = name

    @property
    @_asking
    def uuid(self) -> str:
        """Identity of the table: another one after drop and create."""
        return str(self._handle.uuid().toString())

    @property
    @_asking
    def location(self) -> str:
        """Where the table's files live."""
        return str(self._handle.location())

    @property
    @_asking
    def format_version(self) -> int:
        """Iceberg format version."""
        return int(self._handle.operations().current().formatVersion())

    @property
    def properties(self) -> dict[str, str]:
        """Table properties.

        Raises:
            TableGone: The table was dropped; its handle is empty since someone looked.
        """
        within = self._classes.calls
        with translated(f"table {self.name}"):
            try:
                return dict(self._handle.properties()) if within is None else within.properties(self._handle)
            except Py4JJavaError as error:
                if class_of(error).endswith("NullPointerException"):
                    raise gone(self.name) from error
                raise

    @property
    @_asking
    def snapshot_id(self) -> int | None:
        """Id of the current snapshot, None for an empty table."""
        snapshot = self._handle.currentSnapshot()
        return None if snapshot is None else int(snapshot.snapshotId())

    @property
    @_asking
    def sequence(self) -> int:
        """Sequence number of the current snapshot: that of the files it brought."""
        return int(self._handle.currentSnapshot().sequenceNumber())

    @property
    @_asking
    def parent_id(self) -> int | None:
        """Id of the current snapshot's parent, None if there is none."""
        snapshot = self._handle.currentSnapshot()
        parent = None if snapshot is None else snapshot.parentId()
        return None if parent is None else int(parent)

    @_asking
    def newest_of_summaries(self, entry: str) -> tuple[str | None, bool]:
        """Return an entry of the summary of the newest snapshot that has it, of the current one and its ancestors.

        Returns:
            Its value, None if there is none; and whether all ancestors were seen that could have a newer one: the
            search ends where they were expired.
        """
        snapshot = self._handle.currentSnapshot()
        while snapshot is not None:
            value = snapshot.summary().get(entry)
            if value is not None:
                return str(value), True
            parent = snapshot.parentId()
            if parent is None:
                return None, True
            snapshot = self._handle.snapshot(parent)
            if snapshot is None:
                return None, False
        return None, True

    @property
    @_asking
    def schema_id(self) -> int:
        """Id of the current schema."""
        return int(self._handle.schema().schemaId())

    @_asking
    def earlier_columns(self) -> dict[str, str | None]:
        """Return names that columns had in earlier schemas -> the one that column has now; None: it is gone."""
        to_json = self._classes.schema_json
        current = {field["id"]: field["name"] for field in json.loads(to_json(self._handle.schema()))["fields"]}
        earlier = [json.loads(to_json(schema))["fields"] for schema in self._handle.schemas().values()]
        pairs = [(field["name"], current.get(field["id"])) for fields in earlier for field in fields]
        other = {name: now for name, now in pairs if now != name}
        return other | {name: None for name, now in pairs if now is None}

    @_asking
    def schema(self) -> LakeSchema:
        """Return the current schema."""
        return parse(str(self._classes.schema_json(self._handle.schema())))

    @_asking
    def layout(self) -> Layout:
        """Return the table's partitions and its order within files."""
        iceberg = self._classes.jvm.org.apache.iceberg
        spec = str(iceberg.PartitionSpecParser.toJson(self._handle.spec()))
        order = str(iceberg.SortOrderParser.toJson(self._handle.sortOrder()))
        return layout.parse(spec, order, self.schema(), self.name)

    def replace_layout(self, now: Layout, wanted: Layout) -> None:
        """Give files to come other partitions or another order; what is there stays as it is."""
        with translated(f"table {self.name}"):
            if wanted.partition != now.partition:
                self._replace_spec(now, wanted)
            if wanted.order != now.order:
                update = self._handle.replaceSortOrder()
                nulls = self._classes.jvm.org.apache.iceberg.NullOrder
                for one in wanted.order:
                    add = update.desc if one.descends else update.asc
                    add(self._expression(one.term), nulls.NULLS_FIRST if one.nulls_first else nulls.NULLS_LAST)
                update.commit()

    def _replace_spec(self, now: Layout, wanted: Layout) -> None:
        update = self._handle.updateSpec()
        names = [str(field.name()) for field in self._handle.spec().fields()]
        taken = {field.name for field in self.schema().fields}
        for term, name in zip(now.partition, names, strict=True):
            if term in wanted.partition:
                taken.add(name)
            else:
                update.removeField(name)
        for term in wanted.partition:
            if term not in now.partition:
                name = layout.field_name(term, taken)
                taken.add(name)
                update.addField(name, self._expression(term))
        update.commit()

    def _expression(self, term: Term) -> Any:  # noqa: ANN401
        make = self._classes.jvm.org.apache.iceberg.expressions.Expressions
        if term.transform == "identity":
            return make.ref(term.column)
        arguments = (term.column, term.width) if term.width else (term.column,)
        return getattr(make, term.transform)(*arguments)

    def look(self) -> jvm_calls.CurrentState:
        """Look at the catalog again, and return what the table is now."""
        with translated(f"table {self.name}"):
            if self._classes.calls is not None:
                return self._classes.calls.look(self._handle)
            self._handle.refresh()
            return jvm_calls.CurrentState(self.snapshot_id, self.parent_id, self.schema_id)

    def refresh(self) -> None:
        """Look at the catalog again."""
        with translated(f"table {self.name}"):
            self._handle.refresh()

    def live_files(self, *, in_order: bool = False) -> Iterator[LiveFile]:
        """Yield the files of the current snapshot; on demand those committed first come first.

        Files of one commit are ordered by name (see `kuvasz.lake.format.naming`).
        """
        with translated(f"table {self.name}"):
            within = self._classes.calls
            found = self._files_one_by_one() if within is None else within.files(self._handle, SID)
            files = (
                LiveFile(sequence=sequence, data=data, deletes=tuple(deletes)) for sequence, data, deletes in found
            )
            yield from sorted(files, key=lambda file: file.age) if in_order else files

    def _files_one_by_one(self) -> Iterator[tuple[int, dict[str, Any], list[dict[str, Any]]]]:
        """Do what `Inside.files` does."""
        parser = self._classes.jvm.org.apache.iceberg.ContentFileParser
        spec_of = functools.cache(self._spec)
        tasks = self._scan().planFiles()
        try:
            iterator = tasks.iterator()
            while iterator.hasNext():
                task = iterator.next()
                spec = spec_of(int(task.file().specId()))
                deletes = [json.loads(parser.toJson(delete, spec)) for delete in task.deletes()]
                yield int(task.file().dataSequenceNumber()), json.loads(parser.toJson(task.file(), spec)), deletes
        finally:
            tasks.close()

    def _spec(self, number: int) -> Any:  # noqa: ANN401 (a Java object)
        # Not by going through them: the end of a Java iterator is an exception, and to tell which one PySpark asks
        # the JVM a dozen questions, a third of a commit's time. Nor kept: it has the types of the schema of now.
        return self._handle.specs().get(number)

    def _reader_of_files(self) -> Callable[[str], Any]:
        """Return what makes Iceberg's object of a file from its JSON."""
        spec = functools.cache(self._spec)
        return lambda text: self._classes.content_file(text, spec(json.loads(text)["spec-id"]))

    def _scan(self) -> Any:  # noqa: ANN401
        scan = self._handle.newScan()
        if self._handle.schema().findField(SID) is None:
            return scan
        # A scan leaves all bounds out unless it is asked; those of the sid say whose rows a file holds.
        columns = self._classes.new_list()
        columns.add(SID)
        return scan.includeColumnStats(columns)

    def change_schema(self, steps: Iterable[Step], properties: Callable[[LakeSchema], Mapping[str, str]]) -> None:
        """Change the schema and, in the same commit, set properties that follow from the schema then."""
        with translated(f"table {self.name}"):
            transaction = self._handle.newTransaction()
            for step in steps:
                self._change(transaction, step)
            schema = str(self._classes.schema_json(transaction.table().schema()))
            update = transaction.updateProperties()
            for key, value in properties(parse(schema)).items():
                update.set(key, value)
            update.commit()
            transaction.commitTransaction()
        self.refresh()

    def _change(self, transaction: Any, step: Step) -> None:  # noqa: ANN401
        update = transaction.updateSchema()
        match step:
            case AddField():
                kind = self._type(step.field)
                if step.field.initial_default is None:
                    update.addColumn(None, step.field.name, kind)
                else:
                    update.addColumn(step.field.name, kind, None, self._literal(step.field, kind))
            case RenameField():
                update.renameColumn(step.name, step.to)
            case WidenField():
                update.updateColumn(step.name, self._type(Field(field_id=1, name=step.name, type=step.type)))
            case RelaxFields():
                update.setIdentifierFields(self._classes.jvm.java.util.ArrayList())
                update.commit()
                update = transaction.updateSchema()
                for name in step.names:
                    update.makeColumnOptional(name)
        update.commit()

    def _literal(self, field: Field, kind: Any) -> Any:  # noqa: ANN401
        value = field.initial_default
        if field.type.kind is LakeType.DECIMAL:
            value = self._classes.jvm.java.math.BigDecimal(value)
        return self._classes.jvm.org.apache.iceberg.expressions.Expressions.lit(value).to(kind)

    def _type(self, field: Field) -> Any:  # noqa: ANN401
        one = dataclasses.replace(
            field, field_id=1, required=False, name="column", inner_ids=(2, 3)[: len(field.inner_ids)]
        )
        schema = self._classes.jvm.org.apache.iceberg.SchemaParser.fromJson(render([one], ()))
        return schema.findField("column").type()

    def set_properties(self, properties: Mapping[str, str], removed: Iterable[str] = ()) -> None:
        """Set table properties, and remove others, in a commit of their own."""
        with translated(f"table {self.name}"):
            update = self._handle.updateProperties()
            for key, value in properties.items():
                update.set(key, value)
            for key in removed:
                update.remove(key)
            update.commit()

    def touch(self, properties: Mapping[str, str]) -> None:
        """Set properties together with an empty snapshot, so that whoever looks at snapshots alone notices."""
        with translated(f"table {self.name}"):
            transaction = self._handle.newTransaction()
            update = transaction.updateProperties()
            for key, value in properties.items():
                update.set(key, value)
            update.commit()
            transaction.newFastAppend().commit()
            transaction.commitTransaction()

    def remove_properties(self, names: Iterable[str]) -> None:
        """Remove table properties in a commit of their own."""
        with translated(f"table {self.name}"):
            update = self._handle.updateProperties()
            for name in names:
                update.remove(name)
            update.commit()

    def commit(self, commit: TableCommit) -> tuple[int | None, int | None]:
        """Make a commit and return the ids of the now current snapshot and of its parent.

        Raises:
            ForeignChange: Someone else's commit conflicts; nothing was committed.
            OutcomeUnknown: The commit was sent and its answer lost.
            LakeError: Catalog or storage failed; nothing was committed.
        """
        is_swap = commit.is_rewrite and bool(commit.removed_deletes or not commit.added_deletes)
        within = None if is_swap else self._classes.calls
        with translated(f"table {self.name}"):
            if within is None:
                self._call_by_call(commit, is_swap=is_swap)
                now = self.look()
            else:
                now = within.commit(self._handle, commit, is_local=self._is_local)
        return now.snapshot_id, now.parent_id

    def _call_by_call(self, commit: TableCommit, *, is_swap: bool) -> None:
        """Make a commit through py4j: the plain twin of `Inside.commit`."""
        transaction = self._handle.newTransaction()
        update = transaction.updateProperties()
        for key, value in commit.properties.items():
            update.set(key, value)
        for key in commit.removed_properties:
            update.remove(key)
        update.commit()
        if is_swap:
            self._rewrite(transaction, commit)
        elif not commit.is_empty:
            self._row_delta(transaction, commit)
        transaction.commitTransaction()

    def _rewrite(self, transaction: Any, commit: TableCommit, branch: str = "main") -> None:  # noqa: ANN401
        """Swap files in a snapshot of the operation `replace` (not possible if delete files only come)."""
        rewrite = transaction.newRewrite()
        rewrite.toBranch(branch)
        self._in_our_thread(rewrite)
        read = self._reader_of_files()
        for take, texts in (
            (rewrite.deleteFile, (*commit.removed_files, *commit.removed_deletes)),
            (rewrite.addFile, (*commit.data_files, *commit.added_deletes)),
        ):
            for text in texts:
                take(read(text))
        rewrite.validateFromSnapshot(commit.snapshot_id)
        if commit.sequence is not None:
            rewrite.dataSequenceNumber(commit.sequence)
        for key, value in commit.summary.items():
            rewrite.set(key, value)
        rewrite.commit()

    def _in_our_thread(self, update: Any) -> None:  # noqa: ANN401
        if self._is_local:
            # Iceberg's thread pools look every 10 ms whether they are done: ten times a commit. Where a manifest is
            # read in microseconds, doing it at once is faster; where it takes a round trip, the pools stay.
            update.scanManifestsWith(self._classes.direct)
            update.writeManifestsWith(self._classes.direct, 1)

    def _row_delta(self, transaction: Any, commit: TableCommit) -> None:  # noqa: ANN401
        delta = transaction.newRowDelta()
        self._in_our_thread(delta)
        read = self._reader_of_files()
        for take, texts in (
            (delta.addRows, commit.data_files),
            (delta.addDeletes, commit.added_deletes),
            (delta.removeDeletes, commit.removed_deletes),
            (delta.removeRows, commit.removed_files),
        ):
            for text in texts:
                take(read(text))
        if commit.snapshot_id is not None:
            # Without a starting snapshot Iceberg checks all of history, which is right for a table without one only.
            delta.validateFromSnapshot(commit.snapshot_id)
        # Rows that came or went since: someone else's, or a commit that a killed process had sent. If there are none,
        # and that is nearly always, Iceberg has nothing to look at.
        delta.validateNoConflictingDataFiles()
        delta.validateNoConflictingDeleteFiles()
        existing = commit.existing()
        if existing is not None:
            delta.validateDeletedFiles()
            paths = self._classes.new_list()
            for path in existing:
                paths.add(path)
            delta.validateDataFilesExist(paths)
        for key, value in commit.summary.items():
            delta.set(key, value)
        delta.commit()

    @property
    @_asking
    def snapshot_count(self) -> int:
        """How many snapshots the table has."""
        return int(self._handle.operations().current().snapshots().size())

    def list_data(self) -> Iterator[tuple[str, float]]:
        """Yield path and unix seconds of the last change of every file in the table's data folder."""
        folder = f"{self.location}/data/"
        with translated(f"table {self.name}"):
            if self._is_local and not Path(folder.removeprefix("file://")).is_dir():
                return  # nothing was written yet
            files = self._handle.io().listPrefix(folder).iterator()
            while files.hasNext():
                info = files.next()
                yield str(info.location()), info.createdAtMillis() / 1000

    def set_branch(self, branch: str, commit: TableCommit) -> None:
        """Let a branch point at a snapshot with other files in it; made anew if it is there."""
        with translated(f"table {self.name}"):
            transaction = self._handle.newTransaction()
            snapshots = transaction.manageSnapshots()
            move = snapshots.replaceBranch if self._handle.refs().containsKey(branch) else snapshots.createBranch
            move(branch, commit.snapshot_id).commit()
            if commit.removed_files:
                self._rewrite(transaction, commit, branch)
            transaction.commitTransaction()

    def expire_snapshots(self, older_than_ms: int, keep: int) -> None:
        """Expire snapshots and delete what only they need."""
        with translated(f"table {self.name}"):
            expiry = self._handle.expireSnapshots().expireOlderThan(older_than_ms).retainLast(keep)
            # Left to itself, Iceberg deletes every path of which an entry was removed. A file of deletion vectors has
            # many entries, and those of other data files may be alive. Once a snapshot is named, even one that is not
            # there, it deletes only what no snapshot that is left can reach.
            expiry.expireSnapshotId(_NO_SNAPSHOT)
            expiry.commit()

    @property
    @_asking
    def oldest_ms(self) -> int | None:
        """Time of the oldest snapshot that no tag or branch names; None if there is none."""
        named = {int(ref.snapshotId()) for ref in self._handle.refs().values()}
        for snapshot in self._handle.snapshots():
            if int(snapshot.snapshotId()) not in named:
                return int(snapshot.timestampMillis())
        return None


__all__ = ["IcebergTable"]
