"""The thread that follows what another process stages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kuvasz.errors import StateError, StateTaken
from kuvasz.staging.apart.follower import LogFollower
from kuvasz.staging.staged_room import StagedRoom
from kuvasz.staging.staged_source import StagedSource
from kuvasz.state.ports import LeaseHolder, SourceRecord
from kuvasz.state.staged.memory import MemoryIndex
from kuvasz.state.staged.orders import KnownPast, StreamAnswer, StreamOrder
from kuvasz.state.staged.ports import LogLease, StagedPosition, StagedSlice
from tests.support.memory_store import MemoryStore
from tests.support.waiting import wait_until


class Index(MemoryIndex):
    """An index that fails when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.error: StateError | None = None
        self.has_reader = True

    def positions(self) -> dict[str, StagedPosition]:
        if self.error is not None:
            raise self.error
        return super().positions()

    def reader(self) -> LeaseHolder | None:
        holder = LeaseHolder(node="read-1", does="reads", map_digest="", since="", is_late=False)
        return holder if self.has_reader else None


class World:
    """A follower of two sources, of which one is known."""

    def __init__(self) -> None:
        self.index, self.store = Index(), MemoryStore()
        self.index.begin_anew("eu", 100)
        known = self.index.positions()["eu"]
        self.eu, self.us = (StagedSource(name, of, StagedRoom(1), -1) for name, of in (("eu", known), ("us", None)))
        self.told = 0
        self.follower = LogFollower(self.index, self.store, lambda: [self.eu, self.us], self._tell)

    def _tell(self) -> None:
        self.told += 1

    def stage(self, number: int, lsn: int) -> None:
        self.store.put(f"object {number}", b"x")
        before = self.index.positions()["eu"]
        after = StagedPosition(lsn=lsn, ended=lsn, number=number)
        found = StagedSlice(
            source="eu",
            first=number,
            last=number,
            through=lsn,
            is_open=False,
            object=f"object {number}",
            at=0,
            size=1,
        )  # fmt: skip
        self.index.append(f"object {number}", [found], {"eu": (before, after)})


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.follower.stop(10)


def test_it_sees_how_far_sources_are_staged_and_what_is_answered(world: World) -> None:
    world.follower.start(LogLease("log", 1))
    world.stage(1, 200)
    wait_until(lambda: world.eu.known.lsn == 200 and world.told, "it is seen")
    assert world.us.position is None
    assert world.eu.cursor(200) is None, "memory has nothing of it"
    assert world.eu.dropped == 1
    order = StreamOrder(slot="s", publications=(), system_id="", timeline=1)
    world.index.give("eu", order, KnownPast())
    past = world.index.positions()["eu"].past
    world.index.answer("eu", past, StreamAnswer(is_receiving=True, error=None, standing=SourceRecord()))
    wait_until(lambda: world.follower.answers.keys() == {"eu"}, "it is heard")


def test_what_the_lake_has_goes(world: World) -> None:
    world.stage(1, 200)
    world.follower.start(LogLease("log", 1))
    wait_until(lambda: world.eu.known.lsn == 200, "it is seen")
    world.eu.applied = 200
    wait_until(lambda: not world.store.objects, "it is removed")
    wait_until(lambda: not world.index.objects(), "and known no more")


def test_a_source_of_which_parts_were_given_up_begins_again(world: World) -> None:
    found = StagedSlice(source="eu", first=1, last=1, through=301, is_open=True, object="a", at=0, size=1)
    before = world.index.positions()["eu"]
    world.index.append("a", [found], {"eu": (before, StagedPosition(lsn=100, ended=0, number=1))})
    assert world.follower.look()
    generation = world.eu.generation
    world.index.abandon_open("eu", 0)
    assert world.follower.look()
    assert world.eu.generation == generation + 1
    assert not world.follower.look()


def test_it_goes_on_when_the_coordinator_is_back_and_says_when_nobody_reads(world: World) -> None:
    world.index.error = StateError("no answer")
    world.follower.start(LogLease("log", 1))
    wait_until(lambda: world.follower.error is world.index.error, "it is told")
    world.index.error = None
    wait_until(lambda: world.follower.error is None, "it goes on")
    world.index.has_reader = False
    wait_until(lambda: "no process reads the sources" in str(world.follower.error), "it is told")
    assert world.follower.died is None


def test_sources_that_nobody_holds_are_named_when_that_lasts(world: World) -> None:
    names = [f"s{number}" for number in range(7)]
    for name in names:
        world.index.begin_anew(name, 100)
        world.index.give(name, StreamOrder(slot="s", publications=(), system_id="", timeline=1), KnownPast())
    world.index.hold(world.index.shared().pasts)
    assert world.follower._unread() is None
    world.index.release(names)
    assert world.follower._unread() is None, "it may be taken in a moment"
    assert "no process reads s0, s1, s2, s3, s4 and 2 more: changes stay" in str(world.follower._unread())
    world.index.hold({name: past for name, past in world.index.shared().pasts.items() if name != "s3"})
    assert "no process reads s3: changes stay" in str(world.follower._unread())
    world.index.hold(world.index.shared().pasts)
    assert world.follower._unread() is None


def test_it_ends_where_another_process_applies(world: World) -> None:
    world.index.error = StateTaken("another process replicates by now")
    world.follower.start(LogLease("log", 1))
    wait_until(lambda: world.follower.died is world.index.error, "it has ended")
