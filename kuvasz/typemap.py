"""The type map: which Iceberg type a PostgreSQL type has in the lake, and by which text syntax it travels.

Enters: a `PgType` with its typmod. Leaves: a `ValueType`, its Iceberg name and its Arrow type. The table is that
of the user's manual ("Types"); every type that is not named here is a string, in PostgreSQL's own text form. Pure:
it knows the catalog only through `PgType`, and the built-in types by heart.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from kuvasz.errors import InternalError, SchemaError
from kuvasz.model import LakeType, PgType, ValueType, Wire

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

#: Iceberg's and Arrow's limit for decimals (Iceberg spec, "Primitive Types": precision must be 38 or less).
MAX_PRECISION = 38

#: Bytes PostgreSQL adds to the modifier of numeric, varchar, ... (VARHDRSZ, include/varatt.h and c.h).
_TYPMOD_HEADER = 4

#: The oid of numeric (pg_type.dat).
_NUMERIC = 1700

_STRING = ValueType(kind=LakeType.STRING)

#: Values of several parts: an array of such is PostgreSQL's text, as one of several dimensions is.
_OF_SEVERAL = frozenset({LakeType.LIST, LakeType.MAP})

_BY_NAME: Mapping[str, ValueType] = {
    "bool": ValueType(kind=LakeType.BOOLEAN, wire=Wire.BOOL),
    "int2": ValueType(kind=LakeType.INT, wire=Wire.INTEGER),
    "int4": ValueType(kind=LakeType.INT, wire=Wire.INTEGER),
    "int8": ValueType(kind=LakeType.LONG, wire=Wire.INTEGER),
    "oid": ValueType(kind=LakeType.LONG, wire=Wire.INTEGER),
    "float4": ValueType(kind=LakeType.FLOAT, wire=Wire.FLOAT),
    "float8": ValueType(kind=LakeType.DOUBLE, wire=Wire.FLOAT),
    "bytea": ValueType(kind=LakeType.BINARY, wire=Wire.HEX),
    "date": ValueType(kind=LakeType.DATE, wire=Wire.DATE),
    "timestamp": ValueType(kind=LakeType.TIMESTAMP, wire=Wire.TIMESTAMP),
    "timestamptz": ValueType(kind=LakeType.TIMESTAMPTZ, wire=Wire.TIMESTAMPTZ),
    "uuid": ValueType(kind=LakeType.UUID, wire=Wire.UUID),
}

#: Base types of extensions: their oids differ from database to database, and so may their schema.
_EXTENSION_BY_NAME: Mapping[str, ValueType] = {
    "hstore": ValueType(kind=LakeType.MAP, wire=Wire.HSTORE),
    "vector": ValueType(kind=LakeType.LIST, wire=Wire.VECTOR, element=_BY_NAME["float4"]),
    "geometry": ValueType(kind=LakeType.BINARY, wire=Wire.BARE_HEX),
    "geography": ValueType(kind=LakeType.BINARY, wire=Wire.BARE_HEX),
}


def value_type(
    pg_type: PgType, typmod: int, *, decimal: tuple[int, int] | None = None, as_text: bool = False
) -> ValueType:
    """Return how a column of `pg_type` travels and what it becomes.

    Args:
        pg_type: The column's type; domains carry their base, true arrays their element.
        typmod: ``pg_attribute.atttypmod`` as catalog and Relation message have it, -1 for none. A domain's own
            modifier takes its place, an array hands it to its elements.
        decimal: Precision and scale which the map asks for; only for numeric and arrays of it.
        as_text: Take PostgreSQL's text as it comes, as a string: for arrays with several dimensions, which the
            type does not tell (manual, section 8.15.1) and which a list refuses.

    Raises:
        SchemaError: `decimal` is asked for another type, or is not a decimal Iceberg has.
    """
    if as_text:
        return _STRING
    if decimal is not None:
        _check_decimal(pg_type, *decimal)
    return _value_type(pg_type, typmod, decimal)


def _value_type(pg_type: PgType, typmod: int, decimal: tuple[int, int] | None) -> ValueType:
    if pg_type.category == "d" and pg_type.base is not None:
        return _value_type(pg_type.base, pg_type.base_typmod, decimal)
    if pg_type.element is not None:
        return _list_of(_value_type(pg_type.element, typmod, decimal), pg_type.delimiter)
    if pg_type.category != "b":
        return _STRING
    if pg_type.name in _EXTENSION_BY_NAME:
        return _EXTENSION_BY_NAME[pg_type.name]
    if pg_type.schema != "pg_catalog":
        return _STRING
    if pg_type.name == "numeric":
        return _decimal(*decimal) if decimal is not None else _numeric(typmod)
    return _BY_NAME.get(pg_type.name, _STRING)


def _list_of(element: ValueType, delimiter: str) -> ValueType:
    if element.kind in _OF_SEVERAL:  # hstore[], vector[], an array of a domain over arrays
        return _STRING
    return ValueType(kind=LakeType.LIST, wire=Wire.ARRAY, element=element, delimiter=delimiter)


def _numeric(typmod: int) -> ValueType:
    """Return the type of a numeric column: a decimal where 38 digits hold every value it can have."""
    if typmod < _TYPMOD_HEADER:
        return _STRING
    precision, scale = numeric_modifier(typmod)
    digits_before = precision - scale
    if 0 <= scale <= precision <= MAX_PRECISION:
        return _decimal(precision, scale)
    # numeric(2,-3) holds up to 99000, numeric(3,5) up to 0.00999 (manual, section 8.1.2).
    if (scale < 0 and digits_before <= MAX_PRECISION) or precision < scale <= MAX_PRECISION:
        return _decimal(MAX_PRECISION, max(scale, 0))
    return _STRING


def numeric_modifier(typmod: int) -> tuple[int, int]:
    """Return precision and scale of a numeric's typmod; the scale is signed and may exceed the precision.

    The encoding is that of ``make_numeric_typmod`` in PostgreSQL 15 and later (src/backend/utils/adt/numeric.c):
    11 bits of two's complement for the scale. Before 15 scales were 0 to 1000, which reads the same.
    """
    packed = typmod - _TYPMOD_HEADER
    return (packed >> 16) & 0xFFFF, ((packed & 0x7FF) ^ 1024) - 1024


def _decimal(precision: int, scale: int) -> ValueType:
    return ValueType(kind=LakeType.DECIMAL, wire=Wire.NUMERIC, precision=precision, scale=scale)


def _check_decimal(pg_type: PgType, precision: int, scale: int) -> None:
    if not is_numeric(pg_type):
        message = f"decimal({precision}, {scale}) is asked for a column of type {pg_type.name}"
        raise SchemaError(
            message, hint="decimal is for numeric columns and arrays of numeric: take it out of the map"
        )
    if not (1 <= precision <= MAX_PRECISION and 0 <= scale <= precision):
        message = f"decimal({precision}, {scale}) is not a type of the lake"
        raise SchemaError(message, hint=f"give a precision of 1 to {MAX_PRECISION} and a scale of 0 to the precision")


def is_numeric(pg_type: PgType) -> bool:
    """Whether a type is numeric, an array of it, or a domain over one of them."""
    leaf = pg_type
    while (inner := leaf.base or leaf.element) is not None:
        leaf = inner
    return (leaf.schema, leaf.name) == ("pg_catalog", "numeric")


def postgresql_name(pg_type: PgType, typmod: int = -1) -> str:
    """Return a column's type as PostgreSQL shows it, modifiers of numeric included."""
    if pg_type.element is not None:
        return f"{postgresql_name(pg_type.element, typmod)}[]"
    if pg_type.oid == _NUMERIC and typmod >= 0:
        precision, scale = numeric_modifier(typmod)
        return f"numeric({precision},{scale})"
    prefix = "" if pg_type.schema in {"pg_catalog", "public"} else f"{pg_type.schema}."
    return f"{prefix}{pg_type.name}"


def iceberg_name(value_type: ValueType) -> str:
    """Return the type as Iceberg writes it, e.g. ``decimal(10, 2)`` or ``list<string>``."""
    if value_type.kind is LakeType.DECIMAL:
        return f"decimal({value_type.precision}, {value_type.scale})"
    if value_type.kind is LakeType.LIST:
        return f"list<{iceberg_name(_element(value_type))}>"
    if value_type.kind is LakeType.MAP:
        return "map<string, string>"
    return str(value_type.kind.value)


@functools.cache
def _arrow() -> Mapping[LakeType, pa.DataType]:
    import pyarrow as pa

    return {
        LakeType.BOOLEAN: pa.bool_(),
        LakeType.INT: pa.int32(),
        LakeType.LONG: pa.int64(),
        LakeType.FLOAT: pa.float32(),
        LakeType.DOUBLE: pa.float64(),
        LakeType.STRING: pa.string(),
        LakeType.BINARY: pa.binary(),
        LakeType.DATE: pa.date32(),
        LakeType.TIMESTAMP: pa.timestamp("us"),
        LakeType.TIMESTAMPTZ: pa.timestamp("us", tz="UTC"),
        LakeType.UUID: pa.binary(16),
        LakeType.MAP: pa.map_(pa.string(), pa.string()),
    }


def arrow_type(value_type: ValueType) -> pa.DataType:
    """Return the Arrow type of a decoded column; list elements are called ``element``, as in Iceberg's files."""
    import pyarrow as pa  # which most verbs need not wait for

    if value_type.kind is LakeType.DECIMAL:
        return pa.decimal128(value_type.precision, value_type.scale)
    if value_type.kind is LakeType.LIST:
        return pa.list_(pa.field("element", arrow_type(_element(value_type))))
    return _arrow()[value_type.kind]


def _element(value_type: ValueType) -> ValueType:
    if value_type.element is None:
        raise InternalError("a list type without an element type")
    return value_type.element


#: oid, name, typtype, oid of the array type (0: none), and the delimiter of its elements where it is not a comma.
#: From pg_type of PostgreSQL 16 and 18, which are equal in it; pseudo-types are never a column's type.
_BUILTIN_TABLE = """
    16 bool b 1000 | 17 bytea b 1001 | 18 char b 1002 | 19 name b 1003 | 20 int8 b 1016 | 21 int2 b 1005 |
    22 int2vector b 1006 | 23 int4 b 1007 | 24 regproc b 1008 | 25 text b 1009 | 26 oid b 1028 | 27 tid b 1010 |
    28 xid b 1011 | 29 cid b 1012 | 30 oidvector b 1013 | 114 json b 199 | 142 xml b 143 | 194 pg_node_tree b 0 |
    600 point b 1017 | 601 lseg b 1018 | 602 path b 1019 | 603 box b 1020 ; | 604 polygon b 1027 |
    628 line b 629 | 650 cidr b 651 | 700 float4 b 1021 | 701 float8 b 1022 | 718 circle b 719 |
    774 macaddr8 b 775 | 790 money b 791 | 829 macaddr b 1040 | 869 inet b 1041 | 1033 aclitem b 1034 |
    1042 bpchar b 1014 | 1043 varchar b 1015 | 1082 date b 1182 | 1083 time b 1183 | 1114 timestamp b 1115 |
    1184 timestamptz b 1185 | 1186 interval b 1187 | 1266 timetz b 1270 | 1560 bit b 1561 | 1562 varbit b 1563 |
    1700 numeric b 1231 | 1790 refcursor b 2201 | 2202 regprocedure b 2207 | 2203 regoper b 2208 |
    2204 regoperator b 2209 | 2205 regclass b 2210 | 2206 regtype b 2211 | 2950 uuid b 2951 |
    2970 txid_snapshot b 2949 | 3220 pg_lsn b 3221 | 3361 pg_ndistinct b 0 | 3402 pg_dependencies b 0 |
    3614 tsvector b 3643 | 3615 tsquery b 3645 | 3642 gtsvector b 3644 | 3734 regconfig b 3735 |
    3769 regdictionary b 3770 | 3802 jsonb b 3807 | 3904 int4range r 3905 | 3906 numrange r 3907 |
    3908 tsrange r 3909 | 3910 tstzrange r 3911 | 3912 daterange r 3913 | 3926 int8range r 3927 |
    4072 jsonpath b 4073 | 4089 regnamespace b 4090 | 4096 regrole b 4097 | 4191 regcollation b 4192 |
    4451 int4multirange m 6150 | 4532 nummultirange m 6151 | 4533 tsmultirange m 6152 |
    4534 tstzmultirange m 6153 | 4535 datemultirange m 6155 | 4536 int8multirange m 6157 |
    4600 pg_brin_bloom_summary b 0 | 4601 pg_brin_minmax_multi_summary b 0 | 5017 pg_mcv_list b 0 |
    5038 pg_snapshot b 5039 | 5069 xid8 b 271
"""


def _builtin_types() -> Iterator[PgType]:
    for row in _BUILTIN_TABLE.split("|"):
        oid, name, category, array_oid, *delimiter = row.split()
        element = PgType(oid=int(oid), name=name, category=category)
        yield element
        if array_oid != "0":
            yield PgType(
                oid=int(array_oid), name=f"_{name}", element=element, delimiter=delimiter[0] if delimiter else ","
            )


#: The types every server has, by oid, arrays included. Arrays of ``name``, ``point`` and the like have a
#: ``typelem`` too but are no true arrays: they have no `PgType.element` and travel as strings.
BUILTIN: dict[int, PgType] = {pg_type.oid: pg_type for pg_type in _builtin_types()}
