"""Each step of Iceberg as a call of its own through py4j.

The plain twin of `kuvasz.lake.jvm.jvm_calls`, for where that cannot be had, and what both are held to in tests. And
rewrites of files, which come too seldom to be worth a twin.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from kuvasz.lake.format.table_identity import BRANCH_PROPERTY
from kuvasz.lake.jvm.jvm_calls import CurrentState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kuvasz.lake.files.commit import TableCommit


class PlainCalls:
    """See the module, and `JvmCalls` for what its methods are given.

    Args:
        jvm: Spark's.
        direct: An executor that does things at once.
    """

    def __init__(self, jvm: Any, direct: Any) -> None:  # noqa: ANN401 (Java objects)
        self._direct = direct
        self._new_list = jvm.java.util.ArrayList
        self._parser = jvm.org.apache.iceberg.ContentFileParser
        self._read_tree = jvm.org.apache.iceberg.util.JsonUtil.mapper().readTree

    def look(self, handle: Any) -> CurrentState:  # noqa: ANN401
        """Look at the catalog again."""
        handle.refresh()
        schema_id, snapshot = int(handle.schema().schemaId()), self.head(handle)
        format_version = int(handle.operations().current().formatVersion())
        if snapshot is None:
            return CurrentState(None, None, schema_id, 0, format_version)
        parent = snapshot.parentId()
        number, parent_id = int(snapshot.snapshotId()), None if parent is None else int(parent)
        return CurrentState(number, parent_id, schema_id, int(snapshot.sequenceNumber()), format_version)

    def head(self, handle: Any) -> Any:  # noqa: ANN401
        """Return Iceberg's newest snapshot of the branch that is written, or of the table's own without that."""
        branch = handle.properties().get(BRANCH_PROPERTY)
        found = None if branch is None else handle.snapshot(branch)
        return handle.currentSnapshot() if found is None else found

    def properties(self, handle: Any, seen: str) -> tuple[str, Mapping[str, str]] | None:  # noqa: ANN401
        """Return where the table's metadata is and the properties in it; None where it is still what was seen."""
        location = str(handle.operations().current().metadataFileLocation() or "")
        return None if location and location == seen else (location, dict(handle.properties()))

    def property_of(self, handle: Any, name: str) -> str | None:  # noqa: ANN401
        """Return one table property."""
        found: str | None = handle.properties().get(name)
        return found

    # Files

    def files(self, handle: Any, bounded: str) -> Iterator[tuple[int, dict[str, Any], list[dict[str, Any]]]]:  # noqa: ANN401
        """Yield the files of the current snapshot, each with its sequence and its delete files."""
        spec_of = _specs(handle)
        tasks = self._scan(handle, bounded).planFiles()
        try:
            iterator = tasks.iterator()
            while iterator.hasNext():
                task = iterator.next()
                file = task.file()
                spec = spec_of(int(file.specId()))
                deletes = [json.loads(self._parser.toJson(delete, spec)) for delete in task.deletes()]
                yield int(file.dataSequenceNumber()), json.loads(self._parser.toJson(file, spec)), deletes
        finally:
            tasks.close()

    def _scan(self, handle: Any, bounded: str) -> Any:  # noqa: ANN401
        scan, branch = handle.newScan(), handle.properties().get(BRANCH_PROPERTY)
        if branch is not None and handle.snapshot(branch) is not None:
            scan = scan.useRef(branch)
        if handle.schema().findField(bounded) is None:
            return scan
        # A scan leaves all bounds out unless it is asked.
        columns = self._new_list()
        columns.add(bounded)
        return scan.includeColumnStats(columns)

    def _reader_of_files(self, handle: Any) -> Callable[[str], Any]:  # noqa: ANN401
        """Return what makes Iceberg's object of a file from its JSON."""
        spec_of = _specs(handle)
        return lambda text: self._parser.fromJson(self._read_tree(text), spec_of(json.loads(text)["spec-id"]))

    # Commits

    def begin(self, handle: Any) -> Any:  # noqa: ANN401
        """Return a transaction of Iceberg's."""
        return handle.newTransaction()

    def commit(self, handle: Any, commit: TableCommit, *, is_local: bool) -> CurrentState:  # noqa: ANN401
        """Make a commit, of any kind."""
        transaction = self.begin(handle)
        self.fill(handle, transaction, commit, is_local=is_local)
        transaction.commitTransaction()
        return self.look(handle)

    def fill(self, handle: Any, transaction: Any, commit: TableCommit, *, is_local: bool) -> None:  # noqa: ANN401
        """Put a commit, of any kind, into a transaction of Iceberg's, which its owner ends."""
        update = transaction.updateProperties()
        for key, value in commit.properties.items():
            update.set(key, value)
        for key in commit.removed_properties:
            update.remove(key)
        update.commit()
        if commit.is_swap:
            self.rewrite(handle, transaction, commit, is_local=is_local)
        elif not commit.is_empty:
            self._row_delta(handle, transaction, commit, is_local=is_local)

    def rewrite(
        self, handle: Any, transaction: Any, commit: TableCommit, branch: str | None = None, *, is_local: bool  # noqa: ANN401
    ) -> None:  # fmt: skip
        """Swap files in a snapshot of the operation `replace`, on the branch that is written or another one."""
        rewrite = transaction.newRewrite()
        _to_branch(rewrite, handle, branch)
        self._in_our_thread(rewrite, is_local=is_local)
        self._give(
            handle,
            (rewrite.deleteFile, (*commit.removed_files, *commit.removed_deletes)),
            (rewrite.addFile, (*commit.data_files, *commit.added_deletes)),
        )
        rewrite.validateFromSnapshot(commit.snapshot_id)
        if commit.sequence is not None:
            rewrite.dataSequenceNumber(commit.sequence)
        for key, value in commit.summary.items():
            rewrite.set(key, value)
        rewrite.commit()

    def _row_delta(self, handle: Any, transaction: Any, commit: TableCommit, *, is_local: bool) -> None:  # noqa: ANN401
        delta = transaction.newRowDelta()
        _to_branch(delta, handle)
        self._in_our_thread(delta, is_local=is_local)
        self._give(
            handle,
            (delta.addRows, commit.data_files),
            (delta.addDeletes, commit.added_deletes),
            (delta.removeDeletes, commit.removed_deletes),
            (delta.removeRows, commit.removed_files),
        )
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
            paths = self._new_list()
            for path in existing:
                paths.add(path)
            delta.validateDataFilesExist(paths)
        for key, value in commit.summary.items():
            delta.set(key, value)
        delta.commit()

    def _give(self, handle: Any, *files: tuple[Callable[[Any], object], Sequence[str]]) -> None:  # noqa: ANN401
        """Give an update its files, each kind by a method of its own."""
        read = self._reader_of_files(handle)
        for take, texts in files:
            for text in texts:
                take(read(text))

    def _in_our_thread(self, update: Any, *, is_local: bool) -> None:  # noqa: ANN401
        if is_local:
            # Iceberg's thread pools look every 10 ms whether they are done: ten times a commit. Where a manifest is
            # read in microseconds, doing it at once is faster; where it takes a round trip, the pools stay.
            update.scanManifestsWith(self._direct)
            update.writeManifestsWith(self._direct, 1)


def _to_branch(update: Any, handle: Any, other: str | None = None) -> None:  # noqa: ANN401
    """Have an update be made on a branch: another one, or that which is written."""
    branch = other or handle.properties().get(BRANCH_PROPERTY)
    if branch is not None:
        update.toBranch(branch)


def _specs(handle: Any) -> Callable[[int], Any]:  # noqa: ANN401
    """Return what finds a partition spec by its number."""
    # Not by going through them: the end of a Java iterator is an exception, and to tell which one PySpark asks
    # the JVM a dozen questions, a third of a commit's time. Nor kept: it has the types of the schema of now.
    return functools.cache(lambda number: handle.specs().get(number))


__all__ = ["PlainCalls"]
