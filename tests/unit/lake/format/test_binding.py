from __future__ import annotations

import dataclasses

import pytest

from kuvasz.errors import DecodeError, LakeError, SchemaError
from kuvasz.lake.format import binding
from kuvasz.lake.format.schema import LakeSchema, wanted
from kuvasz.model import Column, PgType, Relation, ReplicaIdentity, TableName, TableType
from kuvasz.modes.shape import DEFAULT_COLUMN, NO_COLUMN, SID_COLUMN, RefusedValue, Shape
from kuvasz.typemap import BUILTIN
from tests.support.changes import INT4, ITEMS, feed, relation, target

SEED = bytes(16)
WIDER = relation(Column(name="extra", pg_type=INT4))


def bind(found: Relation, *, lake: Relation = ITEMS, key: tuple[str, ...] = ("id",)) -> Shape:
    return binding.bind(
        target(), LakeSchema(schema_id=0, fields=wanted(target(), lake)), key, SEED, feed("eu"), found
    )


def test_fields_find_their_columns_by_name() -> None:
    turned = dataclasses.replace(ITEMS, columns=ITEMS.columns[::-1])
    shape = bind(turned, lake=WIDER)
    found = [(one.name, one.column) for one in shape.bindings]
    assert found == [("sid", SID_COLUMN), ("id", 2), ("n", 1), ("body", 0), ("extra", NO_COLUMN)]
    assert (shape.key, shape.sid, shape.column_count) == ((1,), "eu", 3)


def test_a_row_from_before_a_column_has_the_fields_default_only_where_that_is_its_sources() -> None:
    fields = wanted(target(), WIDER)
    schema = LakeSchema(schema_id=0, fields=(*fields[:-1], dataclasses.replace(fields[-1], initial_default=9)))
    extra = fields[-1].field_id
    numbers = {number: field.field_id for number, field in enumerate(fields[1:], 1)}
    earlier = typed(INT4)
    live = frozenset(numbers.values())

    def column(defaulted: frozenset[int]) -> int:
        shape = binding.bind(
            target(), schema, ("id",), SEED, feed("eu"), earlier, numbers, live, defaulted=defaulted
        )  # fmt: skip
        return shape.bindings[-1].column

    assert column(frozenset({extra})) == DEFAULT_COLUMN
    assert column(frozenset()) == NO_COLUMN


def test_a_column_that_the_lake_lacks_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"source eu, table public\.items: columns extra are not in the lake table"):
        bind(WIDER)


def test_a_column_that_the_map_leaves_out_is_ignored_wherever_it_is() -> None:
    left = dataclasses.replace(target(), exclude=frozenset({"extra", "body"}))
    schema = LakeSchema(schema_id=0, fields=wanted(target(), ITEMS))  # `body` was taken once
    shape = binding.bind(left, schema, ("id",), SEED, feed("eu"), WIDER)
    assert [(one.name, one.column) for one in shape.bindings][1:] == [("id", 0), ("n", 1), ("body", NO_COLUMN)]
    assert shape.column_count == 4
    assert [field.name for field in wanted(left, WIDER)] == ["sid", "id", "n"]


def test_another_key_is_refused_unless_every_column_is_one() -> None:
    full = dataclasses.replace(
        ITEMS,
        identity=ReplicaIdentity.FULL,
        columns=tuple(dataclasses.replace(column, is_key=True) for column in ITEMS.columns),
    )
    assert bind(full).key == (1,)
    with pytest.raises(SchemaError, match=r"identified by \(id, n, body\), but by \(id\) in the lake"):
        bind(dataclasses.replace(full, identity=ReplicaIdentity.INDEX))
    with pytest.raises(SchemaError, match=r"identified by \(id\), but by \(id, n\) in the lake"):
        bind(ITEMS, key=("id", "n"))


def test_feeds_are_found_by_table() -> None:
    feeds = binding.Feeds()
    other = feed("eu", table=TableName(schema="public", name="others"))
    for one in (feed("eu"), other, other, feed("us")):
        feeds.add(one)
    assert feeds.find("shop.items", "eu", relation(table=other.table)) is other
    assert feeds.find("shop.items", "eu", relation(table=TableName(schema="x", name="y"))) == feed("eu")
    with pytest.raises(KeyError):
        feeds.find("shop.items", "asia", ITEMS)
    again = feed("eu", sid="new")
    feeds.add(again)
    assert feeds.find("shop.items", "eu", ITEMS) is again, "as its source has begun again"


def test_a_values_error_tells_its_transaction() -> None:
    refused = RefusedValue("column n: value 'x' is no integer", hint="mend it", row=3)
    found = binding.placed(refused, 0x4B0)
    assert str(found) == "column n: value 'x' is no integer (transaction 0/4B0)\nhint: mend it"
    assert isinstance(found, DecodeError)
    failed = LakeError("storage failed")
    assert binding.placed(failed, 5) is failed
    assert binding.placed(refused, 0) is refused


def typed(kind: PgType) -> Relation:
    """Items with numbers, whose second column has a type."""
    columns = tuple(dataclasses.replace(one, attnum=number) for number, one in enumerate(ITEMS.columns, 1))
    return dataclasses.replace(
        ITEMS, columns=(columns[0], dataclasses.replace(columns[1], pg_type=kind), *columns[2:])
    )


@pytest.mark.parametrize("kind", TableType)
def test_a_row_from_before_a_change_of_type_goes_to_the_field_that_can_hold_it(kind: TableType) -> None:
    table = dataclasses.replace(target(), type=kind)
    fields = wanted(
        table, dataclasses.replace(ITEMS, columns=(*ITEMS.columns, Column(name="old", pg_type=BUILTIN[25])))
    )
    ids = {field.name: field.field_id for field in fields}
    numbers = {1: ids["id"], 2: ids["n"], 3: ids["body"]}
    live = frozenset(numbers.values())

    def columns(relation: Relation, left: dict[int, tuple[int, ...]], live: frozenset[int] = live) -> dict[str, int]:
        schema = LakeSchema(schema_id=0, fields=fields)
        shape = binding.bind(table, schema, ("id",), SEED, feed("eu"), relation, numbers, live, left)
        return {one.name: one.column for one in shape.bindings if one.column >= 0}

    text = typed(BUILTIN[25])
    assert columns(typed(INT4), {2: (ids["old"],)}) == {"id": 0, "n": 1, "body": 2}
    assert columns(text, {2: (ids["old"],)}) == {"id": 0, "old": 1, "body": 2}
    with pytest.raises(SchemaError, match="rows of a backlog have text for n, which is int in the lake"):
        columns(text, {2: (ids["body"],)})  # which another column fills now
    gone = live - {ids["n"]}
    if kind is TableType.CLONE:
        assert columns(text, {}, gone) == {"id": 0, "body": 2}
    else:
        with pytest.raises(SchemaError, match="rows of a backlog have text for n, which is int in the lake"):
            columns(text, {}, gone)
