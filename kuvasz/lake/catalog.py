"""Iceberg's catalog and table objects in Spark's JVM, reached through py4j; the only file that names their classes.

Handles are cheap to keep and safe to use from several threads; each table is committed to by one thread at a time.
Exceptions of the JVM are translated here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kuvasz.errors import ForeignChange, KuvaszError, LakeError, OutcomeUnknown, SchemaError, TableGone
from kuvasz.lake import inside, layout, localfs
from kuvasz.lake.evolution import AddField, RelaxFields, RenameField, Step, WidenField
from kuvasz.lake.layout import Layout
from kuvasz.lake.schema import SID, Field, LakeSchema, parse, render
from kuvasz.lake.transforms import Term
from kuvasz.model import Kind, ValueType

_log = logging.getLogger(__name__)


#: Iceberg's ids of snapshots are positive.
_NO_SNAPSHOT = -1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LiveFile:
    """A data file of the current snapshot with the delete files that apply to it, as Iceberg's own JSON."""

    data: Mapping[str, Any]
    deletes: tuple[Mapping[str, Any], ...]
    sequence: int = 0  #: of the commit that brought it


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Everything one commit changes. Files are given as ContentFileParser's JSON."""

    snapshot_id: int | None  #: that the deletes were resolved against
    properties: Mapping[str, str]
    summary: Mapping[str, str]
    data_files: Sequence[str] = ()
    added_deletes: Sequence[str] = ()
    removed_deletes: Sequence[str] = ()
    removed_files: Sequence[str] = ()
    is_rewrite: bool = False  #: the same rows in other files: readers of changes may pass over the snapshot
    sequence: int | None = None  #: of a rewrite: how old its files are, as Iceberg counts; None: they are new
    removed_properties: Sequence[str] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no row changes."""
        return not (self.data_files or self.added_deletes or self.removed_files)


class IcebergTable:
    """One table in the catalog."""

    def __init__(self, catalog: Catalog, handle: Any, name: str) -> None:  # noqa: ANN401 (a Java object)
        self._catalog = catalog
        self._handle = handle
        self._is_local = str(handle.location()).startswith("file:")
        self.name = name

    @property
    def uuid(self) -> str:
        """Identity of the table: another one after drop and create."""
        return str(self._handle.uuid().toString())

    @property
    def location(self) -> str:
        """Where the table's files live."""
        return str(self._handle.location())

    @property
    def format_version(self) -> int:
        """Iceberg format version."""
        return int(self._handle.operations().current().formatVersion())

    @property
    def properties(self) -> dict[str, str]:
        """Table properties.

        Raises:
            TableGone: The table was dropped; its handle is empty since someone looked.
        """
        within = self._catalog.inside
        try:
            return dict(self._handle.properties()) if within is None else within.properties(self._handle)
        except Py4JJavaError as error:
            if _class(error).endswith("NullPointerException"):
                raise gone(self.name) from error
            raise

    @property
    def snapshot_id(self) -> int | None:
        """Id of the current snapshot, None for an empty table."""
        snapshot = self._handle.currentSnapshot()
        return None if snapshot is None else int(snapshot.snapshotId())

    @property
    def sequence(self) -> int:
        """Sequence number of the current snapshot: that of the files it brought."""
        return int(self._handle.currentSnapshot().sequenceNumber())

    @property
    def parent_id(self) -> int | None:
        """Id of the current snapshot's parent, None if there is none."""
        snapshot = self._handle.currentSnapshot()
        parent = None if snapshot is None else snapshot.parentId()
        return None if parent is None else int(parent)

    @property
    def schema_id(self) -> int:
        """Id of the current schema."""
        return int(self._handle.schema().schemaId())

    def earlier_columns(self) -> dict[str, str | None]:
        """Return names that columns had in earlier schemas -> the one that column has now; None: it is gone."""
        to_json = self._catalog.schema_json
        current = {field["id"]: field["name"] for field in json.loads(to_json(self._handle.schema()))["fields"]}
        earlier = [json.loads(to_json(schema))["fields"] for schema in self._handle.schemas().values()]
        pairs = [(field["name"], current.get(field["id"])) for fields in earlier for field in fields]
        other = {name: now for name, now in pairs if now != name}
        return other | {name: None for name, now in pairs if now is None}

    def schema(self) -> LakeSchema:
        """Return the current schema."""
        return parse(str(self._catalog.schema_json(self._handle.schema())))

    def layout(self) -> Layout:
        """Return the table's partitions and its order within files."""
        iceberg = self._catalog.jvm.org.apache.iceberg
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
                nulls = self._catalog.jvm.org.apache.iceberg.NullOrder
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
        make = self._catalog.jvm.org.apache.iceberg.expressions.Expressions
        if term.transform == "identity":
            return make.ref(term.column)
        arguments = (term.column, term.width) if term.width else (term.column,)
        return getattr(make, term.transform)(*arguments)

    def look(self) -> inside.State:
        """Look at the catalog again, and return what the table is now."""
        with translated(f"table {self.name}"):
            if self._catalog.inside is not None:
                return self._catalog.inside.look(self._handle)
            self._handle.refresh()
            return inside.State(self.snapshot_id, self.parent_id, self.schema_id)

    def refresh(self) -> None:
        """Look at the catalog again."""
        with translated(f"table {self.name}"):
            self._handle.refresh()

    def live_files(self, *, in_order: bool = False) -> Iterator[LiveFile]:
        """Yield the files of the current snapshot; on demand those committed first come first.

        Files of one commit are ordered by name (see `kuvasz.lake.naming`).
        """
        with translated(f"table {self.name}"):
            within = self._catalog.inside
            found = self._files_one_by_one() if within is None else within.files(self._handle, SID)
            files = (
                LiveFile(sequence=sequence, data=data, deletes=tuple(deletes)) for sequence, data, deletes in found
            )
            yield from sorted(files, key=_age) if in_order else files

    def _files_one_by_one(self) -> Iterator[tuple[int, dict[str, Any], list[dict[str, Any]]]]:
        """Do what `Inside.files` does."""
        parser = self._catalog.jvm.org.apache.iceberg.ContentFileParser
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
        return lambda text: self._catalog.content_file(text, spec(json.loads(text)["spec-id"]))

    def _scan(self) -> Any:  # noqa: ANN401
        scan = self._handle.newScan()
        if self._handle.schema().findField(SID) is None:
            return scan
        # A scan leaves all bounds out unless it is asked; those of the sid say whose rows a file holds.
        columns = self._catalog.new_list()
        columns.add(SID)
        return scan.includeColumnStats(columns)

    def change_schema(self, steps: Iterable[Step], properties: Callable[[LakeSchema], Mapping[str, str]]) -> None:
        """Change the schema and, in the same commit, set properties that follow from the schema then."""
        with translated(f"table {self.name}"):
            transaction = self._handle.newTransaction()
            for step in steps:
                self._change(transaction, step)
            schema = str(self._catalog.schema_json(transaction.table().schema()))
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
                update.setIdentifierFields(self._catalog.jvm.java.util.ArrayList())
                update.commit()
                update = transaction.updateSchema()
                for name in step.names:
                    update.makeColumnOptional(name)
        update.commit()

    def _literal(self, field: Field, kind: Any) -> Any:  # noqa: ANN401
        value = field.initial_default
        if field.type.kind is Kind.DECIMAL:
            value = self._catalog.jvm.java.math.BigDecimal(value)
        return self._catalog.jvm.org.apache.iceberg.expressions.Expressions.lit(value).to(kind)

    def _type(self, field: Field) -> Any:  # noqa: ANN401
        one = dataclasses.replace(
            field, field_id=1, required=False, name="column", inner_ids=(2, 3)[: len(field.inner_ids)]
        )
        schema = self._catalog.jvm.org.apache.iceberg.SchemaParser.fromJson(render([one], ()))
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

    def commit(self, commit: Commit) -> tuple[int | None, int | None]:
        """Make a commit and return the ids of the now current snapshot and of its parent.

        Raises:
            ForeignChange: Someone else's commit conflicts; nothing was committed.
            OutcomeUnknown: The commit was sent and its answer lost.
            LakeError: Catalog or storage failed; nothing was committed.
        """
        is_swap = commit.is_rewrite and bool(commit.removed_deletes or not commit.added_deletes)
        within = None if is_swap else self._catalog.inside
        with translated(f"table {self.name}"):
            if within is None:
                self._call_by_call(commit, is_swap=is_swap)
                now = self.look()
            else:
                now = within.commit(self._handle, commit, _existing(commit), is_local=self._is_local)
        return now.snapshot_id, now.parent_id

    def _call_by_call(self, commit: Commit, *, is_swap: bool) -> None:
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

    def _rewrite(self, transaction: Any, commit: Commit, branch: str = "main") -> None:  # noqa: ANN401
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
            update.scanManifestsWith(self._catalog.direct)
            update.writeManifestsWith(self._catalog.direct, 1)

    def _row_delta(self, transaction: Any, commit: Commit) -> None:  # noqa: ANN401
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
        existing = _existing(commit)
        if existing is not None:
            delta.validateDeletedFiles()
            paths = self._catalog.new_list()
            for path in existing:
                paths.add(path)
            delta.validateDataFilesExist(paths)
        for key, value in commit.summary.items():
            delta.set(key, value)
        delta.commit()

    @property
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

    def set_branch(self, branch: str, commit: Commit) -> None:
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
    def oldest_ms(self) -> int | None:
        """Time of the oldest snapshot that no tag or branch names; None if there is none."""
        named = {int(ref.snapshotId()) for ref in self._handle.refs().values()}
        for snapshot in self._handle.snapshots():
            if int(snapshot.snapshotId()) not in named:
                return int(snapshot.timestampMillis())
        return None


class Catalog:
    """The catalog that holds the lake's tables."""

    def __init__(self, session: SparkSession, name: str) -> None:
        self._session = session
        self._name = name
        jvm: Any = session._jvm
        self.jvm = jvm
        self._hadoop = session._jsparkSession.sparkContext().hadoopConfiguration()
        self._gateway: Any = session.sparkContext._gateway
        with translated(f"catalog {name}"):
            localfs.install(jvm, self._hadoop)
            executors = jvm.org.apache.iceberg.relocated.com.google.common.util.concurrent.MoreExecutors
            self.direct = executors.newDirectExecutorService()
            self.inside = inside.install(jvm, self.direct)
            # Each dot of a Java name is a round trip through py4j: what a commit's files need is looked up once.
            self._read_tree = jvm.org.apache.iceberg.util.JsonUtil.mapper().readTree
            self._file_from_json = jvm.org.apache.iceberg.ContentFileParser.fromJson
            self.new_list = jvm.java.util.ArrayList
            self.schema_json = jvm.org.apache.iceberg.SchemaParser.toJson
            self._parse_name = jvm.org.apache.iceberg.catalog.TableIdentifier.parse
            # A thread without an active session sees Spark's start-up settings alone, not this session's.
            self.jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)
            util = self.jvm.org.apache.iceberg.spark.Spark3Util
            self._handle = util.loadIcebergCatalog(session._jsparkSession, name)

    def known_files(self, name: str) -> set[str]:
        """Return the names, without folders, of all data and delete files that any snapshot of a table knows."""
        quoted = ".".join(f"`{part}`" for part in (self._name, *name.split("."), "all_files"))
        try:
            found = self._session.sql(f"SELECT DISTINCT file_path FROM {quoted}").collect()
        except (Py4JError, PySparkException) as error:
            lines = str(error).splitlines() or ["?"]
            raise LakeError(
                f"table {name}: its files cannot be listed: {lines[0]}", hint="it is tried again"
            ) from error
        return {str(row[0]).rpartition("/")[2] for row in found}

    def content_file(self, text: str, spec: Any) -> Any:  # noqa: ANN401
        """Return Iceberg's object of a data or delete file from its JSON."""
        return self._file_from_json(self._read_tree(text), spec)

    def ensure_namespace(self, namespace: str) -> None:
        """Create a namespace if it is missing."""
        with translated(f"namespace {namespace}"):
            handle = self._namespace(namespace)
            if not self._handle.namespaceExists(handle):
                self._handle.createNamespace(handle)

    def load(self, name: str) -> IcebergTable | None:
        """Return a table by its name, `namespace.table`; None if there is none."""
        with translated(f"table {name}"):
            try:
                return IcebergTable(self, self._handle.loadTable(self._parse_name(name)), name)
            except Py4JJavaError as error:
                if _class(error).endswith("NoSuchTableException"):
                    return None
                raise

    def create(
        self, name: str, fields: Sequence[Field], key: Iterable[str], layout_: Layout, properties: Mapping[str, str]
    ) -> IcebergTable:
        """Create a table.

        Args:
            name: `namespace.table`.
            fields: Its columns.
            key: Names of those that identify a row.
            layout_: Its partitions and its order within files.
            properties: Its properties.
        """
        with translated(f"table {name}"):
            iceberg = self.jvm.org.apache.iceberg
            schema = iceberg.SchemaParser.fromJson(render(fields, key))
            values = self.jvm.java.util.HashMap()
            for key, value in properties.items():
                values.put(key, value)
            builder = self._handle.buildTable(self._parse_name(name), schema).withProperties(values)
            if layout_.partition:
                spec = iceberg.PartitionSpecParser.fromJson(schema, layout.render_spec(layout_, fields))
                builder.withPartitionSpec(spec)
            if layout_.order:
                order = iceberg.SortOrderParser.fromJson(schema, layout.render_order(layout_, fields))
                builder.withSortOrder(order)
            return IcebergTable(self, builder.create(), name)

    def drop(self, name: str) -> None:
        """Drop a table and its files."""
        with translated(f"table {name}"):
            self._handle.dropTable(self._parse_name(name), True)  # noqa: FBT003 (Java)

    def rehearse(self, folder: Path, commits: int = 4) -> None:
        """Make a few commits to a table of no catalog, so that the JVM has loaded what the first real one needs.

        Cold, a commit takes ten times as long as the tenth (measured).
        """
        shutil.rmtree(folder, ignore_errors=True)
        try:
            field = Field(field_id=1, name="id", type=ValueType(kind=Kind.LONG), required=True)
            schema = self.jvm.org.apache.iceberg.SchemaParser.fromJson(render([field], ()))
            spec = self.jvm.org.apache.iceberg.PartitionSpec.unpartitioned()
            properties = self.jvm.java.util.HashMap()
            properties.put("format-version", "3")
            location = f"file://{folder.absolute()}"
            tables = self.jvm.org.apache.iceberg.hadoop.HadoopTables(self._hadoop)
            table = IcebergTable(self, tables.create(schema, spec, properties, location), "rehearsal")
            for number in range(commits):
                table.commit(_rehearsal(location, number, table.snapshot_id))
            list(table.live_files())
        except (KuvaszError, Py4JError):
            _log.debug("the rehearsal of commits failed", extra={"event": "rehearsal_failed"}, exc_info=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _namespace(self, name: str) -> Any:  # noqa: ANN401
        return self.jvm.org.apache.iceberg.catalog.Namespace.of(self._strings(name.split(".")))

    def _strings(self, values: Sequence[str]) -> Any:  # noqa: ANN401
        array = self._gateway.new_array(self.jvm.java.lang.String, len(values))
        for index, value in enumerate(values):
            array[index] = value
        return array


def _age(file: LiveFile) -> tuple[int, str]:
    return file.sequence, file.data["file-path"].rpartition("/")[2]


def _existing(commit: Commit) -> list[str] | None:
    """Return the data files that must still be there for their rows to die; None if no row of before does."""
    if commit.snapshot_id is None or not (commit.added_deletes or commit.removed_files):
        return None
    new = {json.loads(text)["file-path"] for text in commit.data_files}
    referenced = [json.loads(text)["referenced-data-file"] for text in commit.added_deletes]
    return [path for path in referenced if path not in new]


def _rehearsal(location: str, number: int, snapshot_id: int | None) -> Commit:
    """Return a commit of files that do not exist; nobody reads the table."""
    path = f"{location}/data/{number}.parquet"
    data = {"spec-id": 0, "content": "data", "file-path": path, "file-format": "parquet", "partition": [],
            "file-size-in-bytes": 1, "record-count": 2}  # fmt: skip
    vector = {"spec-id": 0, "content": "position-deletes", "file-path": f"{path}.puffin", "file-format": "puffin",
              "partition": [], "file-size-in-bytes": 9, "record-count": 1, "referenced-data-file": path,
              "content-offset": 4, "content-size-in-bytes": 4}  # fmt: skip
    return Commit(
        snapshot_id=snapshot_id,
        properties={"kuvasz.commit": str(number)},
        summary={},
        data_files=[json.dumps(data)],
        added_deletes=[json.dumps(vector)],
    )


@contextlib.contextmanager
def translated(place: str) -> Iterator[None]:
    """Turn the JVM's exceptions into ours."""
    try:
        yield
    except Py4JJavaError as error:
        kind = _class(error)
        text = f"{place}: {_message(error)}"
        if kind.endswith("CommitStateUnknownException"):
            raise OutcomeUnknown(
                text, hint="the catalog is asked what it holds before anything is repeated"
            ) from error
        if kind.endswith(("ValidationException", "CommitFailedException")):
            raise ForeignChange(text, hint="another writer changed the table at the same time") from error
        if kind.endswith("NoSuchTableException"):
            raise gone(place.rpartition(" ")[2]) from error
        if kind.endswith("AlreadyExistsException"):
            raise SchemaError(text, hint="another process created it at the same time: start again") from error
        raise LakeError(text, hint="check the catalog and the warehouse; it is tried again") from error
    except PySparkException as error:  # PySpark converts IllegalArgumentException and the like
        message = f"{place}: {error}"
        raise SchemaError(message, hint="report it with the table's definition") from error
    except (Py4JError, ConnectionError) as error:
        raise LakeError(f"{place}: spark's jvm does not answer: {error}", hint="see its log; start again") from error


def gone(name: str) -> TableGone:
    """Return the error of a table that is no longer in the lake."""
    hint = f"restore it, or copy it again: kuvasz resync --table {name}"
    return TableGone(f"table {name}: someone dropped it from the lake", hint=hint)


def _class(error: Py4JJavaError) -> str:
    return str(error.java_exception.getClass().getName())


def _message(error: Py4JJavaError) -> str:
    exception = error.java_exception
    parts: list[str] = []
    while exception is not None and len(parts) < 4:
        text = str(exception.getMessage() or exception.getClass().getSimpleName()).splitlines()[0][:300]
        if text not in parts:
            parts.append(text)
        exception = exception.getCause()
    return ": ".join(parts)
