"""What one source of three brings wrong is told of it alone; in the same work, commit and file the others go on."""

from __future__ import annotations

import dataclasses

import pytest

from kuvasz.errors import DecodeError, LakeError, SchemaError, VersionLost
from kuvasz.model import Column, TableType
from kuvasz.ports import Failure, Receipt
from tests.support.changes import INT8, ITEMS, SAME, TARGET, Sender, again, feed, insert, target, update, work
from tests.support.worlds import MemoryWorld, World

NAMES = ("eu", "us", "ap")


def prepare(world: World, table_type: TableType = TableType.CLONE) -> list[Sender]:
    if table_type is TableType.HISTORY and isinstance(world, MemoryWorld):
        pytest.skip("the lake in memory keeps no history")
    for name in NAMES:
        world.lake.prepare(target(table_type=table_type), feed(name), ITEMS)
        world.copy(name)
    return [Sender(name) for name in NAMES]


def ids(world: World) -> list[tuple[str, int]]:
    return sorted((row["sid"], row["id"]) for row in world.table(TARGET).to_pylist())


@pytest.mark.parametrize("table_type", list(TableType))
def test_a_value_that_does_not_fit(world: World, table_type: TableType) -> None:
    eu, us, ap = prepare(world, table_type)
    bad = us.one(insert(1, "x1"))
    first, later = us.one(insert(7)), us.one(insert(8))
    failure, receipt = world.apply(work(eu.one(insert(1)), bad, ap.one(insert(1)), eu.one(insert(2)), first))
    assert isinstance(failure, Failure)
    assert isinstance(receipt, Receipt)
    assert failure.source == "us"
    assert isinstance(failure.error, DecodeError)
    assert (receipt.positions.keys(), receipt.rows_of) == ({"eu", "ap"}, {"eu": 2, "ap": 1})
    assert world.lake.failure(TARGET) is None
    assert [world.lake.failure(TARGET, name) for name in NAMES] == [None, failure.error, None]
    world.applied(work(eu.one(insert(3)), later, ap.one(insert(2))))
    assert world.apply(work(us.one(insert(9)))) == []
    assert ids(world) == [("ap", 1), ("ap", 2), ("eu", 1), ("eu", 2), ("eu", 3)]
    assert (world.position("us"), world.orphans()) == (1000, [])
    # It is mended, and all that was not applied comes again, once.
    world.lake.resume(TARGET, failure.error)
    world.applied(work(us.segment([(1100, [insert(1, 1)])]), again(first), again(later), ap.one(insert(3))))
    assert [key for sid, key in ids(world) if sid == "us"] == [1, 7, 8]
    assert [key for sid, key in ids(world) if sid == "ap"] == [1, 2, 3]
    assert world.orphans() == []


@pytest.mark.parametrize("table_type", list(TableType))
def test_columns_that_the_table_cannot_hold(world: World, table_type: TableType) -> None:
    eu, _, ap = prepare(world, table_type)
    columns = tuple(Column(name="n", pg_type=INT8) if one.name == "n" else one for one in ITEMS.columns)
    us = Sender("us", relation=dataclasses.replace(ITEMS, columns=columns))
    failure, _ = world.apply(work(eu.one(insert(1)), us.one(insert(1)), ap.one(insert(1))))
    assert isinstance(failure, Failure)
    assert failure.source == "us"
    assert isinstance(failure.error, SchemaError)
    assert ids(world) == [("ap", 1), ("eu", 1)]


def test_several_sources_at_a_time(world: World) -> None:
    eu, us, ap = prepare(world)
    *failures, receipt = world.apply(work(eu.one(insert(1, "x1")), us.one(insert(1)), ap.one(insert(1, "x2"))))
    assert {failure.source for failure in failures} == {"eu", "ap"}
    assert isinstance(receipt, Receipt)
    assert ids(world) == [("us", 1)]


def test_a_large_transaction_of_the_bad_one_goes_and_those_of_others_stay(world: World) -> None:
    eu, us, ap = prepare(world)
    of_eu, of_us = eu.commit_lsn(), us.commit_lsn()
    world.applied(work(eu.part(of_eu, insert(1)), us.part(of_us, insert(1)), open_sources=["eu", "us"]))
    parts = eu.part(of_eu, insert(2)), us.part(of_us, insert(2, "x1"))
    failure, receipt = world.apply(work(*parts, ap.one(insert(1)), open_sources=["eu", "us"]))
    assert isinstance(failure, Failure)
    assert isinstance(receipt, Receipt)
    assert ids(world) == [("ap", 1)]
    world.applied(work(eu.segment([(of_eu, [insert(3)])]), abandoned=["us"]))
    assert ids(world) == [("ap", 1), ("eu", 1), ("eu", 2), ("eu", 3)]
    world.lake.resume(TARGET, failure.error)
    world.applied(work(us.segment([(of_us, [insert(1), insert(2)])])))
    assert [key for sid, key in ids(world) if sid == "us"] == [1, 2]
    assert world.orphans() == []


@pytest.mark.parametrize("table_type", [TableType.CLONE, TableType.HISTORY])
def test_a_row_without_its_earlier_version_has_the_others_begin_again(world: World, table_type: TableType) -> None:
    eu, us, ap = prepare(world, table_type)
    good = eu.one(insert(1)), ap.one(insert(1))
    behind = world.lake.write([work(*good, us.one(update(9, 1, SAME)))]), world.lake.write([work(eu.one(insert(2)))])
    failure, later = world.commit(behind[0])
    assert isinstance(failure, Failure)
    assert isinstance(later, Failure)
    assert (failure.source, type(failure.error)) == ("us", VersionLost)
    assert later.source is None
    assert isinstance(later.error, LakeError), "kuvasz tries again by itself"
    assert world.commit(behind[1]) == []
    world.lake.resume(TARGET, later.error)
    world.applied(work(*map(again, good)))
    assert ids(world) == [("ap", 1), ("eu", 1)]
    assert world.orphans() == []
