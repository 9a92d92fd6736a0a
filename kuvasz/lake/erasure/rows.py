"""Which rows of a table are to go: those of a sid, those that are about a source, or those with a key."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from kuvasz.config import names
from kuvasz.errors import LakeError, place_of
from kuvasz.lake.files import row_search
from kuvasz.lake.files.data_file import read_fields, rows_of
from kuvasz.lake.format.schema import SID
from kuvasz.model import TableType
from kuvasz.modes.system_columns import OLD_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kuvasz.lake.files.files import FileEntry
    from kuvasz.lake.table.table import LakeTable
    from kuvasz.model import UInt32s


#: Of the table of rejected rows: what says whose row one is.
MISFIT_COLUMNS: Final = ("target", "source", "key", "raw_row")


class RowsToErase(Protocol):
    """Rows of a table that are to go, by what they have in common."""

    def may_be_in(self, entry: FileEntry) -> bool:
        """Whether a file may have any, as far as one can tell without reading it."""

    def in_file(self, table: LakeTable, path: str) -> UInt32s:
        """Return where they are in a file, dead ones included; errors of the store are `OSError`."""

    def naming(self, table: LakeTable, path: str) -> int:  # noqa: ARG002 (most name none)
        """Return how many rows of a file stay and name them; errors of the store are `OSError`."""
        return 0

    def unclear(self, table: LakeTable, path: str) -> int:  # noqa: ARG002 (of most rows one can tell)
        """Return how many rows of a file stay though they may be among them; errors of the store are `OSError`."""
        return 0

    def is_of(self, source: str) -> bool:
        """Whether all rows go that a table knows as those of this source, with what it notes of that."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SidRows(RowsToErase):
    """The rows of a tenant: of whole sources, or of tenants of a source."""

    sid: str
    sources: frozenset[str]  #: what kuvasz calls those of its sid

    @override
    def may_be_in(self, entry: FileEntry) -> bool:
        """See `RowsToErase.may_be_in`."""
        return entry.sid == self.sid or (entry.sid is None and entry.may_hold(self.sid))

    @override
    def in_file(self, table: LakeTable, path: str) -> UInt32s:
        """See `RowsToErase.in_file`."""
        sid_id = table.definition.sid_id
        if sid_id is None:
            raise LakeError(
                f"{place_of(table=table.name)}: it has no column sid: nobody knows whose its rows are",
                hint="drop it from the lake if all of it is to go",
            )
        return rows_of(table.definition.io_properties, path, sid_id, self.sid)

    @override
    def is_of(self, source: str) -> bool:
        """See `RowsToErase.is_of`."""
        return _is_of(source, self.sid, self.sources)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AboutRows(RowsToErase):
    """The rows of a table about the lake that are about sources."""

    sid: str
    sources: frozenset[str]

    @override
    def may_be_in(self, entry: FileEntry) -> bool:
        """See `RowsToErase.may_be_in`."""
        return True

    @override
    def in_file(self, table: LakeTable, path: str) -> UInt32s:
        """See `RowsToErase.in_file`."""
        schema = table.definition.schema.arrow()
        if "source" not in schema.names:
            return np.empty(0, np.uint32)
        found = read_fields(table.definition.io_properties, path, pa.schema([schema.field("source")]))
        column = found.column(0).combine_chunks().dictionary_encode()
        told = [name is not None and _is_of(name, self.sid, self.sources) for name in column.dictionary.to_pylist()]
        places = column.indices.fill_null(len(told)).to_numpy(zero_copy_only=False)
        return np.flatnonzero(np.array([*told, False])[places]).astype(np.uint32)

    @override
    def is_of(self, source: str) -> bool:
        """See `RowsToErase.is_of`."""
        return False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KeyRows(RowsToErase):
    """The rows that have a key, of one sid or of all."""

    values: Mapping[str, pa.Scalar]  #: by column; NULL: no value of its type, which no row has
    is_key: Callable[[Mapping[str, str | None]], bool]  #: as `MisfitRows.is_key`

    @override
    def may_be_in(self, entry: FileEntry) -> bool:
        """See `RowsToErase.may_be_in`."""
        sid = self.values.get("sid")
        return sid is None or entry.sid == sid.as_py() or (entry.sid is None and entry.may_hold(sid.as_py()))

    @override
    def in_file(self, table: LakeTable, path: str) -> UInt32s:
        """See `RowsToErase.in_file`."""
        if not all(value.is_valid for value in self.values.values()):
            return np.empty(0, np.uint32)
        schema = table.definition.schema.arrow()
        fields = [schema.field(name) for name in self.values]
        found = row_search.positions_of(table.definition.io_properties, path, fields, list(self.values.values()))
        return found.astype(np.uint32)

    @override
    def naming(self, table: LakeTable, path: str) -> int:
        """See `RowsToErase.naming`: of a changelog the events that gave their rows another key."""
        if table.target.type is not TableType.CHANGELOG:
            return 0
        schema, sid = table.definition.schema.arrow(), self.values.get(SID)
        wanted = [OLD_KEY] if sid is None else [OLD_KEY, SID]
        found = read_fields(table.definition.io_properties, path, pa.schema([schema.field(name) for name in wanted]))
        rows = found.filter(pc.is_valid(found.column(0))).to_pylist()
        return sum(1 for row in rows if self.is_key(dict(row[OLD_KEY])) and (sid is None or row[SID] == sid.as_py()))

    @override
    def is_of(self, source: str) -> bool:
        """See `RowsToErase.is_of`."""
        return False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MisfitRows(RowsToErase):
    """The rejected rows that have a key, of one target; other tables about the lake have none of it by its key."""

    target: str
    is_key: Callable[[Mapping[str, str | None]], bool]  #: whether PostgreSQL's texts by column are it, without sid
    may_be_key: Callable[[Mapping[str, str | None]], bool]  #: whether they are it as far as they are known
    sid: str | None = None  #: whose rows are meant; None: all
    sources: frozenset[str] = frozenset()  #: what kuvasz calls the sources of this sid
    with_unclear: bool = False  #: those go as well of which nobody can tell whether they have the key

    @override
    def may_be_in(self, entry: FileEntry) -> bool:
        """See `RowsToErase.may_be_in`."""
        return True

    @override
    def in_file(self, table: LakeTable, path: str) -> UInt32s:
        """See `RowsToErase.in_file`."""
        found = self._read(table, path)
        return np.array([place for place, row in enumerate(found) if self.has(row)], np.uint32)

    @override
    def unclear(self, table: LakeTable, path: str) -> int:
        """See `RowsToErase.unclear`: rejected for their keys, such as an expression without a value."""
        return 0 if self.with_unclear else sum(map(self._is_unclear, self._read(table, path)))

    @staticmethod
    def _read(table: LakeTable, path: str) -> list[dict[str, str | None]]:
        schema = table.definition.schema.arrow()
        wanted = pa.schema([schema.field(name) for name in MISFIT_COLUMNS])
        found: list[dict[str, str | None]] = read_fields(table.definition.io_properties, path, wanted).to_pylist()
        return found

    def has(self, row: Mapping[str, str | None]) -> bool:
        """Whether a rejected row goes; it has `MISFIT_COLUMNS`."""
        if self._is_meant(row) and self.is_key(_texts(row)):
            return True
        return self.with_unclear and self._is_unclear(row)

    def _is_unclear(self, row: Mapping[str, str | None]) -> bool:
        return self._is_meant(row) and self.may_be_key(_texts(row))

    def _is_meant(self, row: Mapping[str, str | None]) -> bool:
        whose = self.sid is None or _is_of(row["source"] or "", self.sid, self.sources)
        return row["target"] == self.target and whose

    @override
    def is_of(self, source: str) -> bool:
        """See `RowsToErase.is_of`."""
        return False


def _texts(row: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return what a rejected row tells of its key: column -> text; one that has no value, or was not sent, is absent.

    Where there is no key, any column may tell the row, and NULL is a value of it.
    """
    whole, key = (json.loads(row[name] or "{}") for name in ("raw_row", "key"))
    return whole if not key else {name: text for name, text in {**whole, **key}.items() if text is not None}


def _is_of(name: str, sid: str, sources: frozenset[str]) -> bool:
    """Whether a source, or a member of one, is of a sid."""
    source, tenant = names.source_of(name), names.tenant_of(names.member_of(name))
    return source in sources if tenant is None else tenant == sid


__all__ = ["MISFIT_COLUMNS", "AboutRows", "KeyRows", "MisfitRows", "RowsToErase", "SidRows"]
