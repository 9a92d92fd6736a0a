"""Several tables of one source in one target: each is a source of its own, and no row says whose it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from kuvasz.model import SourcePosition, TableName, TableType
from kuvasz.ports import Feed, Receipt
from tests.support.changes import SAME, TARGET, Lines, Sender, delete, insert, relation, target, update, work
from tests.support.worlds import World

ONE = relation(oid=1, table=TableName(schema="public", name="items_1"))
TWO = relation(oid=2, table=TableName(schema="public", name="items_2"))
BIG = "x" * 5000


def copy(
    world: World, source: str, oid: int, *rows: tuple, kind: TableType = TableType.CLONE, lsn: int = 1000
) -> None:
    shape = {1: ONE, 2: TWO}[oid]
    feed = Feed(target=TARGET, source=f"{source}/{oid}", sid=source, table=shape.table)
    world.lake.prepare(dataclasses.replace(target(table_type=kind), has_members=True), feed, shape)
    receipt = world.lake.copy(feed, shape, [Lines(rows)] if rows else [], SourcePosition(lsn=lsn), lambda *_: None)
    assert isinstance(receipt, Receipt)


def rows(world: World) -> Sequence[tuple]:
    return sorted((row["sid"], row["id"], row["n"]) for row in world.table(TARGET).to_pylist())


def test_members_do_not_touch(world: World) -> None:
    one, two = Sender("eu/1", ONE), Sender("eu/2", TWO)
    copy(world, "eu", 1, (1, 10, "b"), (2, 20, BIG))
    copy(world, "eu", 2, (1, 11, "b"), (3, 30, "b"))
    copy(world, "us", 1, (1, 12, "b"))
    assert rows(world) == [("eu", 1, 10), ("eu", 1, 11), ("eu", 2, 20), ("eu", 3, 30), ("us", 1, 12)]
    # The order between members does not matter: a row goes from one to the other, whichever is applied first.
    moved = one.commit_lsn(), two.commit_lsn()
    world.applied(work(two.segment([(moved[1], [insert(2, 21)])]), one.segment([(moved[0], [delete(2)])])))
    assert rows(world) == [("eu", 1, 10), ("eu", 1, 11), ("eu", 2, 21), ("eu", 3, 30), ("us", 1, 12)]
    world.applied(work(two.one(delete(1), update(2, 22, SAME)), one.one(update(1, 13, SAME))))
    assert rows(world) == [("eu", 1, 13), ("eu", 2, 22), ("eu", 3, 30), ("us", 1, 12)]
    # TRUNCATE, alone and within a transaction that goes on.
    world.applied(work(one.one(insert(7, 7)), one.truncation(), one.one(insert(8, 8))))
    assert rows(world) == [("eu", 2, 22), ("eu", 3, 30), ("eu", 8, 8), ("us", 1, 12)]
    lsn = two.commit_lsn()
    world.applied(work(two.truncation(lsn, is_open=True), two.part(lsn, insert(9, 9)), open_sources=["eu/2"]))
    world.applied(work(through={"eu/2": lsn + 8}))
    assert rows(world) == [("eu", 8, 8), ("eu", 9, 9), ("us", 1, 12)]
    # Another copy replaces what is its own.
    copy(world, "eu", 1, (1, 1, "b"), lsn=9000)
    assert rows(world) == [("eu", 1, 1), ("eu", 9, 9), ("us", 1, 12)]
    assert {source: position.lsn for source, position in world.lake.positions(TARGET).items()} == {
        "eu/1": 9000, "eu/2": lsn + 8, "us/1": 1000,
    }  # fmt: skip
    # Who is gone leaves its rows; if it comes back, a copy replaces them.
    world.lake.forget(TARGET, "eu/2", is_gone=True)
    assert (set(world.lake.positions(TARGET)), world.lake.notes.columns(TARGET, "eu/2")) == ({"eu/1", "us/1"}, None)
    world.applied(work(one.segment([(9100, [insert(10, 10)])])))
    assert rows(world) == [("eu", 1, 1), ("eu", 9, 9), ("eu", 10, 10), ("us", 1, 12)]
    copy(world, "eu", 2, (9, 99, "b"), lsn=9500)
    assert rows(world) == [("eu", 1, 1), ("eu", 9, 99), ("eu", 10, 10), ("us", 1, 12)]


@pytest.mark.parametrize("kind", [TableType.APPEND, TableType.CHANGELOG])
def test_members_of_a_growing_table(world: World, kind: TableType) -> None:
    one, two = Sender("eu/1", ONE), Sender("eu/2", TWO)
    copy(world, "eu", 1, (1, 10, BIG), kind=kind)
    copy(world, "eu", 2, (1, 11, "b"), kind=kind)
    world.applied(work(two.one(update(1, 12, SAME)), one.one(update(1, 13, SAME))))
    found = sorted((row["n"], row["body"]) for row in world.table(TARGET).to_pylist())
    assert found == [(10, BIG), (11, "b"), (12, "b"), (13, BIG)]
