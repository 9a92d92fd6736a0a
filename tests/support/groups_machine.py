"""Two lakes of one log, in memory: whatever happens to one of them, or to the sources, the other one has all.

A lake is told a source's stream from where it is. A copy has everything up to its own place.
"""

from __future__ import annotations

import asyncio
import contextlib

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from kuvasz.config.model import ClusterRole
from kuvasz.errors import SourceError, StateError
from kuvasz.state.staged.memory import MemoryGroupIndex
from kuvasz.state.staged.orders import KnownPast, StreamOrder
from tests.support.roles_machine import NAMES, RolesMachine
from tests.support.staged_world import Process, Received, Server


class Lake(Received):
    """One source in the lake of a group: what it has of it."""

    def __init__(self, process: Process, name: str, server: Server) -> None:
        self.process, self.log, self.name, self.server = process, process.log, name, server
        self.source = self.log.source(name)
        self.is_receiving, self.error = asyncio.Event(), None
        self._stream, self._cutter = None, None
        self.hearing = self.heard = None
        self.copied_at = -1  #: everything before it is in the copy; -1: nothing is copied
        self.at = 0  #: everything before it is in the lake
        self.has: set[int] = set()  #: end LSNs of the transactions behind the copy

    def copy(self) -> None:
        self.log.begin_anew(self.name, 0)
        self.copied_at = self.at = self.server.end
        self.has = set()

    def look(self, order: StreamOrder) -> None:
        """Look at the source as at a start, and hear it if that is in order."""
        self.fall_silent()
        self.is_receiving.clear()
        with contextlib.suppress(StateError, SourceError):
            if self.log.rejoin(self.name) is None or self.copied_at < 0:
                self.copy()
            self.at = min(self.at, max(self.copied_at, self.source.applied))
            self.log.give(self.name, order, KnownPast())
            self.log.look(self.name)
            if not self.source.is_left:
                self.is_receiving.set()

    def get(self) -> None:
        """Have the lake get what was heard."""
        if self.heard is not None:
            self.has |= {one.end for one in self.heard.whole if one.end > self.copied_at}
            self.at = max(self.at, self.heard.lsn)
            self.tell(self.heard.lsn)

    @property
    def missing(self) -> set[int]:
        """What it lacks of what it says to have, and what it has that never was.

        Before it has looked at a server that took over, it says so of the one before.
        """
        if not self.is_receiving.is_set() or self.log.index.positions().get(self.name) is None:
            return set()
        there = {one.end for one in self.server.wal if one.end > self.copied_at}
        return (self.has - there) | {end for end in there - self.has if end <= self.at}


class GroupsMachine(RolesMachine):
    """What `RolesMachine` has, and a group of the log with a lake of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.copied = dict(self.lakes)  #: where the first lake's copies are
        self.blue_index = MemoryGroupIndex(self.index, "blue")
        self.blue_lakes: dict[str, Lake] = {}
        self.blue_begins()

    def blue_begins(self) -> None:
        """The lake is what it was; all else is new."""
        self.blue = Process(self.blue_index, self.objects, ClusterRole.APPLY, "blue")
        for name, server in self.servers.items():
            made, before = Lake(self.blue, name, server), self.blue_lakes.get(name)
            if before is not None:
                before.fall_silent()
                made.copied_at, made.at, made.has = before.copied_at, before.at, before.has
            self.blue_lakes[name] = made
            self.blue_looks(name)

    @rule(name=NAMES)
    def blue_looks(self, name: str) -> None:
        order = StreamOrder(slot="s", publications=(f"p{self.orders[name]}",), system_id="", timeline=1)
        self.blue_lakes[name].look(order)

    @rule()
    def blue_follows(self) -> None:
        assert self.blue.log.follower is not None
        self.blue.log.follower.look()

    @rule(name=NAMES, steps=st.integers(1, 6))
    def blue_hears(self, name: str, steps: int) -> None:
        lake = self.blue_lakes[name]
        if lake.source.is_left:  # whoever hears it is told so
            lake.fall_silent()
            lake.is_receiving.clear()
        self._runner.run(lake.hear(steps))

    @rule(name=NAMES)
    def blue_gets_what_was_heard(self, name: str) -> None:
        if not self.blue_lakes[name].source.is_left:
            self.blue_lakes[name].get()

    @rule(lost=st.integers(0, 1), keeps=st.integers(0, 1))
    def blue_shortens(self, lost: int, keeps: int) -> None:
        self.blue.index.lost_answers, self.blue.store.keeps = lost, keeps
        self.blue.shorten()
        self.blue.index.lost_answers = self.blue.store.keeps = 0

    @rule()
    def blue_dies(self) -> None:
        self.blue_begins()

    @rule()
    def blue_is_retired_and_comes_back(self) -> None:
        self.index.retire_group("blue")
        self.blue_begins()

    @rule(name=NAMES)
    def the_slot_is_made_anew(self, name: str) -> None:
        super().the_slot_is_made_anew(name)
        self.copied[name] = self.lakes[name]

    @rule(name=NAMES, is_quiet=st.booleans(), looks=st.booleans())
    def another_server_takes_over(self, name: str, is_quiet: bool, looks: bool) -> None:
        """It lacks nothing of what is in a lake, or staged."""
        server = self.servers[name]
        if is_quiet:
            self.a_quiet_server_says_how_far_it_is(name)
            self.blue_has_all(name)
        ended = self.index.positions()[name].ended
        self.ends[name]._stream = None
        self.hearers[name].fall_silent()
        server.fail_over(max(ended, self.copied[name], self.blue_lakes[name].copied_at))
        self.applier.log.withdraw(name)
        self.lakes[name] = self.applier.log.set_back(name, server.confirmed)
        self.give(name)
        if looks:
            self.blue_shortens(0, 0)
            self.blue_follows()
            self.blue_looks(name)
            self.all_is_staged_that_comes(name)

    @invariant()
    def the_lake_of_the_group_has_all(self) -> None:
        for lake in self.blue_lakes.values():
            assert not lake.missing

    @rule(name=NAMES)
    def all_is_staged_that_comes(self, name: str) -> None:
        self.the_orders_are_read()
        if name in self.pasts:
            self.stage_all([name])

    @rule(name=NAMES)
    def a_quiet_server_says_how_far_it_is(self, name: str) -> None:
        """None of that is in its WAL when another one takes over."""
        self.servers[name].end += 60
        self.ends[name].receive(1, keepalive=True)
        self.reader.stage()

    @rule(name=NAMES)
    def the_first_lake_has_all_and_lets_it_go(self, name: str) -> None:
        self.follow()
        hearer, quiet = self.hearers[name], 0
        while quiet < 3:
            quiet = 0 if self._runner.run(hearer.hear(5)) else quiet + 1
        self.the_lake_gets_what_was_heard(name)
        self.applier.shorten()

    @rule(name=NAMES)
    def blue_has_all(self, name: str) -> None:
        self.blue_follows()
        lake, quiet = self.blue_lakes[name], 0
        while quiet < 3 and not lake.source.is_left:
            quiet = 0 if self._runner.run(lake.hear(5)) else quiet + 1
        self.blue_gets_what_was_heard(name)
        self.blue_shortens(0, 0)

    def _end(self) -> None:
        self.the_orders_are_read()
        ends = self.stage_all(self.ends)
        self.hear_all(ends)
        for name, lake in self.blue_lakes.items():
            if not lake.is_receiving.is_set() or lake.source.is_left:
                self.blue_looks(name)
            self.blue_has_all(name)
            if lake.source.is_left:
                self.blue_looks(name)
                self.blue_has_all(name)
            assert lake.at == max(ends[name], lake.copied_at)
        self.the_lake_of_the_group_has_all()
        for _ in range(2):
            self.blue.shorten()
        assert not self.index.objects()

    def teardown(self) -> None:
        """See `RolesMachine.teardown`."""
        try:
            super().teardown()
        finally:
            for lake in self.blue_lakes.values():
                lake.fall_silent()


__all__ = ["GroupsMachine"]
