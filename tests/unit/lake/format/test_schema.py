from __future__ import annotations

import dataclasses
import json
import pickle

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.schema import Schema

from kuvasz.errors import SchemaError
from kuvasz.lake.files import data_file
from kuvasz.lake.format import schema
from kuvasz.lake.format.schema import Field
from kuvasz.model import REAL_BITS, Column, LakeType, PgType, TableType, ValueType, Wire
from tests.support.changes import INT4, ITEMS, TEXT, relation, target

HSTORE = PgType(oid=70000, name="hstore", schema="public")
INTS = PgType(oid=1007, name="_int4", element=INT4)
NUMERIC = PgType(oid=1700, name="numeric")


def _typmod(precision: int, scale: int) -> int:
    return ((precision << 16) | scale) + 4


def column(name: str, kind: PgType, **facts: object) -> Column:
    return Column(name=name, pg_type=kind, **facts)


WIDE = relation(
    column("tags", INTS),
    column("attributes", HSTORE),
    column("price", NUMERIC, typmod=_typmod(12, 2)),
    column("at", PgType(oid=1184, name="timestamptz")),
    column("key", PgType(oid=2950, name="uuid")),
    column("raw", PgType(oid=17, name="bytea")),
    column("ratio", PgType(oid=701, name="float8")),
    column("day", PgType(oid=1082, name="date")),
    column("is_ok", PgType(oid=16, name="bool")),
)


def _lake(*fields: Field) -> schema.LakeSchema:
    return schema.LakeSchema(schema_id=0, fields=fields)


def test_what_is_rendered_is_parsed() -> None:
    fields = schema.wanted(target(), WIDE)
    text = schema.render(fields, ("sid", "id"))
    parsed = schema.parse(text).fields
    assert [(f.field_id, f.name, f.required, f.inner_ids) for f in parsed] == [
        (f.field_id, f.name, f.required, f.inner_ids) for f in fields
    ]
    assert schema.render(parsed, ("sid", "id")) == text
    assert json.loads(text)["identifier-field-ids"] == [1, 2]


def test_pyiceberg_agrees_on_types_and_ids() -> None:
    fields = schema.wanted(target(), WIDE)
    iceberg = Schema.model_validate_json(schema.render(fields, ("sid", "id")))
    ours = pyarrow_to_schema(data_file._stored(schema.LakeSchema(schema_id=0, fields=fields).arrow()))
    assert ours.as_struct() == iceberg.as_struct()


def test_ids_are_unique_and_sid_comes_first() -> None:
    fields = schema.wanted(target(), WIDE, first_id=20)
    ids = [number for field in fields for number in (field.field_id, *field.inner_ids)]
    assert ids == list(range(20, 20 + len(ids)))
    assert fields[0] == Field(field_id=20, name="sid", type=ValueType(kind=LakeType.STRING), required=True)
    assert [field.name for field in fields if field.required] == ["sid", "id"]
    assert schema.wanted(target(has_sid=False), ITEMS)[0].name == "id"


@pytest.mark.parametrize("kind", ["float4", "_int4"])
def test_a_key_that_iceberg_cannot_identify_by_is_left_out(kind: str) -> None:
    pg_type = {"float4": PgType(oid=700, name="float4"), "_int4": INTS}[kind]
    fields = schema.wanted(target(), relation(column("k", pg_type, is_key=True)))
    assert json.loads(schema.render(fields, ("sid", "id", "k")))["identifier-field-ids"] == []


@pytest.mark.parametrize(("list_of", "other"), [(INTS, "tags.element"), (HSTORE, "tags.key"), (HSTORE, "tags.value")])
def test_a_column_that_iceberg_takes_for_a_part_of_another_is_refused(list_of: PgType, other: str) -> None:
    clash = relation(column("tags", list_of), column(other, INTS))
    with pytest.raises(SchemaError, match=f"takes the column {other} for a part of the column tags") as caught:
        schema.wanted(target(), clash)
    assert f"`exclude: ['{other}']`" in str(caught.value.hint)
    assert schema.wanted(target(), relation(column("tags", HSTORE), column("tags.element", INTS)))
    assert schema.wanted(dataclasses.replace(target(), exclude=frozenset({other})), clash)


def test_a_column_by_whose_name_spark_does_not_read_the_table_is_refused() -> None:
    schema.refuse_unread(["id", "_DELETED", "deleted"], ["id", "_DELETED", "deleted"], "table items")
    schema.refuse_unread(["id"], ["id", "_deleted", "_DELETED"], "a table that has them already")
    with pytest.raises(SchemaError, match=r"^table items: Iceberg has something of its own by the name _d") as caught:
        schema.refuse_unread(["id", "_deleted"], ["id", "_deleted"], "table items")
    assert "`exclude: [_deleted]`" in str(caught.value.hint)


def test_columns_that_differ_in_case_only_are_refused() -> None:
    with pytest.raises(SchemaError, match=r"^table items: the columns name and Name differ in case only") as caught:
        schema.refuse_unread(["Name"], ["id", "name", "Name"], "table items")
    assert "`exclude: [Name]`" in str(caught.value.hint)


def test_a_type_of_someone_else_is_refused() -> None:
    other = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "t", "required": False, "type": "time"}]}
    with pytest.raises(SchemaError, match="column t of the lake table has type time, which kuvasz does not write"):
        schema.parse(json.dumps(other))
    other["fields"][0]["type"] = {"type": "struct", "fields": []}
    with pytest.raises(SchemaError, match="column t of the lake table"):
        schema.parse(json.dumps(other))


def _field(kind: LakeType, **facts: object) -> Field:
    return Field(field_id=1, name="c", type=ValueType(kind=kind, **facts))


INT8_TYPE = PgType(oid=20, name="int8")


@pytest.mark.parametrize(
    ("pg_type", "typmod", "lake", "read"),
    [
        (INT4, -1, _field(LakeType.INT), (LakeType.INT, Wire.INTEGER)),
        (INT4, -1, _field(LakeType.LONG), (LakeType.LONG, Wire.INTEGER)),
        (TEXT, -1, _field(LakeType.STRING), (LakeType.STRING, Wire.TEXT)),
        (INT8_TYPE, -1, _field(LakeType.STRING), (LakeType.STRING, Wire.TEXT)),
        (INTS, -1, _field(LakeType.STRING), (LakeType.STRING, Wire.TEXT)),
        (NUMERIC, _typmod(10, 2), _field(LakeType.DECIMAL, precision=12, scale=2), (LakeType.DECIMAL, Wire.NUMERIC)),
        (NUMERIC, _typmod(10, 2), _field(LakeType.DECIMAL, precision=12, scale=4), (LakeType.DECIMAL, Wire.NUMERIC)),
        (HSTORE, -1, _field(LakeType.MAP), (LakeType.MAP, Wire.HSTORE)),
    ],
)
def test_a_lake_column_takes_narrower_sources(pg_type: PgType, typmod: int, lake: Field, read: tuple) -> None:
    found = schema.reading_type(column("c", pg_type, typmod=typmod), lake, "source eu, table t")
    assert (found.kind, found.wire) == read
    assert (found.precision, found.scale) == (lake.type.precision, lake.type.scale)


def test_a_real_is_read_as_such_into_a_double() -> None:
    real = column("c", PgType(oid=700, name="float4"))
    found = schema.reading_type(real, _field(LakeType.DOUBLE), "source eu, table t")
    assert (found.kind, found.wire, found.precision) == (LakeType.DOUBLE, Wire.FLOAT, REAL_BITS)


@pytest.mark.parametrize(
    ("pg_type", "typmod", "lake", "says"),
    [
        (INT8_TYPE, -1, _field(LakeType.INT), "column c is long by its type int8, but int in the lake"),
        (TEXT, -1, _field(LakeType.LONG), "column c is string by its type text, but long in the lake"),
        (INT4, -1, _field(LakeType.DOUBLE), "but double in the lake"),
        (
            NUMERIC,
            _typmod(10, 2),
            _field(LakeType.DECIMAL, precision=10, scale=4),
            r"is decimal\(10,\s*2\) by its type",
        ),
        (NUMERIC, _typmod(10, 4), _field(LakeType.DECIMAL, precision=12, scale=2), "but decimal"),
        (INTS, -1, _field(LakeType.LIST, element=ValueType(kind=LakeType.LONG)), "but list<long> in the lake"),
    ],
)
def test_a_lake_column_that_loses_values_is_refused(pg_type: PgType, typmod: int, lake: Field, says: str) -> None:
    with pytest.raises(SchemaError, match=f"source eu, table t: column c.*{says}|{says}") as caught:
        schema.reading_type(column("c", pg_type, typmod=typmod), lake, "source eu, table t")
    assert str(caught.value).startswith("source eu, table t: column c is ")
    assert caught.value.hint


def test_by_name() -> None:
    lake = _lake(*schema.wanted(target(), ITEMS))
    assert lake.by_name("n") == lake.fields[2]
    assert lake.by_name("x") is None
    assert lake.arrow().field("id").metadata == {b"PARQUET:field_id": b"2"}
    assert not lake.arrow().field("id").nullable
    assert lake.arrow() is lake.arrow(), "of a thousand sources there is one"
    other = dataclasses.replace(lake, fields=lake.fields[:1])
    assert other.arrow().names == [lake.fields[0].name]
    assert pickle.loads(pickle.dumps(lake)) == lake


def test_the_maps_types_decide() -> None:
    found = schema.source_type(dataclasses.replace(column("price", NUMERIC), asked="decimal(20,4)"))
    assert (found.kind, found.precision, found.scale) == (LakeType.DECIMAL, 20, 4)
    assert schema.source_type(column("price", NUMERIC)).kind is LakeType.STRING
    assert schema.source_type(dataclasses.replace(column("tags", INTS), asked="string")).kind is LakeType.STRING
    relation = schema.typed(dataclasses.replace(target(), types={"n": "string"}), ITEMS)
    assert [one.asked for one in relation.columns] == ["string" if one.name == "n" else "" for one in ITEMS.columns]
    assert pa.types.is_decimal(schema.arrow_field(Field(field_id=1, name="p", type=found)).type)


def test_bounds_are_kept_of_what_rows_are_found_by() -> None:
    assert schema.bounded(target(has_sid=False), ("a", "b")) == ("a", "b")
    assert schema.bounded(target(has_sid=True), ("a",)) == ("sid", "a")
    history = schema.bounded(target(has_sid=False, table_type=TableType.HISTORY), ("a",))
    assert history[0] == "a"
    assert len(history) == 3


def test_where_deleted_rows_stay_there_is_a_column_for_when() -> None:
    soft = dataclasses.replace(target(has_sid=False), is_soft=True)
    found = schema.wanted(soft, ITEMS)[-1]
    assert (found.name, found.required) == ("_deleted_at", False)
    assert dataclasses.replace(schema.deleted_at(), field_id=found.field_id) == found
    keyless = dataclasses.replace(
        ITEMS, columns=tuple(dataclasses.replace(one, is_key=False) for one in ITEMS.columns)
    )
    with pytest.raises(SchemaError, match=r"has no key, by which deleted rows of shop\.items could be found again"):
        schema.wanted(soft, keyless)
    keeping = dataclasses.replace(target(has_sid=False), keeps_earlier=True)
    assert schema.wanted(keeping, ITEMS)
    with pytest.raises(SchemaError, match=r"has no key, by which shop\.items would keep a row's earlier version"):
        schema.wanted(keeping, keyless)
    with pytest.raises(SchemaError, match="has a column named _deleted_at"):
        schema.wanted(soft, relation(Column(name="_deleted_at", pg_type=TEXT)))
