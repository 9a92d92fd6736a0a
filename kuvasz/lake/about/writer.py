"""Rows of one table about the lake become a file and a commit, made in the driver: a Spark job would cost more."""

from __future__ import annotations

import contextlib
import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from kuvasz.errors import TableGone
from kuvasz.lake.files.data_file import write_rows
from kuvasz.lake.files.files import Changeset
from kuvasz.lake.format import naming
from kuvasz.lake.table.commits import may_be_there

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kuvasz.lake.about.rows import Row
    from kuvasz.lake.about.tables import AboutTable
    from kuvasz.lake.files.data_file import DataFile
    from kuvasz.lake.files.files import FileEntry
    from kuvasz.lake.table.table import LakeTable

_EPOCH = datetime.date(1970, 1, 1)


class AboutWriter:
    """The writer of one table.

    Args:
        about: The table.
        load: Loads it from the catalog, made if it is missing.
        keep_s: How old its rows get.
    """

    def __init__(self, about: AboutTable, load: Callable[[AboutTable], LakeTable], keep_s: float) -> None:
        self.about = about
        self._load = load
        self._keep = datetime.timedelta(seconds=keep_s)
        self.loaded: LakeTable | None = None  #: once it was needed

    def open(self) -> LakeTable:
        """Return the table.

        Raises:
            SchemaError: There is one of that name that kuvasz has not made.
            LakeError: The catalog failed.
        """
        if self.loaded is None:
            self.loaded = self._load(self.about)
        return self.loaded

    @contextlib.contextmanager
    def held(self) -> Iterator[LakeTable]:
        """Hold the table as it is now: what is written meanwhile is refused if someone else writes before it.

        Raises:
            SchemaError: There is one of that name that kuvasz has not made.
            LakeError: The catalog failed.
            TableGone: Someone dropped it; the next time it is made anew.
        """
        table = self.open()
        try:
            with table.lock:
                table.follow()
                yield table
        except TableGone:
            self.loaded = None
            raise

    def write(
        self, table: LakeTable, rows: Sequence[Row] | pa.Table, properties: Mapping[str, str], now: datetime.datetime
    ) -> None:
        """Add rows, let those go that are too old, and set properties of the table, in one commit.

        Args:
            table: The table, held.
            rows: Columns that the table does not have are left out.
            properties: They are there if, and only if, the rows are.
            now: To tell which rows are too old.

        Raises:
            KuvaszError: Catalog or store failed; the rows may be there all the same.
            OSError: The store failed.
        """
        changeset = Changeset()
        table.index.add_files(self._files(table, rows), changeset, None)
        changeset.dropped.update(too_old(table.index.files, (now - self._keep).date()))
        changeset.properties = dict(properties)
        try:
            table.commits.make(changeset, {})
        except BaseException as error:
            changeset.is_outcome_unknown = may_be_there(changeset, error)
            table.forget(changeset)
            raise

    def _files(self, table: LakeTable, rows: Sequence[Row] | pa.Table) -> Sequence[DataFile]:
        definition = table.definition
        schema = definition.schema.arrow()
        if isinstance(rows, pa.Table):
            arrays = [
                rows.column(field.name).cast(field.type) if field.name in rows.schema.names
                else pa.nulls(rows.num_rows, field.type)
                for field in schema
            ]  # fmt: skip
            made = pa.Table.from_arrays(arrays, schema=schema)
        else:
            made = pa.Table.from_pylist([dict(row) for row in rows], schema=schema)
        path = naming.fresh(definition.location, "")
        return write_rows(definition.io_properties, path, made, (self.about.time,), definition.layout)[0]

    def close(self) -> None:
        """Save the table's index."""
        if self.loaded is not None:
            self.loaded.close()


def too_old(files: Iterable[FileEntry], oldest: datetime.date) -> list[int]:
    """Return the numbers of files whose rows are all of days before one."""
    return [file.number for file in files if len(file.partition) == 1 and _day(file.partition[0]) < oldest]


def _day(value: str | int) -> datetime.date:
    """Return the day of a partition as Iceberg's JSON has it."""
    return datetime.date.fromisoformat(value) if isinstance(value, str) else _EPOCH + datetime.timedelta(days=value)


__all__ = ["AboutWriter", "too_old"]
