"""A source's stream that one process stages and another one hears, whoever of the two fails and whenever.

As `test_staged_stream`: nothing is lost, nothing comes twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from kuvasz.config.model import ClusterRole
from kuvasz.errors import SlotLost, SourceError, StateTaken
from kuvasz.model import Applied
from kuvasz.source.reading.ends import StreamStart, Upstream
from kuvasz.source.reading.following import Following
from kuvasz.source.reading.options import ReaderOptions
from kuvasz.source.reading.ordered import OrderedReading
from kuvasz.state.memory import MemoryRecord
from kuvasz.state.ports import SourceRecord
from kuvasz.state.staged.memory import MemoryIndex
from kuvasz.state.staged.orders import KnownPast, StreamAnswer, StreamOrder
from tests.support.staged_world import Process, Received, Server, staged, without_threads

NAMES = st.sampled_from(["eu", "us"])


class RolesMachine(RuleBasedStateMachine):
    """Two sources, one log, a process that reads and one that applies, and others after them."""

    def __init__(self) -> None:
        super().__init__()
        self._exits = contextlib.ExitStack()
        self._exits.enter_context(without_threads())
        self._runner = self._exits.enter_context(asyncio.Runner())
        self.index, self.objects = MemoryIndex(), dict[str, bytes]()
        self.servers = {name: Server() for name in ("eu", "us")}
        self.lakes = dict.fromkeys(self.servers, 100)  #: what the lake has of each source
        self.orders = dict.fromkeys(self.servers, 0)
        self.applier_begins()
        self.reader_begins()

    def applier_begins(self) -> None:
        self.applier = Process(self.index, self.objects, ClusterRole.APPLY)
        self.hearers = {name: Received(self.applier, name, server) for name, server in self.servers.items()}
        for name, hearer in self.hearers.items():
            hearer.is_receiving.set()
            self.give(name)

    def give(self, name: str) -> None:
        order = StreamOrder(slot="s", publications=(f"p{self.orders[name]}",), system_id="", timeline=1)
        self.applier.log.give(name, order, KnownPast())
        self.applier.log.look(name)

    def reader_begins(self) -> None:
        self.reader = Process(self.index, self.objects, ClusterRole.READ)
        self.ends = {name: Received(self.reader, name, server) for name, server in self.servers.items()}
        self.pasts: dict[str, int] = {}
        self.the_orders_are_read()

    @rule()
    def the_orders_are_read(self) -> None:
        given = {name: order.past for name, order in self.index.orders().items()}
        for name, past in self.pasts.items():
            if given.get(name) != past:
                self.reader.log.source(name).leave()
                self.ends[name]._stream = None
        new = {name: past for name, past in given.items() if self.pasts.get(name) != past}
        for name in self.reader.log.take_over(new):
            self.pasts[name] = given[name]

    @rule(name=NAMES, oids=st.lists(st.sampled_from([1, 2]), min_size=1, max_size=30), size=st.integers(1, 60))
    def a_transaction_commits(self, name: str, oids: list[int], size: int) -> None:
        self.servers[name].commit(oids, size)

    @rule(name=NAMES, oid=st.sampled_from([1, 2]))
    def a_table_is_altered(self, name: str, oid: int) -> None:
        self.servers[name].versions[oid] += 1

    @rule(name=NAMES)
    def connect(self, name: str) -> None:
        if name in self.pasts:
            self.ends[name].connect()

    @rule(name=NAMES, messages=st.integers(1, 60), keepalive=st.booleans())
    def receive(self, name: str, messages: int, keepalive: bool) -> None:
        self.ends[name].receive(messages, keepalive=keepalive)

    @rule(name=NAMES)
    def confirm(self, name: str) -> None:
        self.ends[name].confirm()

    @rule(failures=st.lists(st.sampled_from(["nothing", "all"]), max_size=2), lost=st.integers(0, 2))
    def stage(self, failures: list[str], lost: int) -> None:
        self.reader.store.failures, self.reader.index.lost_answers = list(failures), lost
        self.reader.stage()
        self.reader.index.lost_answers = 0

    @rule()
    def follow(self) -> None:
        assert self.applier.log.follower is not None
        self.applier.log.follower.look()

    @rule(name=NAMES, steps=st.integers(1, 6))
    def hear(self, name: str, steps: int) -> None:
        hearer = self.hearers[name]
        self._runner.run(hearer.hear(steps))
        if hearer.heard is not None:
            expected = [one for one in self.servers[name].wal if one.end > hearer.heard.from_lsn]
            assert hearer.heard.whole == expected[: len(hearer.heard.whole)]
            assert all(one.end > hearer.heard.lsn for one in expected[len(hearer.heard.whole) :])

    @rule(name=NAMES)
    def the_hearer_goes_back(self, name: str) -> None:
        self.hearers[name].fall_silent()

    @rule(name=NAMES)
    def the_lake_gets_what_was_heard(self, name: str) -> None:
        heard = self.hearers[name].heard
        if heard is not None:
            self.lakes[name] = max(self.lakes[name], heard.lsn)
            self.hearers[name].tell(heard.lsn)

    @rule(lost=st.integers(0, 1), keeps=st.integers(0, 1))
    def shorten(self, lost: int, keeps: int) -> None:
        self.applier.index.lost_answers, self.applier.store.keeps = lost, keeps
        self.applier.shorten()
        self.applier.index.lost_answers = self.applier.store.keeps = 0

    @rule(name=NAMES)
    def another_order_is_given(self, name: str) -> None:
        self.orders[name] += 1
        self.give(name)

    @rule(name=NAMES)
    def the_slot_is_made_anew(self, name: str) -> None:
        """All is copied: what was before counts no more."""
        server = self.servers[name]
        self.applier.log.withdraw(name)
        self.ends[name]._stream = None  # the walsender is ended
        server.confirmed = self.lakes[name] = server.end
        self.applier.log.begin_anew(name, server.end)
        self.give(name)

    @rule(failures=st.lists(st.sampled_from(["nothing", "all"]), max_size=2), lost=st.integers(0, 1))
    def the_reader_dies(self, failures: list[str], lost: int) -> None:
        """Or sleeps, and wakes when another one reads: it changes nothing any more."""
        before = self.reader
        for end in self.ends.values():
            end._stream = None
        before.store.failures, before.index.lost_answers = list(failures), lost
        self.reader_begins()
        before.stop.set()
        before.stage()

    @rule()
    def the_applier_dies(self) -> None:
        before = self.applier
        for hearer in self.hearers.values():
            hearer.fall_silent()
        self.applier_begins()
        with pytest.raises(StateTaken):
            before.log.withdraw("eu")

    @invariant()
    def what_is_confirmed_is_staged_or_in_the_lake(self) -> None:
        for name, server in self.servers.items():
            found = staged(self.index, self.objects, name)
            confirmed = [one.end for one in server.wal if self.lakes[name] < one.end <= server.confirmed]
            assert found.issuperset(confirmed)

    def teardown(self) -> None:
        """Let all of it come to its end: all of it was heard, and nothing is left."""
        try:
            self._end()
        finally:
            for hearer in self.hearers.values():
                hearer.fall_silent()
            self._exits.close()

    def _end(self) -> None:
        self.the_orders_are_read()
        for name, end in self.ends.items():
            self.servers[name].commit([1, 2], 10)
            self.connect(name)
            while end.receive(50):
                pass
            end.receive(1, keepalive=True)
        while self.reader.log.room.sources():
            self.reader.stage()
        self.follow()
        for name, hearer in self.hearers.items():
            server, quiet = self.servers[name], 0
            while quiet < 3:
                came = self._runner.run(hearer.hear(5))
                quiet = 0 if came or hearer.heard is None else quiet + 1
            assert hearer.heard is not None
            assert hearer.heard.whole == [one for one in server.wal if one.end > hearer.heard.from_lsn]
            assert hearer.heard.lsn == self.ends[name].source.known.lsn, "keepalives count as well"
            self.lakes[name] = hearer.heard.lsn
            hearer.tell(hearer.heard.lsn)
        for _ in range(2):
            self.applier.shorten()
        assert not self.index.objects()
        self.reader_begins()
        assert not self.objects, "nor are there any of a process that lost its lease"


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
            source="eu", conninfo="", slot="s", publications=publications, system_id="7", is_own_alone=is_own_alone
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
        urls = (f"postgresql://kuvasz:{password}@127.0.0.1:1/eu" for password in ("made", "old", "new"))
        made = OrderedReading("eu", lambda: next(urls), given, reader.log, ReaderOptions())
        for password in ("old", "new"):
            assert f"password={password}" in made._staging._ready()

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
        RolesMachine, settings=settings(max_examples=60, stateful_step_count=40, derandomize=True, **COMMON)
    )


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_in_thousands_of_orders() -> None:
    run_state_machine_as_test(RolesMachine, settings=settings(max_examples=3000, stateful_step_count=80, **COMMON))
