"""A source's stream that one process stages and another one hears, whoever of the two fails and whenever.

As `test_staged_stream`: nothing is lost, nothing comes twice.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from kuvasz.config.model import ClusterRole
from kuvasz.errors import SlotLost, SourceError, SourceRefused
from kuvasz.model import Applied
from kuvasz.source.reading.ends import StreamStart, Upstream
from kuvasz.source.reading.following import Following
from kuvasz.source.reading.options import ReaderOptions
from kuvasz.source.reading.ordered import OrderedReading
from kuvasz.state.memory import MemoryRecord
from kuvasz.state.ports import SourceRecord
from kuvasz.state.staged.memory import MemoryGroupIndex, MemoryIndex
from kuvasz.state.staged.orders import GivenOrder, KnownPast, StreamAnswer, StreamOrder
from kuvasz.state.staged.ports import StagedPosition
from tests.support.examples import examples
from tests.support.roles_machine import RolesMachine
from tests.support.staged_world import Process


@pytest.fixture
def machine() -> Iterator[RolesMachine]:
    made = RolesMachine()
    yield made
    made.teardown()


def test_what_was_received_for_an_order_of_before_is_not_staged(machine: RolesMachine) -> None:
    machine.a_transaction_commits(name="eu", oids=[1], size=5)
    for name in ("eu", "us"):
        machine.a_transaction_commits(name=name, oids=[1], size=5)
        machine.connect(name=name)
        machine.receive(name=name, messages=60, keepalive=False)
    machine.another_order_is_given(name="eu")
    machine.stage(failures=[], lost=0)
    assert (machine.objects, machine.index.positions()["eu"].lsn) == ({}, 100)
    machine.stage(failures=[], lost=0)
    assert machine.index.positions()["us"].lsn > 100, "others are staged without it"
    machine.connect(name="eu")
    assert machine.ends["eu"]._stream is None, "nor is it connected before the order is read"
    machine.the_orders_are_read()


def test_what_a_coordinator_that_was_set_back_has_under_numbers_that_were_heard_is_not_left_out(
    machine: RolesMachine,
) -> None:
    """Its standby took over a moment behind, and the one that read is gone, before the source was told anything."""
    index = machine.index
    behind = dict(index._positions), list(index._slices), dict(index._objects)
    machine.connect(name="eu")
    for _ in range(3):
        machine.a_transaction_commits(name="eu", oids=[1], size=5)
        machine.receive(name="eu", messages=60, keepalive=False)
        machine.stage(failures=[], lost=0)
        machine.follow()
        machine.hear(name="eu", steps=6)
    assert machine.index.positions()["eu"].number == 3
    index._positions, index._slices, index._objects = behind
    machine.the_reader_dies(failures=[], lost=0)
    machine.a_transaction_commits(name="eu", oids=[1], size=5)
    machine.connect(name="eu")
    machine.receive(name="eu", messages=60, keepalive=False)
    machine.stage(failures=[], lost=0)
    assert machine.index.positions()["eu"].number == 1
    machine.follow()
    for _ in range(3):
        machine.hear(name="eu", steps=6)
    heard = machine.hearers["eu"].heard
    assert heard is not None
    assert heard.whole == machine.servers["eu"].wal


def test_whoever_heard_parts_that_are_given_up_begins_again(machine: RolesMachine) -> None:
    machine.a_transaction_commits(name="eu", oids=[1] * 30, size=50)
    machine.connect(name="eu")
    machine.receive(name="eu", messages=20, keepalive=False)
    machine.stage(failures=[], lost=0)
    machine.follow()
    machine.hear(name="eu", steps=9)
    hearer = machine.hearers["eu"]
    assert hearer.hearing is not None
    assert hearer.hearing._is_open
    machine.connect(name="eu")
    machine.receive(name="eu", messages=200, keepalive=False)
    machine.stage(failures=[], lost=0)
    machine.follow()
    machine.hear(name="eu", steps=1)
    assert hearer.hearing is None, "it begins again"


class World:
    """A following, and the other side of it."""

    def __init__(self) -> None:
        self.index, self.records = MemoryIndex(), dict[str, SourceRecord]()
        self.process = Process(self.index, {}, ClusterRole.APPLY)
        self.log, self.follower = self.process.log, self.process.log.follower
        self.log.begin_anew("eu", 100)
        self.record = MemoryRecord(self.records, "eu")
        self.record.update(SourceRecord(system_id="7", timeline=3))
        self.applied = [Applied(90, 5, 6)]

    def following(self, *publications: str, is_own_alone: bool = False) -> Following:
        upstream = Upstream(
            source="eu", conninfo=str, slot="s", publications=publications, system_id="7", is_own_alone=is_own_alone
        )
        start = StreamStart(record=self.record, applied_lsn=lambda: 95, applied=lambda: self.applied)
        assert self.follower is not None
        return Following(upstream, self.log, self.follower, start)

    def answer(self, answer: StreamAnswer) -> None:
        assert self.follower is not None
        self.index.answer("eu", self.index.orders()["eu"].past, answer)
        self.follower._listen()
        self.log._tell()


@pytest.fixture
def world() -> World:
    return World()


async def _soon() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_an_order_stands_until_it_is_another_one(world: World) -> None:
    async def give() -> None:
        await world.following("p").arrange()
        first = world.index.orders()["eu"]
        assert first.order == StreamOrder(slot="s", publications=("p",), system_id="7", timeline=3)
        assert first.known == KnownPast(
            standing=world.record.standing, applied_lsn=95, applied=tuple(world.applied), copied=()
        )
        world.applied = [Applied(92, 6, 7)]
        again = world.following("p")
        await again.arrange()
        assert world.index.orders()["eu"].past == first.past, "who reads goes on"
        assert world.index.orders()["eu"].known.applied == (Applied(92, 6, 7),)
        world.applied = [Applied(94, 7, 8)]
        again.go_on()
        assert again._telling is not None
        await again._telling
        assert world.index.orders()["eu"].known.applied == (Applied(94, 7, 8),)
        await world.following("p", "q").arrange()
        assert world.index.orders()["eu"].past > first.past
        assert world.log.source("eu").known.past == world.index.orders()["eu"].past

    asyncio.run(give())


def test_who_tells_late_what_the_lake_has_brings_no_order_back(world: World) -> None:
    async def tell() -> None:
        before = world.following("p")
        await before.arrange()
        await world.following("p", "inserts").arrange()
        given = world.index.orders()["eu"]
        await before._tell()
        assert world.index.orders()["eu"] == given

    asyncio.run(tell())


def _set_back(world: World, behind: dict[str, StagedPosition], given: dict[str, GivenOrder]) -> None:
    """Have a standby of the coordinator take over that was a moment behind."""
    world.index._positions, world.index._given = behind, given
    assert world.follower is not None
    if world.follower.look():
        world.log._tell()


@pytest.mark.parametrize(
    ("before", "after", "kind", "why"),
    [
        (("p",), ("p", "q"), SlotLost, "without publication q"),
        (("p", "q"), ("p",), SourceRefused, "the coordinator was set back"),
    ],
)
def test_an_order_that_a_coordinator_has_lost_is_not_believed_in(
    world: World, before: tuple[str, ...], after: tuple[str, ...], kind: type[SourceError], why: str
) -> None:
    """What is read is what was ordered before, and whoever waits for changes of a new table would wait for ever."""

    async def hear() -> None:
        await world.following(*before).arrange()
        behind = dict(world.index._positions), dict(world.index._given)
        again = world.following(*after)
        await again.arrange()
        again.begin()
        world.log._tell()
        await _soon()
        assert again.error is None
        _set_back(world, *behind)
        async with asyncio.timeout(30):
            while again.error is None:  # noqa: ASYNC110 (told by nobody)
                await asyncio.sleep(0.01)
        assert type(again.error) is kind
        assert why in again.error.message
        assert not again.is_receiving.is_set()
        await again.end()
        again = world.following(*after)
        await again.arrange()
        assert world.index.orders()["eu"].order.publications == after

    asyncio.run(hear())


def test_a_source_that_changes_hands_among_those_that_read_is_heard_further(world: World) -> None:
    async def hear() -> None:
        following = world.following("p")
        await following.arrange()
        following.begin()
        for _ in range(2):
            world.index.hold(world.index.shared().pasts)
            world.index.release(["eu"])
            assert world.follower is not None
            assert world.follower.look(), "whoever hears it looks whether its order stands"
            world.log._tell()
            await _soon()
            if following._telling is not None:
                await following._telling
        assert following.error is None
        assert following.is_receiving.is_set()
        # What is known of the server by now is none of the order's.
        world.record.update(SourceRecord(system_id="7", timeline=4))
        following.go_on()
        await following._telling
        assert following.error is None
        world.log.withdraw("eu")  # as whoever is about to end it does
        world.follower.look()
        world.log._tell()
        await _soon()
        assert following._telling is not None
        await following._telling
        assert following.error is None
        await following.end()

    asyncio.run(hear())


def test_who_reads_leaves_out_what_came_to_the_source_by_replication(world: World) -> None:
    async def give() -> None:
        for is_own_alone, options in ((False, {}), (True, {"origin": "none"})):
            await world.following("p", is_own_alone=is_own_alone).arrange()
            given = world.index.orders()["eu"]
            written = dataclasses.replace(given, order=StreamOrder.of_json(given.order.as_json()))
            reader = Process(world.index, {}, ClusterRole.READ)
            made = OrderedReading("eu", lambda: "postgresql://db/eu", written, reader.log, ReaderOptions())
            assert made._staging._upstream.options == options

    asyncio.run(give())


def test_who_reads_goes_by_the_url_as_it_is_at_each_connection(world: World) -> None:
    async def give() -> None:
        await world.following("p").arrange()
        given, reader = world.index.orders()["eu"], Process(world.index, {}, ClusterRole.READ)
        urls = (f"postgresql://kuvasz:{password}@127.0.0.1:1/eu" for password in ("old", "new"))
        made = OrderedReading("eu", lambda: next(urls), given, reader.log, ReaderOptions())
        for password in ("old", "new"):
            assert f"password={password}" in made._staging._upstream.conninfo()

    asyncio.run(give())


def test_what_is_staged_is_heard_before_it_is_said_why_no_more_comes(world: World) -> None:
    lost = StreamAnswer(is_receiving=False, error=SlotLost("gone", hint="copy"), standing=SourceRecord())

    async def hear() -> None:
        following = world.following("p")
        await following.arrange()
        following.begin()
        assert (following.error, following.is_receiving.is_set()) == (None, True), "nobody has said anything"
        source = world.log.source("eu")
        source.follow(dataclasses.replace(source.known, lsn=200, ended=200, number=1))
        world.answer(lost)
        await _soon()
        assert following.error is None
        assert isinstance(following.source_error, SlotLost), "people see it at once"
        source.applied = 200
        world.log._tell()
        await _soon()
        assert isinstance(following.error, SlotLost)
        assert str(following.error) == "gone\nhint: copy"
        assert not following.is_receiving.is_set()
        await following.end()

    asyncio.run(hear())


def test_an_answer_to_an_order_of_before_says_nothing(world: World) -> None:
    async def hear() -> None:
        following = world.following("p")
        await following.arrange()
        world.answer(StreamAnswer(is_receiving=False, error=SourceError("away"), standing=SourceRecord()))
        again = world.following("p", "q")
        await again.arrange()
        again.begin()
        assert again.error is None
        await again.end()

    asyncio.run(hear())


def test_what_was_found_out_about_the_server_is_kept_here(world: World) -> None:
    found = SourceRecord(system_id="7", timeline=3, started_us=12, proved_lsn=80, confirmed_lsn=99)

    async def hear() -> None:
        world.record.update(SourceRecord(system_id="7", timeline=3, history=4, confirmed_lsn=70))
        following = world.following("p")
        await following.arrange()
        following.begin()
        world.answer(StreamAnswer(is_receiving=True, error=None, standing=found))
        await _soon()
        await following.end()

    asyncio.run(hear())
    expected = SourceRecord(system_id="7", timeline=3, history=4, confirmed_lsn=70, started_us=12, proved_lsn=80)
    assert world.record.standing == expected


COMMON: dict[str, Any] = {
    "deadline": None, "database": None, "print_blob": True, "report_multiple_bugs": False,
    "suppress_health_check": list(HealthCheck),
}  # fmt: skip


def test_nothing_is_lost_or_doubled_whatever_fails() -> None:
    run_state_machine_as_test(
        RolesMachine, settings=settings(max_examples=examples(60), stateful_step_count=40, derandomize=True, **COMMON)
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_nothing_is_lost_or_doubled_in_thousands_of_orders() -> None:
    run_state_machine_as_test(RolesMachine, settings=settings(max_examples=3000, stateful_step_count=80, **COMMON))


class GroupWorld(World):
    """A following in a group of the log; the order is another process's."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.index = self.index, MemoryGroupIndex(self.index, "blue")
        self.process = Process(self.index, {}, ClusterRole.APPLY, "blue")
        self.log, self.follower = self.process.log, self.process.log.follower
        self.log.begin_anew("eu", 100)
        self.record.update(SourceRecord(system_id="7", timeline=3, started_us=5))


def test_a_group_hears_what_is_read_as_it_needs_that_and_orders_nothing() -> None:
    world = GroupWorld()

    async def hear() -> None:
        with pytest.raises(SourceError, match="none of the processes without a group has it read"):
            await world.following("p").arrange()
        world.first.give("eu", StreamOrder(slot="s", publications=("p",), system_id="7", timeline=1), KnownPast())
        world.log.rejoin("eu")
        following = world.following("p")
        await following.arrange()
        following.begin()
        assert following.is_receiving.is_set()
        standing = world.record.standing
        for found in (standing, dataclasses.replace(standing, started_us=6)):
            answer = StreamAnswer(is_receiving=True, error=None, standing=found, past=0)
            world.first.answer("eu", world.first.orders()["eu"].past, answer)
            assert world.follower is not None
            world.follower._listen()
            world.log._tell()
            await _soon()
        assert world.record.standing == standing, "it compares another server itself"
        assert isinstance(following.error, SourceRefused)
        assert "started anew" in following.error.message
        world.log._tell()
        await _soon()
        assert following.error is not None, "nothing more is heard of it before that"
        await following.end()
        following = world.following("p")
        world.follower.answers = {}
        await following.arrange()
        following.begin()
        world.first.withdraw("eu")
        world.follower.look()
        world.log._tell()
        await _soon()
        assert isinstance(following.error, SourceRefused)
        assert "another one by now" in following.error.message
        assert not following.is_receiving.is_set()
        await following.end()

    asyncio.run(hear())
