"""A process that stages and one that hears, in memory: steps that a test takes in any order (`staged_world`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kuvasz.config.model import ClusterRole
from kuvasz.errors import StateTaken
from kuvasz.state.staged.memory import MemoryIndex
from kuvasz.state.staged.orders import KnownPast, StreamOrder
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
        self.hear_all(self.stage_all(self.ends))
        assert not self.index.objects()
        self.reader_begins()
        assert not self.objects, "nor are there any of a process that lost its lease"

    def stage_all(self, names: Collection[str]) -> dict[str, int]:
        """Have all of some sources be received and staged; return how far they are."""
        for name in names:
            self.servers[name].commit([1, 2], 10)
            self.connect(name)
            while self.ends[name].receive(50):
                pass
            self.ends[name].receive(1, keepalive=True)
        while self.reader.log.room.sources():
            self.reader.stage()
        return {name: self.ends[name].source.known.lsn for name in names}

    def hear_all(self, staged_lsns: Mapping[str, int]) -> None:
        """Have all that is staged be heard and applied."""
        self.follow()
        for name, hearer in self.hearers.items():
            server, quiet = self.servers[name], 0
            while quiet < 3:
                came = self._runner.run(hearer.hear(5))
                quiet = 0 if came or hearer.heard is None else quiet + 1
            assert hearer.heard is not None
            assert hearer.heard.whole == [one for one in server.wal if one.end > hearer.heard.from_lsn]
            assert hearer.heard.lsn == staged_lsns[name], "keepalives count as well"
            self.lakes[name] = hearer.heard.lsn
            hearer.tell(hearer.heard.lsn)
        for _ in range(2):
            self.applier.shorten()


__all__ = ["NAMES", "RolesMachine"]
