"""Layers of changes over rows that nobody touches until a commit makes them visible."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kuvasz.errors import TableError
from kuvasz.lake.memory.rows import Layer, MemoryRows
from kuvasz.model import TableType
from tests.support.changes import SAME, delete, insert, update
from tests.support.shapes import APPEND, CLONE, apply

SCHEMA = CLONE.schema


@pytest.fixture
def table() -> MemoryRows:
    """With two rows of eu."""
    made = MemoryRows("shop.items", TableType.CLONE)
    put(made, insert(1, 1, "one"), insert(2, 2, "two"))
    assert made.make_visible()
    return made


def put(table: MemoryRows, *messages: bytes, source: str = "eu", layer: Layer | None = None) -> None:
    table.resolve(source, source, apply(*messages, to=CLONE), layer or table.layer)


def seen(table: MemoryRows) -> dict[int, tuple]:
    return {row["id"]: (row["n"], row["body"]) for row in table.visible(SCHEMA).to_pylist()}


def test_nothing_is_visible_before_it_is_settled(table: MemoryRows) -> None:
    put(table, update(1, 11), delete(2), insert(3, 3))
    assert seen(table) == {1: (1, "one"), 2: (2, "two")}
    assert table.make_visible()
    assert seen(table) == {1: (11, "b"), 3: (3, "b")}
    assert table.snapshots == 2


def test_what_changes_nothing_makes_no_snapshot(table: MemoryRows) -> None:
    table.begin()
    assert not table.make_visible()
    put(table, insert(9), delete(9))
    assert not table.make_visible()
    assert table.snapshots == 1


def test_a_value_that_was_not_sent_comes_from_the_nearest_layer(table: MemoryRows) -> None:
    put(table, update(1, 11, "newer"))
    put(table, update(1, 12, SAME))
    put(table, update(2, 22, SAME))
    table.make_visible()
    assert seen(table) == {1: (12, "newer"), 2: (22, "two")}


def test_a_row_without_its_earlier_version_is_refused(table: MemoryRows) -> None:
    put(table, delete(1))
    with pytest.raises(TableError, match=r"source eu, table shop\.items"):
        put(table, update(1, 12, SAME))


def test_a_truncation_hides_the_rows_of_its_source_alone(table: MemoryRows) -> None:
    put(table, insert(7, 7), source="us")
    table.make_visible()
    table.layer.truncate("eu")
    put(table, insert(3, 3))
    assert len(seen(table)) == 3
    table.make_visible()
    assert seen(table) == {7: (7, "b"), 3: (3, "b")}


def test_an_open_transaction_sees_its_own_rows_and_shows_them_at_its_end(table: MemoryRows) -> None:
    put(table, update(1, 11, "own"), layer=table.layer_of("eu", 100))
    put(table, update(1, 12, SAME), layer=table.layer_of("eu", 100))
    assert not table.make_visible()
    assert seen(table)[1] == (1, "one")
    table.begin()
    table.close_whole(["eu", "us"])
    assert table.make_visible()
    assert seen(table)[1] == (12, "own")


def test_a_later_step_ends_the_open_transaction_before_it(table: MemoryRows) -> None:
    put(table, insert(5, 5), layer=table.layer_of("eu", 100))
    assert table.layer_of("eu", 0) is table.layer
    table.make_visible()
    assert 5 in seen(table)


def test_a_truncation_in_an_open_transaction_hides_what_is_below_at_its_end(table: MemoryRows) -> None:
    layer = table.layer_of("eu", 100)
    layer.truncate("eu")
    put(table, insert(5, 5), layer=layer)
    assert len(seen(table)) == 2
    table.close_whole(["eu"])
    table.make_visible()
    assert set(seen(table)) == {5}


def test_an_abandoned_transaction_leaves_nothing(table: MemoryRows) -> None:
    put(table, insert(5, 5), layer=table.layer_of("eu", 100))
    table.abandon("eu")
    table.close_whole(["eu"])
    assert not table.make_visible()
    put(table, insert(6, 6), layer=table.layer_of("eu", 100))
    put(table, insert(7, 7))
    table.abandon_all()
    assert not table.make_visible()


def test_a_growing_table_keeps_every_row() -> None:
    table = MemoryRows("shop.items", TableType.APPEND)
    for n in (1, 2):
        table.resolve("eu", "eu", apply(insert(1, n), to=APPEND), table.layer)
        table.make_visible()
    assert sorted(table.visible(APPEND.schema).column("n").to_pylist()) == [1, 2]
    table.layer.truncate("eu")
    assert table.make_visible()
    assert len(table.visible(APPEND.schema)) == 0


def test_columns_that_came_later_are_null_in_rows_from_before(table: MemoryRows) -> None:
    wider = SCHEMA.append(pa.field("extra", pa.int32()))
    assert table.visible(wider).column("extra").to_pylist() == [None, None]
