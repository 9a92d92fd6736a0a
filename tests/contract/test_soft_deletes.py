"""Rows that a source deletes stay in a clone that is told so, with the time of it, in every lake alike."""

from __future__ import annotations

import dataclasses
import datetime
import random

import pytest

from kuvasz.errors import VersionLost
from kuvasz.model import ReplicaIdentity
from kuvasz.ports import Failure
from tests.support.changes import (
    ITEMS,
    SAME,
    TARGET,
    Sender,
    delete,
    feed,
    insert,
    relation,
    target,
    update,
    work,
)
from tests.support.worlds import World

EPOCH = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)

#: Another version of the relation is another chunk.
OTHER = dataclasses.replace(relation(), identity=ReplicaIdentity.INDEX)


def prepare(world: World, *sources: str) -> None:
    for source in sources:
        world.lake.prepare(dataclasses.replace(target(), is_soft=True), feed(source), ITEMS)


def of(world: World, source: str = "eu") -> dict[int, tuple]:
    """Return the rows of a source: key -> n, body, and the µs since 2000 of its deletion."""
    rows = [row for row in world.table(TARGET).to_pylist() if row["sid"] == source]
    found = {
        row["id"]: (row["n"], row["body"], row["_deleted_at"] and (row["_deleted_at"] - EPOCH).microseconds)
        for row in rows
    }
    assert len(found) == len(rows), "a key has one row"
    return found


def test_a_row_that_is_deleted_stays_until_it_comes_again(world: World) -> None:
    prepare(world, "eu")
    eu = Sender()
    world.applied(work(eu.one(insert(1, 1, "x"), insert(2, 2), insert(3, 3)), eu.one(delete(2))))
    assert of(world) == {1: (1, "x", None), 2: (2, "b", 12_000), 3: (3, "b", None)}
    world.applied(work(eu.one(delete(1), delete(9)), eu.one(update(4, 4, SAME, old=3))))
    assert of(world) == {1: (1, "x", 13_000), 2: (2, "b", 12_000), 3: (3, "b", 14_000), 4: (4, "b", None)}
    world.applied(work(eu.one(insert(1, 7), delete(2))))
    assert of(world) == {1: (7, "b", None), 2: (2, "b", 12_000), 3: (3, "b", 14_000), 4: (4, "b", None)}
    prepare(world, "eu")
    assert of(world)[1] == (7, "b", None)


def test_what_it_was_may_be_in_another_chunk_that_waits_itself(world: World) -> None:
    prepare(world, "eu")
    eu = Sender()
    world.applied(work(eu.one(insert(1, 1, "x"), insert(2, 2, "y"))))
    first = eu.one(update(1, 2, SAME), update(2, 3, SAME))
    others = eu.segment([(eu.commit_lsn(), [update(1, 3, SAME), delete(2), insert(5)])], relation=OTHER)
    world.applied(work(first, others, eu.one(delete(1), delete(5))))
    assert of(world) == {1: (3, "x", 14_000), 2: (3, "y", 13_000), 5: (0, "b", 14_000)}


def test_a_row_does_not_take_a_value_from_one_that_was_deleted(world: World) -> None:
    prepare(world, "eu", "us")
    eu, us = Sender(), Sender("us")
    world.applied(work(eu.one(insert(1, 1, "x")), us.one(insert(1))))
    world.applied(work(eu.one(delete(1))))
    outcomes = world.apply(work(us.one(update(1, 2)), eu.one(update(1, 2, SAME))))
    failure = next(one for one in outcomes if isinstance(one, Failure))
    assert isinstance(failure.error, VersionLost)
    assert failure.error.source == "eu"


def test_a_truncate_deletes_all_rows_of_its_source(world: World) -> None:
    prepare(world, "eu", "us")
    eu, us = Sender(), Sender("us")
    world.applied(work(eu.one(insert(1, 1, "x"), insert(2), insert(3)), us.one(insert(1), insert(2))))
    world.applied(work(eu.one(delete(3))))
    changes = [eu.one(update(1, 2, SAME), insert(4)), eu.truncation(), eu.one(insert(2, 5), insert(6))]
    world.applied(work(*changes, us.one(delete(2))))
    assert of(world) == {
        1: (2, "x", 14_000), 2: (5, "b", None), 3: (0, "b", 12_000), 4: (0, "b", 14_000), 6: (0, "b", None),
    }  # fmt: skip
    assert of(world, "us") == {1: (0, "b", None), 2: (0, "b", 12_000)}
    world.applied(work(eu.truncation()), work(us.one(insert(7))))
    assert {key: at for key, (_, _, at) in of(world).items()} == {
        1: 14_000, 2: 16_000, 3: 12_000, 4: 14_000, 6: 16_000,
    }  # fmt: skip
    assert sorted(of(world, "us")) == [1, 2, 7]


def test_a_large_transaction_in_parts_deletes_at_its_end(world: World) -> None:
    prepare(world, "eu")
    eu = Sender()
    world.applied(work(eu.one(insert(1, 1, "x"), insert(2, 2, "y"))))
    before = of(world)
    lsn = eu.commit_lsn()
    world.applied(work(eu.part(lsn, delete(1), insert(3)), open_sources=["eu"]))
    world.applied(work(eu.part(lsn, update(2, 5, SAME), delete(3)), open_sources=["eu"]))
    assert of(world) == before
    world.applied(work(eu.segment([(lsn, [delete(2), insert(1, 9)])])))
    assert of(world) == {1: (9, "b", None), 2: (5, "y", 12_000), 3: (0, "b", 12_000)}


def test_one_that_truncates_deletes_what_was_there_before_it(world: World) -> None:
    prepare(world, "eu", "us")
    eu, us = Sender(), Sender("us")
    world.applied(work(eu.one(insert(1, 1, "x"), insert(2, 2, "y")), us.one(insert(1))))
    lsn = eu.commit_lsn()
    world.applied(work(eu.part(lsn, update(1, 5, SAME)), open_sources=["eu"]))
    world.applied(work(eu.truncation(lsn, is_open=True), eu.part(lsn, insert(2, 7)), open_sources=["eu"]))
    world.applied(work(eu.segment([(lsn, [insert(4), delete(1)])])))
    assert of(world) == {1: (1, "x", 12_000), 2: (7, "b", None), 4: (0, "b", None)}
    assert of(world, "us") == {1: (0, "b", None)}


@pytest.mark.parametrize("is_together", [False, True])
def test_a_truncate_leaves_the_large_transaction_of_another_source_what_it_has(
    world: World, *, is_together: bool
) -> None:
    """It writes the files anew that both have rows in, and the transaction has rows of these to let go of."""
    prepare(world, "eu", "us")
    eu, us = Sender(), Sender("us")
    world.applied(work(eu.one(insert(1), insert(2)), us.one(insert(1, 1, "x"), insert(2, 2, "y"), insert(3, 3, "z"))))
    lsn = us.commit_lsn()
    world.applied(work(us.part(lsn, update(1, 5, SAME), delete(2), insert(4)), open_sources=["us"]))
    parts = (
        [us.part(lsn, update(3, 7, SAME), update(1, 6, SAME))],
        [us.segment([(lsn, [update(5, 3, SAME, old=4), insert(9)])])],
    )
    if is_together:
        world.applied(work(*parts[0], eu.truncation(), *parts[1]))
    else:
        world.applied(work(eu.truncation(), open_sources=["us"]))
        world.applied(work(*parts[0], open_sources=["us"]))
        world.applied(work(*parts[1]))
    assert of(world) == {1: (0, "b", 12_000), 2: (0, "b", 12_000)}
    assert of(world, "us") == {
        1: (6, "x", None), 2: (2, "y", 12_000), 3: (7, "z", None), 4: (0, "b", 12_000), 5: (3, "b", None),
        9: (0, "b", None),
    }  # fmt: skip


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_whatever_happens_the_lake_has_what_lives_and_what_lived(world: World, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 (no secret)
    prepare(world, "eu", "us")
    senders = {source: Sender(source) for source in ("eu", "us")}
    wanted: dict[str, dict[int, tuple]] = {source: {} for source in senders}
    for _ in range(12):
        changes = []
        for _ in range(chance.randint(1, 5)):
            source = chance.choice(list(senders))
            sender, rows = senders[source], wanted[source]
            if chance.random() < 0.1:
                changes.append(sender.truncation())
                at = (sender.commit_lsn() - 100) * 10
                rows |= {key: (n, body, at) for key, (n, body, gone) in rows.items() if gone is None}
                continue
            lsn = sender.commit_lsn()
            messages = [_change(chance, rows, lsn * 10) for _ in range(chance.randint(1, 6))]
            changes.append(sender.segment([(lsn, messages)], relation=chance.choice([ITEMS, OTHER])))
        world.applied(work(*changes))
        for source, rows in wanted.items():
            assert of(world, source) == rows


def _change(chance: random.Random, rows: dict[int, tuple], at: int) -> bytes:
    """Make a change of a source that has these rows, and change them."""
    key, n, body = chance.randint(1, 5), chance.randint(0, 99), chance.choice("xyz")
    lives = [one for one, (_, _, gone) in rows.items() if gone is None]
    if key not in lives:
        rows[key] = (n, body, None)
        return insert(key, n, body)
    before = rows[key]
    kind, is_same = chance.choice("UDM"), chance.random() < 0.5
    if kind == "D":
        rows[key] = (*before[:2], at)
        return delete(key)
    new = chance.choice([one for one in range(1, 99) if one not in lives]) if kind == "M" else key
    if new != key:
        rows[key] = (*before[:2], at)
    rows[new] = (n, before[1] if is_same else body, None)
    return update(new, n, SAME if is_same else body, old=key if new != key else None)
