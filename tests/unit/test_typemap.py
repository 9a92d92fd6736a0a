"""The type map, row by row of the manual's table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kuvasz.errors import SchemaError
from kuvasz.model import LakeType, PgType, ValueType, Wire
from kuvasz.typemap import BUILTIN, arrow_type, iceberg_name, numeric_modifier, value_type

BY_NAME = {pg_type.name: pg_type for pg_type in BUILTIN.values()}


def numeric(precision: int, scale: int) -> int:
    """The typmod of numeric(precision, scale)."""
    return (precision << 16 | scale & 0x7FF) + 4


def mapped(name: str, typmod: int = -1, **options: object) -> str:
    return iceberg_name(value_type(BY_NAME[name], typmod, **options))


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        ("bool", "boolean"), ("int2 int4", "int"), ("int8 oid", "long"), ("float4", "float"), ("float8", "double"),
        ("text varchar bpchar name xml char unknown_type", "string"), ("bytea", "binary"), ("date", "date"),
        ("timestamp", "timestamp"), ("timestamptz", "timestamptz"), ("time timetz interval", "string"),
        ("uuid", "uuid"), ("json jsonb jsonpath", "string"),
        ("int4range nummultirange point line lseg box path polygon circle inet cidr macaddr macaddr8", "string"),
        ("bit varbit money tsvector tsquery pg_lsn xid xid8 tid regclass int2vector oidvector", "string"),
        ("_bool", "list<boolean>"), ("_int2", "list<int>"), ("_oid", "list<long>"), ("_bytea", "list<binary>"),
        ("_uuid", "list<uuid>"), ("_timestamptz", "list<timestamptz>"),
        ("_text _json _box _int4range", "list<string>"),
        ("_numeric", "list<string>"),
    ],
)  # fmt: skip
def test_builtin_types(names: str, wanted: str) -> None:
    for name in names.split():
        pg_type = BY_NAME.get(name) or PgType(oid=99999, name=name, schema="public")
        assert iceberg_name(value_type(pg_type, -1)) == wanted, name


@pytest.mark.parametrize(
    ("precision", "scale", "wanted"),
    [
        (10, 2, "decimal(10, 2)"), (38, 0, "decimal(38, 0)"), (38, 38, "decimal(38, 38)"), (1, 0, "decimal(1, 0)"),
        (39, 0, "string"), (1000, 500, "string"),
        (2, -3, "decimal(38, 0)"), (38, -1, "string"), (30, -8, "decimal(38, 0)"),
        (3, 5, "decimal(38, 5)"), (3, 38, "decimal(38, 38)"), (3, 39, "string"), (5, -1000, "string"),
    ],
)  # fmt: skip
def test_numerics(precision: int, scale: int, wanted: str) -> None:
    assert numeric_modifier(numeric(precision, scale)) == (precision, scale)
    assert mapped("numeric", numeric(precision, scale)) == wanted
    assert mapped("_numeric", numeric(precision, scale)) == f"list<{wanted}>"


def test_a_numeric_without_modifier_is_text_unless_the_map_says_otherwise() -> None:
    assert mapped("numeric") == "string"
    assert mapped("numeric", decimal=(20, 4)) == "decimal(20, 4)"
    assert mapped("numeric", numeric(10, 2), decimal=(20, 4)) == "decimal(20, 4)"
    assert mapped("_numeric", decimal=(20, 4)) == "list<decimal(20, 4)>"


@pytest.mark.parametrize("asked", [(39, 0), (0, 0), (5, 6), (5, -1)])
def test_a_decimal_that_iceberg_has_not_is_refused(asked: tuple[int, int]) -> None:
    with pytest.raises(SchemaError, match="is not a type of the lake"):
        mapped("numeric", decimal=asked)


def test_a_decimal_is_for_numeric_only() -> None:
    with pytest.raises(SchemaError) as error:
        mapped("text", decimal=(5, 2))
    assert error.value.message == "decimal(5, 2) is asked for a column of type text"


def domain(base: PgType, typmod: int = -1) -> PgType:
    return PgType(oid=50000, name="d", schema="public", category="d", base=base, base_typmod=typmod)


def test_a_domain_is_its_base_with_its_own_modifier() -> None:
    price = domain(BY_NAME["numeric"], numeric(12, 3))
    assert value_type(price, -1) == value_type(BY_NAME["numeric"], numeric(12, 3))
    assert value_type(domain(price), -1) == value_type(price, -1)
    assert iceberg_name(value_type(domain(BY_NAME["_int4"]), -1)) == "list<int>"
    prices = PgType(oid=50001, name="_d", schema="public", element=price)
    assert iceberg_name(value_type(prices, -1)) == "list<decimal(12, 3)>"
    assert iceberg_name(value_type(price, -1, decimal=(20, 3))) == "decimal(20, 3)"


@pytest.mark.parametrize(
    "element",
    [
        domain(BY_NAME["_int4"]), PgType(oid=50003, name="hstore", schema="public"),
        domain(PgType(oid=50004, name="vector", schema="public")),
    ],
)  # fmt: skip
def test_an_array_of_what_has_several_parts_is_text(element: PgType) -> None:
    nested = PgType(oid=50002, name="_e", schema="public", element=element)
    assert value_type(nested, -1) == ValueType(kind=LakeType.STRING)


@pytest.mark.parametrize("category", ["c", "e", "r", "m", "p", "d"])
def test_other_kinds_of_types_are_text_whatever_their_name(category: str) -> None:
    pg_type = PgType(oid=50000, name="bool", schema="public", category=category)
    assert value_type(pg_type, -1) == ValueType(kind=LakeType.STRING)


def test_extension_types_are_known_by_name_in_any_schema() -> None:
    wanted = {"citext": "string", "hstore": "map<string, string>", "vector": "list<float>", "geometry": "binary",
              "geography": "binary", "int8": "string"}  # fmt: skip
    for name, iceberg in wanted.items():
        assert iceberg_name(value_type(PgType(oid=50000, name=name, schema="ext"), 1536)) == iceberg
    assert value_type(PgType(oid=1, name="geometry", schema="ext"), -1).wire is Wire.BARE_HEX


def test_a_column_can_be_taken_as_text() -> None:
    assert mapped("_int4", as_text=True) == "string"


def test_delimiters_are_those_of_the_element() -> None:
    assert value_type(BY_NAME["_box"], -1).delimiter == ";"
    assert value_type(BY_NAME["_point"], -1).delimiter == ","


def test_arrow_types() -> None:
    assert arrow_type(value_type(BY_NAME["numeric"], numeric(10, 2))) == pa.decimal128(10, 2)
    assert arrow_type(value_type(BY_NAME["timestamptz"], -1)) == pa.timestamp("us", tz="UTC")
    assert arrow_type(value_type(BY_NAME["timestamp"], -1)) == pa.timestamp("us")
    assert arrow_type(value_type(BY_NAME["uuid"], -1)) == pa.binary(16)
    assert arrow_type(value_type(BY_NAME["_date"], -1)) == pa.list_(pa.field("element", pa.date32()))
    assert arrow_type(ValueType(kind=LakeType.MAP, wire=Wire.HSTORE)) == pa.map_(pa.string(), pa.string())
    for kind in LakeType:
        element = ValueType(kind=LakeType.INT) if kind is LakeType.LIST else None
        assert arrow_type(ValueType(kind=kind, element=element, precision=5)) is not None


def test_builtin_types_have_their_oids() -> None:
    assert (BUILTIN[20].name, BUILTIN[1700].name, BUILTIN[1007].name) == ("int8", "numeric", "_int4")
    assert BUILTIN[1007].element == BUILTIN[23]
    assert BUILTIN[22].element is None
    assert all(oid == pg_type.oid for oid, pg_type in BUILTIN.items())
