"""The lake for a process that looks at it beside a running kuvasz: it keeps no state and owns no table.

Everything of the running one stays untouched: its spool, its indexes, the id of its last commit.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pyroaring import BitMap64
from typing_extensions import override

from kuvasz.config import names
from kuvasz.config.model import Config
from kuvasz.errors import ForeignChange, InternalError, OutcomeUnknown, TableError, place_of
from kuvasz.fold.difference import Difference, find
from kuvasz.index.kept import IndexPlace
from kuvasz.lake.commit.history import HistoryWriter
from kuvasz.lake.compare import strays
from kuvasz.lake.compare.comparison import Comparison, OnProgress, lake_files
from kuvasz.lake.compare.growing import GrowingComparison
from kuvasz.lake.copies.repair import end_versions
from kuvasz.lake.executors.comparison_tasks import Fetched, LakeFile, Reading, pairs
from kuvasz.lake.executors.expressions import Expressions
from kuvasz.lake.executors.jobs import Jobs
from kuvasz.lake.files import store_access
from kuvasz.lake.files.file_io import file_io
from kuvasz.lake.files.files import Changeset, entry_of
from kuvasz.lake.format import naming, source_positions
from kuvasz.lake.jvm import spark
from kuvasz.lake.jvm.catalog import Catalog
from kuvasz.lake.table.commit_builder import CommitBuilder
from kuvasz.lake.table.commit_yield import YIELD_PROPERTY
from kuvasz.lake.table.notes import ANCHOR_PROPERTY, is_set_back
from kuvasz.lake.table.readers import Readers
from kuvasz.lake.table.recovery import EmptyReader
from kuvasz.lake.table.table import LakeTable
from kuvasz.model import Relation, TableType
from kuvasz.ports import CopyRequest, Feed, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kuvasz.fold.keys import Keys
    from kuvasz.lake.definition.definition import Definition


class ReadOnlyLake:
    """Tables to be looked at. Use as a context manager.

    Args:
        config: The whole configuration.
        session: A running Spark; started otherwise.
        spares: Others work with the same Spark and sources, and are left what they want; the number is the rows a
            second that are read of a source at most, 0: any number. None: it takes what there is.
    """

    def __init__(self, config: Config, session: SparkSession | None = None, spares: int | None = None) -> None:
        self._config = config
        self._spares = spares
        self._session = session
        self._owns_session = session is None
        self._properties = store_access.of_lake(config.lake)

    def __enter__(self) -> ReadOnlyLake:
        """Start Spark and reach the catalog.

        Raises:
            LakeError: They do not answer.
        """
        if self._session is None:
            self._session = spark.open_session(self._config)
        self._jobs = Jobs(self._session, is_background=self._spares is not None)
        self._jobs.join()
        self._catalog = Catalog(self._session, self._config.lake.name, self._properties)
        self._temporary = tempfile.TemporaryDirectory(prefix="kuvasz-beside-")
        self._folder = Path(self._temporary.name)
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of everything."""
        self._temporary.cleanup()
        if self._owns_session and self._session is not None:
            self._session.stop()

    def table(self, target: Target) -> LakeTable | None:
        """Return a table of the lake, None if there is none; call `look` before anything else.

        Raises:
            SchemaError: It is not what the map says.
        """
        found = self._catalog.load(target.name)
        if found is None:
            return None
        assert self._session is not None
        expressions = Expressions(self._session)
        place = IndexPlace(folder=self._folder / "index")
        if target.type is not TableType.HISTORY:
            return LakeTable(found, target, self._properties, place, expressions, RefusedReader)
        readers = Readers(self._jobs, self._properties)
        return LakeTable(found, target, self._properties, place, expressions, readers.of)

    def comparison(
        self,
        table: LakeTable,
        feed: Feed,
        relation: Relation,
        requests: Sequence[CopyRequest],
        on_progress: OnProgress,
        at_us: int = 0,
        is_wanted: Callable[[LakeFile], bool] = lambda _: True,
    ) -> Comparison:
        """Compare a source table with what `table` held at its last look.

        Args:
            table: The table of the lake.
            feed: The source table.
            relation: Its columns, with its key.
            requests: All of its rows, under one snapshot.
            on_progress: Told of every part that is done.
            at_us: When the snapshot was taken, in µs since 1970: what a history lacks begins then.
            is_wanted: Says of a file of the table whether it is compared.

        Raises:
            SchemaError: Source and lake disagree on columns.
        """
        table.columns.check(feed, relation)
        pipeline, target = self._config.pipeline, table.target
        sid = feed.sid if target.has_sid else None
        files = lake_files(table.index.files, feed.source, sid, has_sid=target.has_sid)
        files = [file for file in files if is_wanted(file)]
        reading = Reading(
            shape=table.columns.shapes.of(feed, relation), properties=table.definition.io_properties,
            chunk_bytes=pipeline.chunk_bytes,
            at_us=at_us if target.type is TableType.HISTORY else None,
            is_ordered=target.type is not TableType.APPEND
            or (table.definition.keeps_order and all(naming.tells_newest(file.path) for file in files)),
        )  # fmt: skip
        if self._spares:
            requests = [request.at_pace(self._spares) for request in requests]
        parallelism = pipeline.copy_parallelism if self._spares is None else 1
        compare = Comparison if target.type is TableType.CLONE else GrowingComparison
        return compare(
            self._jobs, reading, requests, files, parallelism=parallelism, folder=self._folder,
            on_progress=on_progress,
        )  # fmt: skip

    def mend_versions(
        self,
        table: LakeTable,
        feed: Feed,
        difference: Difference,
        fetched: Sequence[Fetched],
        *,
        at_us: int,
        snapshot_id: int | None,
    ) -> int:
        """Make a history's open versions equal to the source for some keys; see `mend`.

        What differs ends at the time of the source's snapshot, and what the source has instead begins then. Where
        versions are is looked up in an index of this process's own, for which the table's keys are read once.

        Args:
            table: One that nobody `look`s at.
            feed: The source table.
            difference: As for `mend`.
            fetched: As for `mend`.
            at_us: The time of the source's snapshot, in µs since 1970.
            snapshot_id: What the table showed at the look that is committed upon.

        Raises:
            ForeignChange: The table changed since the look; nothing was committed.
            TableError: As for `mend`.
            OutcomeUnknown, LakeError: See `IcebergTable.commit`.
        """
        changeset = Changeset()
        _check_there(table, fetched)
        with table.lock:
            table.table.refresh()
            table.index.places  # noqa: B018 (files are known with it)
            if table.index.snapshot_id != table.table.snapshots.current_id:
                table.index.catch_up()
            if table.index.snapshot_id != snapshot_id:
                raise ForeignChange(
                    f"{place_of(table=table.name)}: it changed meanwhile", hint="it is looked at again"
                )
            changeset.summary = {"kuvasz.mend": str(len(difference))}
            writer = HistoryWriter(table.rows, self._jobs, table.definition.io_properties, changeset)
            sid = feed.sid if table.target.has_sid else None
            try:
                unwanted = end_versions(writer, difference.keys, fetched, feed.source, sid, at_us)
                number_of = {file.path: number for number, (file, _) in changeset.added.items()}
                for path, rows in unwanted.items():
                    changeset.deletes[number_of[path]] = BitMap64(rows.astype(np.uint64))
                _send(table, changeset)
            except BaseException as error:
                changeset.is_outcome_unknown = isinstance(error, OutcomeUnknown)
                table.commits.discard(changeset, keep=[file.path for file, _ in pairs(fetched)])
                table.index.undo()
                raise
        return len(difference)

    def strays(self, target: Target, sids: Mapping[str, str | None]) -> int:
        """Return how many rows of a table are of no source.

        Args:
            target: The table.
            sids: Name of each source of the map that feeds it -> its sid. Rows of others, which were taken out of the
                map, cannot be told from strange ones: nothing is counted then.

        Raises:
            LakeError: A file could not be read.
        """
        table = self.table(target)
        if table is None or not (target.has_sid or target.has_members):
            return 0
        look(table)
        if not {names.source_of(name) for name in table.positions} <= sids.keys():
            return 0
        return strays.count(self._jobs, table, frozenset(sids.values()))

    @property
    def session(self) -> SparkSession:
        """The Spark that evaluates."""
        assert self._session is not None
        return self._session

    @property
    def mask_secret(self) -> bytes:
        """The key of the pseudonyms."""
        return (self._config.pipeline.mask_secret or "").encode()


def look(table: LakeTable) -> None:
    """Read what a table holds now, for comparing: no index, nothing is written.

    File numbers stay the same from one look to the next.

    Raises:
        SchemaError: Someone changed columns in the lake.
        TableError: It has deletes that kuvasz does not write.
    """
    table.table.refresh()
    if table.table.schema.id != table.definition.schema.schema_id:
        table.columns.follow()
    table.positions.clear()
    table.positions.update(source_positions.parse(table.table.properties, table.name))
    files = table.index.files
    files.let_go()
    sid_id = table.definition.sid_id
    for live in table.table.live_files():
        path = live.data["file-path"]
        if any(delete["content"] != "position-deletes" for delete in live.deletes) or len(live.deletes) > 1:
            message = f"{place_of(table=table.name)}: file {path} has deletes that kuvasz does not write"
            raise TableError(message, hint="compact the table: CALL system.rewrite_data_files")
        files.add(entry_of(live, files.number_of(path), sid_id))
    files.all_found()
    table.index.snapshot_id = table.table.snapshots.current_id


def mend(table: LakeTable, feed: Feed, difference: Difference, fetched: Sequence[Fetched]) -> int:
    """Make a table equal to the source for some keys, in one commit on top of its last look.

    Args:
        table: At the look that is committed upon.
        feed: The source table.
        difference: What an earlier look found, without keys that changed at the source since `fetched` was read.
        fetched: Rows of these keys and perhaps others, which are left out.

    Returns:
        How many keys were mended.

    Raises:
        ForeignChange: The table changed since the look; nothing was committed.
        TableError: Files of `fetched` are gone.
        OutcomeUnknown, LakeError: See `IcebergTable.commit`.
    """
    _check_there(table, fetched)
    changeset = Changeset()
    changeset.summary = {"kuvasz.mend": str(len(difference))}
    changeset.delete(difference.files, difference.places)
    sid = feed.sid if table.target.has_sid else None
    for file, keys in pairs(fetched):
        unwanted = np.flatnonzero(find(difference.keys, keys) < 0)
        if len(unwanted) == file.rows:
            continue
        number = table.index.files.reserve()
        changeset.add(number, file, sid)
        if len(unwanted):
            changeset.deletes[number] = BitMap64(unwanted.astype(np.uint64))
    _send(table, changeset)
    return len(difference)


def _check_there(table: LakeTable, fetched: Sequence[Fetched]) -> None:
    """Refuse to commit files that somebody removed: no snapshot knew them, so to an erasure they are leftovers.

    Raises:
        TableError: One is gone.
    """
    for file, _ in pairs(fetched):
        if not file_io(table.definition.io_properties, file.path).new_input(file.path).exists():
            message = (
                f"{place_of(table=table.name)}: the rows to mend it by were removed meanwhile, by an erasure, say"
            )
            raise TableError(message, hint="verify again when that is over")


def _send(table: LakeTable, changeset: Changeset) -> None:
    """Commit on top of the last look; no source gets any further by it.

    The id of the last commit stays that of the running kuvasz, which may be waiting for a lost answer. Who sets the
    table back behind what was mended takes that away, which is seen like any other loss; where someone had set it
    back before, that is to be seen still.
    """
    sent = CommitBuilder(table.definition, table.index, changeset).finish({})
    anchor = sent.commit.properties.get(ANCHOR_PROPERTY)
    told = {} if anchor is None or is_set_back(table.table) else {ANCHOR_PROPERTY: anchor}
    commit = dataclasses.replace(
        sent.commit, properties=told, removed_properties=(YIELD_PROPERTY,), summary=told | changeset.summary
    )
    try:
        table.index.snapshot_id, _ = table.table.commit(commit)
    except ForeignChange:
        table.definition.remove({file.path for file in sent.delete_files})
        raise


class RefusedReader(EmptyReader):
    """Refuses to read: the keys of all files are those of a table that another process writes.

    Args:
        definition: The table.
    """

    def __init__(self, definition: Definition) -> None:
        self._name = definition.name

    @override
    def keys(self, files: Sequence[tuple[int, str]]) -> Iterable[tuple[int, Keys]]:
        """Refuse to read the keys of files.

        Raises:
            InternalError: Always.
        """
        raise InternalError(f"{place_of(table=self._name)}: keys are not read beside a running kuvasz ({files})")


__all__ = ["ReadOnlyLake", "look", "mend"]
