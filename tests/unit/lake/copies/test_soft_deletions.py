"""Where deleted rows stay, a repair deletes what the source lacks, and what it has lives again."""

from __future__ import annotations

import dataclasses
import datetime

import pytest

from kuvasz.model import POSTGRES_EPOCH_US, SourcePosition
from tests.support.changes import ITEMS, TARGET, Lines, Sender, delete, feed, insert, target, update, work
from tests.support.local_lake import LocalWorld

AT = SourcePosition(lsn=9000)
US = 50_000
EPOCH = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture(params=[(), ("bucket(2, id)",)], ids=["plain", "in partitions"])
def world(request: pytest.FixtureRequest, local_world: LocalWorld) -> LocalWorld:
    wanted = dataclasses.replace(target(), is_soft=True, partition_by=request.param)
    for source in ("eu", "us"):
        local_world.lake.prepare(wanted, feed(source), ITEMS)
    rows = [insert(key, key) for key in range(1, 8)]
    local_world.applied(work(Sender().one(*rows), Sender("us").one(insert(1, 7))))
    local_world.applied(work(Sender(start=2000).one(delete(1), delete(2))))
    return local_world


def of(world: LocalWorld, source: str = "eu") -> dict[int, tuple]:
    rows = [row for row in world.table(TARGET).to_pylist() if row["sid"] == source]
    found = {row["id"]: (row["n"], row["_deleted_at"] and (row["_deleted_at"] - EPOCH).microseconds) for row in rows}
    assert len(found) == len(rows), "a key has one row"
    return found


def test_a_repair_deletes_and_brings_back(world: LocalWorld) -> None:
    lines = [Lines([(1, 10, "b"), (3, 3, "b"), (4, 44, "b"), (9, 9, "b")])]
    receipt = world.lake.repair(feed(), ITEMS, lines, AT, at_us=US + POSTGRES_EPOCH_US)
    after = {
        1: (10, None), 2: (2, 21_000), 3: (3, None), 4: (44, None),
        5: (5, US), 6: (6, US), 7: (7, US), 9: (9, None),
    }  # fmt: skip
    assert (of(world), receipt.rows, world.orphans()) == (after, 6, [])
    assert of(world, "us") == {1: (7, None)}
    world.applied(work(Sender(start=9000).one(update(5, 50), delete(9), delete(6), insert(2, 22))))
    assert of(world) == after | {5: (50, None), 9: (9, 91_000), 2: (22, None)}


def test_where_the_source_has_what_lives_nothing_is_written(world: LocalWorld) -> None:
    before = world.snapshots()
    world.lake.repair(feed(), ITEMS, [Lines([(key, key, "b") for key in range(3, 8)])], AT, at_us=1)
    assert (world.snapshots(), of(world)[1]) == (before, (1, 21_000))


def test_one_that_has_nothing_deletes_all(world: LocalWorld) -> None:
    world.lake.repair(feed(), ITEMS, [], AT, at_us=US + POSTGRES_EPOCH_US)
    assert {at for _, at in of(world).values()} == {21_000, US}
