"""The columns that kuvasz itself adds to a target, by table type. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from kuvasz.model import LakeType, TableType, ValueType, Wire


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OwnColumn:
    """A column that a mode fills, not the source."""

    name: str
    kind: LakeType
    required: bool = False
    bounded: bool = False  #: files keep bounds of it, so that queries by it skip files

    @property
    def type(self) -> ValueType:
        """Its type."""
        return ValueType(kind=self.kind, wire=Wire.HSTORE if self.kind is LakeType.MAP else Wire.TEXT)


START, END, DELETED = "kvsz_start", "kvsz_end", "kvsz_deleted"
OP, LSN, ORDINAL, XID, COMMIT_TS, OLD_KEY = "_op", "_lsn", "_ordinal", "_xid", "_commit_ts", "_old_key"
DELETED_AT = "_deleted_at"

COLUMNS: Mapping[TableType, tuple[OwnColumn, ...]] = {
    TableType.CLONE: (),
    TableType.APPEND: (),
    TableType.HISTORY: (
        OwnColumn(name=START, kind=LakeType.TIMESTAMPTZ, required=True, bounded=True),
        OwnColumn(name=END, kind=LakeType.TIMESTAMPTZ, required=True, bounded=True),
        OwnColumn(name=DELETED, kind=LakeType.BOOLEAN, required=True),
    ),
    TableType.CHANGELOG: (
        OwnColumn(name=OP, kind=LakeType.STRING, required=True),
        OwnColumn(name=LSN, kind=LakeType.LONG, required=True, bounded=True),
        OwnColumn(name=ORDINAL, kind=LakeType.LONG),
        OwnColumn(name=XID, kind=LakeType.LONG),
        OwnColumn(name=COMMIT_TS, kind=LakeType.TIMESTAMPTZ, bounded=True),
        OwnColumn(name=OLD_KEY, kind=LakeType.MAP),
    ),
}


#: Of a clone whose deleted rows stay: when its row was deleted, NULL while it lives.
_SOFT = (OwnColumn(name=DELETED_AT, kind=LakeType.TIMESTAMPTZ),)


def of(table_type: TableType, *, is_soft: bool) -> tuple[OwnColumn, ...]:
    """Return the columns of a table of some type; a soft one is a clone whose deleted rows stay."""
    return _SOFT if is_soft else COLUMNS[table_type]


def names(table_type: TableType, *, is_soft: bool = False) -> frozenset[str]:
    """Return the names of a type's own columns."""
    return frozenset(column.name for column in of(table_type, is_soft=is_soft))
