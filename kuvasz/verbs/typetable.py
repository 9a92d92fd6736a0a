"""``kuvasz types``: what each PostgreSQL type becomes, and `note`, which ``kuvasz plan`` gives of a column.

The types come from the type map itself; only the notes are written here.
"""

from __future__ import annotations

import dataclasses

from kuvasz import typemap
from kuvasz.model import LakeType, PgType, ValueType

_NUMERIC = 1700

#: Modifiers: numeric(12,2), numeric(50,2), numeric(5,-2).
_MODIFIERS = {"numeric(12,2)": (12, 2), "numeric(50,2)": (50, 2), "numeric(5,-2)": (5, -2)}

_NAMES = (
    "bool", "int2", "int4", "int8", "oid", "float4", "float8", *_MODIFIERS, "numeric", "text", "varchar", "bpchar",
    "name", "bytea", "date", "timestamp", "timestamptz", "time", "timetz", "interval", "uuid", "json", "jsonb", "xml",
    "money", "inet", "cidr", "macaddr", "bit", "varbit", "point", "int4range", "int4multirange", "tsvector",
    "tsquery", "pg_lsn", "_int4", "_text", "_numeric",
)  # fmt: skip

_OTHERS = (
    ("an enum", PgType(oid=0, name="mood", schema="public", category="e")),
    ("a composite type", PgType(oid=0, name="address", schema="public", category="c")),
    ("a domain over int4", PgType(oid=0, name="quantity", schema="public", category="d", base=typemap.BUILTIN[23])),
    ("citext", PgType(oid=0, name="citext", schema="public")),
    ("hstore", PgType(oid=0, name="hstore", schema="public")),
    ("vector (pgvector)", PgType(oid=0, name="vector", schema="public")),
    ("geometry, geography (PostGIS)", PgType(oid=0, name="geometry", schema="public")),
)

_TEXTS = frozenset({"text", "varchar", "name", "json", "jsonb", "xml", "citext", "char"})
_NO_TIME = "PostgreSQL's own text: Spark cannot read Iceberg's time"
_TEXT_NOTES = {"bpchar": "keeps its blanks", "time": _NO_TIME, "timetz": _NO_TIME}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TypeRow:
    """One type."""

    postgresql: str
    iceberg: str
    note: str


def rows() -> list[TypeRow]:
    """Return the type map."""
    by_name = {pg_type.name: pg_type for pg_type in typemap.BUILTIN.values()}
    found = []
    for name in _NAMES:
        pg_type = by_name[name.partition("(")[0]]
        typmod = _typmod(*_MODIFIERS[name]) if name in _MODIFIERS else -1
        found.append(_row(f"{name[1:]}[]" if name.startswith("_") else name, pg_type, typmod))
    return found + [_row(name, pg_type, -1) for name, pg_type in _OTHERS]


def note(pg_type: PgType, value: ValueType) -> str:
    """Return what a reader of the lake should know of a value; empty if it is what one expects."""
    while pg_type.base is not None:
        pg_type = pg_type.base
    if pg_type.element is not None and value.kind is not LakeType.STRING:
        inner = "" if value.element is None else note(pg_type.element, value.element)
        return "; ".join(filter(None, ["of one dimension: others stop the table; `types: {column: string}`", inner]))
    if value.kind in {LakeType.DATE, LakeType.TIMESTAMP, LakeType.TIMESTAMPTZ}:
        return "infinity and years beyond 9999: `out_of_range`, in a key `types: {column: string}`"
    if pg_type.oid == _NUMERIC:
        if value.kind is LakeType.STRING:
            return "exact text; a number with `types: {column: decimal(p,s)}`"
        return "NaN and Infinity stop the table; exact text with `types: {column: string}`"
    if value.kind is not LakeType.STRING or pg_type.name in _TEXTS or pg_type.category == "e":
        return ""
    return _TEXT_NOTES.get(pg_type.name, "PostgreSQL's own text")


def _row(name: str, pg_type: PgType, typmod: int) -> TypeRow:
    value = typemap.value_type(pg_type, typmod)
    return TypeRow(postgresql=name, iceberg=typemap.iceberg_name(value), note=note(pg_type, value))


def _typmod(precision: int, scale: int) -> int:
    # numeric.c, make_numeric_typmod; the manual's own way to ask is format_type.
    return ((precision << 16) | (scale & 0x7FF)) + 4
