"""Commits of groups: all tables of a mini-transaction are seen to change at once, whatever happens meanwhile."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import logging
from collections.abc import Callable, Sequence

import pytest

from kuvasz.errors import ForeignChange, LakeError, OutcomeUnknown
from kuvasz.lake.commit import lanes
from kuvasz.lake.commit.group_commit import GroupCommits, GroupPart
from kuvasz.ports import Failure, Pending, Receipt, TableWork
from tests.support.changes import ITEMS, Sender, delete, feed, insert, target, update, work
from tests.support.local_catalog import LocalCatalog, LocalJoint, LocalStaged
from tests.support.local_lake import LocalWorld
from tests.support.waiting import wait_until

A, B = "shop.a", "shop.b"


@pytest.fixture
def world(local_world: LocalWorld) -> LocalWorld:
    """Two tables of one group, each with one row of the source eu."""
    for name in (A, B):
        local_world.lake.prepare(dataclasses.replace(target(name), group="shop"), feed("eu", name), ITEMS)
        local_world.copy("eu", (1, 100, "b"), name=name)
    return local_world


@pytest.fixture
def send(world: LocalWorld) -> Callable[[int, int], list[TableWork]]:
    """Makes a transaction that sets the row of either table."""
    sender = Sender()

    def make(a: int, b: int) -> list[TableWork]:
        lsn = sender.commit_lsn()
        return [
            work(sender.segment([(lsn, [update(1, n)])]), target=name) for name, n in ((A, a), (B, b))
        ]  # fmt: skip

    return make


def numbers(world: LocalWorld) -> tuple[int, int]:
    return world.of("eu", A)[1][0], world.of("eu", B)[1][0]


def test_both_change_in_one_step(world: LocalWorld, send: Callable[[int, int], list[TableWork]]) -> None:
    seen = []
    world.catalog.before_swap.append(lambda: seen.append(numbers(world)))
    world.catalog.after_swap.append(lambda: seen.append(numbers(world)))
    receipts = world.applied(*send(90, 110))
    assert seen == [(100, 100), (90, 110)]
    assert sorted((one.target, one.rows, one.snapshot_id) for one in receipts) == [
        (name, 1, world.stored(name).now.current) for name in (A, B)
    ]
    assert world.position("eu", A) == world.position("eu", B) == receipts[0].positions["eu"].lsn
    world.applied(*send(80, 120))
    assert numbers(world) == (80, 120)


def test_a_table_that_another_one_touched_is_written_anew_upon_that(
    world: LocalWorld, send: Callable[[int, int], list[TableWork]]
) -> None:
    world.catalog.before_swap.append(lambda: world.stored(B).touch())
    world.applied(*send(90, 110))
    assert numbers(world) == (90, 110)
    assert world.lake.commit_conflicts == 1
    world.applied(*send(80, 120))
    assert numbers(world) == (80, 120)
    assert world.orphans(A) == world.orphans(B) == []


def test_a_table_whose_files_another_one_exchanged_is_resolved_anew(
    world: LocalWorld, send: Callable[[int, int], list[TableWork]]
) -> None:
    world.stored(A).before_commit.append(lambda: world.stored(A).exchange_files())
    world.catalog.before_swap.append(lambda: world.stored(B).exchange_files())
    world.applied(*send(90, 110))
    assert numbers(world) == (90, 110)


@pytest.mark.parametrize("is_there", [False, True])
def test_a_commit_that_nobody_answered_is_looked_up(
    world: LocalWorld, send: Callable[[int, int], list[TableWork]], is_there: bool
) -> None:
    def lose() -> None:
        raise OutcomeUnknown("the connection was lost")

    (world.catalog.after_swap if is_there else world.catalog.before_swap).append(lose)
    before = world.snapshots(A), world.snapshots(B)
    world.commit(world.lake.write(send(90, 110)))
    assert numbers(world) == (90, 110)
    assert (world.snapshots(A), world.snapshots(B)) == (before[0] + 1, before[1] + 1)
    assert world.catalog.joint().dropped == []


def test_a_commit_that_comes_while_it_is_written_anew_is_found(
    world: LocalWorld, send: Callable[[int, int], list[TableWork]]
) -> None:
    """Nobody answered it, and nobody had seen it: what it brings is refused then, for it is there."""
    joint = world.catalog.joint()
    seen: list[LocalStaged] = []
    swap = joint.swap

    def lose(staged: Sequence[LocalStaged]) -> list[str]:
        seen.extend(staged)
        world.stored(A).before_commit.append(come)
        joint.swap = swap  # type: ignore[method-assign]
        raise OutcomeUnknown("the connection was lost")

    def come() -> None:
        assert swap(seen) == []
        raise ForeignChange("what it brings is there already")

    joint.swap = lose  # type: ignore[method-assign]
    before = world.snapshots(A), world.snapshots(B)
    world.commit(world.lake.write(send(90, 110)))
    assert numbers(world) == (90, 110)
    assert (world.snapshots(A), world.snapshots(B)) == (before[0] + 1, before[1] + 1)
    world.applied(*send(80, 120))
    assert numbers(world) == (80, 120)


def test_a_table_that_fails_is_left_out_and_the_others_go_on(
    world: LocalWorld, send: Callable[[int, int], list[TableWork]]
) -> None:
    world.applied(*send(90, 110))
    first = world.stored(A).now.snapshots[0].number
    world.stored(A).roll_back(first)
    outcomes = {one.target: one for one in world.apply(*send(80, 120))}
    assert isinstance(outcomes[A], Failure)
    assert isinstance(outcomes[B], Receipt)
    assert numbers(world) == (100, 120)
    assert [one.target for one in world.apply(*send(70, 130))] == [B], "until it follows again"


def test_a_large_transaction_is_seen_in_both_when_it_has_ended(world: LocalWorld) -> None:
    sender = Sender()
    lsn = sender.commit_lsn()
    before = (world.snapshots(A), world.snapshots(B))
    world.applied(work(sender.part(lsn, update(1, 90)), target=A, open_sources=["eu"]))
    world.applied(
        work(sender.part(lsn, update(1, 110), insert(2, 5)), target=B, open_sources=["eu"]),
        work(target=A, open_sources=["eu"]),
    )
    assert numbers(world) == (100, 100)
    assert (world.snapshots(A), world.snapshots(B)) == before
    seen = []
    world.catalog.before_swap.append(lambda: seen.append(numbers(world)))
    world.applied(work(sender.segment([(lsn, [delete(2)])]), target=B), work(target=A, through={"eu": lsn + 8}))
    assert seen == [(100, 100)]
    assert numbers(world) == (90, 110)
    assert list(world.of("eu", B)) == [1]


def test_a_group_whose_catalog_is_away_steps_aside_as_a_whole(
    world: LocalWorld, send: Callable[[int, int], list[TableWork]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "PATIENCE_S", 0.1)
    world.catalog.is_down = True
    pending = list(world.lake.commit(world.lake.write(send(90, 110))))
    assert sorted(one.target for one in pending) == [A, B]
    assert all(isinstance(one, Pending) for one in pending)
    later = list(world.lake.commit(world.lake.write(send(80, 120))))
    world.catalog.is_down = False
    futures = [one.outcome for one in (*pending, *later) if isinstance(one, Pending)]
    concurrent.futures.wait(futures, timeout=30)
    assert [[one.target for one in future.result()] for future in futures] == [[A], [B]] * 2
    wait_until(lambda: numbers(world) == (80, 120), "both are there")


def test_what_was_written_of_a_commit_that_is_refused_is_removed(
    world: LocalWorld, send: Callable[[int, int], list[TableWork]], monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[str] = []

    def refuse() -> None:
        raise LakeError("refused")

    world.catalog.before_swap.append(refuse)
    joint = world.lake._commit_stage._groups._joint()  # type: ignore[union-attr,misc]
    monkeypatch.setattr(joint, "dropped", dropped)
    world.commit(world.lake.write(send(90, 110)))
    assert sorted(dropped) == [A, B]
    assert numbers(world) == (90, 110)


def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [vars(record) for record in caplog.records if getattr(record, "event", None) == "group_torn"]


def test_a_commit_that_a_catalog_shows_in_part_is_told_of_and_made_good(
    world: LocalWorld,
    send: Callable[[int, int], list[TableWork]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    swap, torn = LocalJoint.swap, []

    def tear(joint: LocalJoint, staged: Sequence[LocalStaged]) -> list[str]:
        if torn:
            return swap(joint, staged)
        torn.append(swap(joint, staged[:1]))
        raise OutcomeUnknown("the connection was lost")

    monkeypatch.setattr(LocalJoint, "swap", tear)
    before = world.snapshots(A), world.snapshots(B)
    with caplog.at_level(logging.ERROR):
        world.applied(*send(90, 110))
    assert numbers(world) == (90, 110)
    assert (world.snapshots(A), world.snapshots(B)) == (before[0] + 1, before[1] + 1)
    assert [(one["group"], one["tables"]) for one in told(caplog)] == [("shop", [B])]


def test_one_that_comes_between_two_looks_is_seen_whole(
    world: LocalWorld,
    send: Callable[[int, int], list[TableWork]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    look, looks = GroupCommits._look_up, []

    def late(groups: GroupCommits, part: GroupPart) -> None:
        looks.append(part.table.name)
        if part.table.name == B or looks.count(A) > 1:
            look(groups, part)

    def lose() -> None:
        raise OutcomeUnknown("the connection was lost")

    monkeypatch.setattr(GroupCommits, "_look_up", late)
    world.catalog.after_swap.append(lose)
    before = world.snapshots(A), world.snapshots(B)
    world.applied(*send(90, 110))
    assert sorted(looks) == [A, A, B]
    assert (world.snapshots(A), world.snapshots(B)) == (before[0] + 1, before[1] + 1)
    assert told(caplog) == []


def test_it_begins_where_no_table_is_alone(local_world: LocalWorld) -> None:
    """A table without a group and a group of one are committed side by side."""
    local_world.prepare("eu")
    local_world.lake.prepare(dataclasses.replace(target(A), group="shop"), feed("eu", A), ITEMS)
    local_world.copy("eu", name=A)
    sender = Sender()
    lsn = sender.commit_lsn()
    local_world.applied(
        work(sender.segment([(lsn, [insert(1, 1)])])), work(sender.segment([(lsn, [insert(1, 2)])]), target=A)
    )
    assert (local_world.of("eu")[1][0], local_world.of("eu", A)[1][0]) == (1, 2)
    assert isinstance(local_world.catalog, LocalCatalog)
