"""How the keys of data files are read again, on executors: for an index that was lost, or never was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa

from kuvasz.fold.keys import Keys
from kuvasz.lake.definition.definition import Definition
from kuvasz.lake.executors.history_tasks import ReadVersions
from kuvasz.lake.executors.jobs import Jobs
from kuvasz.lake.executors.tasks import ReadKeys
from kuvasz.lake.files.store_access import of_table
from kuvasz.lake.format.schema import arrow_field
from kuvasz.model import UInt32s
from kuvasz.modes import system_columns


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

    def keys(self, definition: Definition) -> Callable[[Sequence[tuple[int, str]]], Iterable[tuple[int, Keys]]]:
        """Return what reads all keys."""

        def read(files: Sequence[tuple[int, str]]) -> Iterable[tuple[int, Keys]]:
            return self._jobs.stream(self.job(definition), files)

        return read

    def versions(
        self, definition: Definition
    ) -> Callable[[Sequence[tuple[int, str]], bool], Iterable[tuple[int, Keys, UInt32s]]]:
        """Return what reads the keys of a history's open versions, or of those that ended deleted."""

        def read(files: Sequence[tuple[int, str]], are_open: bool) -> Iterable[tuple[int, Keys, UInt32s]]:  # noqa: FBT001
            id_of = {field.name: field.field_id for field in definition.schema.fields}
            job = ReadVersions(
                keys=self.job(definition),
                end_id=id_of[system_columns.END],
                deleted_id=id_of[system_columns.DELETED],
                are_open=are_open,
            )
            return self._jobs.stream(job, files)

        return read


__all__ = ["Readers"]
