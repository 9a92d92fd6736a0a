from __future__ import annotations

import dataclasses

import pytest

from kuvasz.errors import DecodeError, LakeError, SchemaError
from kuvasz.lake import binding
from kuvasz.lake.schema import LakeSchema, wanted
from kuvasz.model import Column, Relation, ReplicaIdentity, TableName
from kuvasz.modes.shape import NO_COLUMN, SID_COLUMN, RefusedValue, Shape
from tests.contract.changes import INT4, ITEMS, feed, relation, target

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


def test_a_values_error_tells_its_transaction() -> None:
    refused = RefusedValue("column n: value 'x' is no integer", hint="mend it", row=3)
    found = binding.placed(refused, 0x4B0)
    assert str(found) == "column n: value 'x' is no integer (transaction 0/4B0)\nhint: mend it"
    assert isinstance(found, DecodeError)
    failed = LakeError("storage failed")
    assert binding.placed(failed, 5) is failed
    assert binding.placed(refused, 0) is refused
