"""How the keys of data files are read again, on executors: for an index that was lost, or never was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from kuvasz.lake.executors.history_tasks import ReadVersions
from kuvasz.lake.executors.tasks import ReadKeys, SortKeys
from kuvasz.lake.files.store_access import of_table
from kuvasz.lake.format.schema import arrow_field
from kuvasz.modes import system_columns

if TYPE_CHECKING:
    from kuvasz.fold.keys import Keys
    from kuvasz.lake.definition.definition import Definition
    from kuvasz.lake.executors.jobs import Jobs
    from kuvasz.lake.files.key_file import KeyFiles
    from kuvasz.model import UInt32s


class Readers:
    """Readers for the tables of a lake.

    Args:
        jobs: Where reading runs.
        properties: The properties of the FileIO.
    """

    def __init__(self, jobs: Jobs, properties: Mapping[str, str]) -> None:
        self._jobs = jobs
        self._properties = properties

    def job(self, definition: Definition) -> ReadKeys:
        """Return the job that reads keys."""
        schema = definition.schema
        sid = [field for field in schema.fields if field.field_id == definition.sid_id]
        fields = [*sid, *filter(None, map(schema.by_name, definition.identity))]
        return ReadKeys(
            properties=of_table(self._properties, definition.location),
            seed=definition.seed,
            fields=pa.schema(map(arrow_field, fields)),
            has_sid=bool(sid),
        )

    def of(self, definition: Definition) -> TableReader:
        """Return the reader of a table."""
        return TableReader(self, self._jobs, definition)


class TableReader:
    """The reader of one table's keys, whose jobs run on executors; see `recovery.KeyReader`.

    Args:
        readers: Makes the job, as the table is by then.
        jobs: Where it runs.
        definition: The table.
    """

    def __init__(self, readers: Readers, jobs: Jobs, definition: Definition) -> None:
        self._readers = readers
        self._jobs = jobs
        self._definition = definition

    def keys(self, files: Sequence[tuple[int, str]]) -> Iterable[tuple[int, Keys]]:
        """Yield each file's number, and the keys of its rows; a few files are in memory at a time.

        Args:
            files: Number and path of each.

        Raises:
            JobFailed: Spark could not read them.
        """
        return self._jobs.stream(self._readers.job(self._definition), files)

    def keep(self, files: Sequence[tuple[int, str]], rows: Sequence[int], kept: KeyFiles) -> bool:
        """Keep the keys of all files, sorted; return False where one has a key twice.

        Args:
            files: Number and path of each.
            rows: How many each has.
            kept: Takes the keys; executors of this machine write them there themselves.

        Raises:
            JobFailed: Spark could not read them.
            LakeError: There is no room for them.
        """
        if self._jobs.is_local:
            job = SortKeys(read=self._readers.job(self._definition), files=kept)
            return all(is_kept for _, is_kept in self._jobs.run(job, files, rows))
        path_of = dict(files)
        return all(kept.write_unique(path_of[number], keys) for number, keys in self.keys(files))

    def versions(self, files: Sequence[tuple[int, str]], *, are_open: bool) -> Iterable[tuple[int, Keys, UInt32s]]:
        """Yield each file's number, keys and rows of a history's versions, those that ended last last.

        Args:
            files: Number and path of each.
            are_open: The open ones, or those that ended deleted.

        Raises:
            JobFailed: Spark could not read them.
        """
        id_of = {field.name: field.field_id for field in self._definition.schema.fields}
        job = ReadVersions(
            keys=self._readers.job(self._definition),
            end_id=id_of[system_columns.END],
            deleted_id=id_of[system_columns.DELETED],
            are_open=are_open,
        )
        return self._jobs.stream(job, files)


__all__ = ["Readers", "TableReader"]
