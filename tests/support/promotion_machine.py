"""Two lakes of one log, in memory, that change places at any moment: neither loses anything."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from kuvasz.errors import ConfigError, StateTaken
from kuvasz.state.staged.memory import MemoryGroupIndex
from tests.support.groups_machine import GroupsMachine, Lake
from tests.support.staged_world import Process


class PromotionMachine(GroupsMachine):
    """What `GroupsMachine` has; which of the two lakes is the first one's changes now and then.

    What a group is called does not matter: the other one is `blue` each time, and was `old` for a moment.
    """

    @rule(reader_dies=st.booleans(), is_ahead=st.booleans())
    def the_group_is_promoted(self, reader_dies: bool, is_ahead: bool) -> None:
        """All who apply are stopped, or sleep; whoever reads goes on, or dies at the same moment."""
        if is_ahead:
            for name, server in self.servers.items():
                server.commit([1, 2], 10)
                self.all_is_staged_that_comes(name)
                self.the_first_lake_has_all_and_lets_it_go(name)
        before, hearers, lakes = self.applier, dict(self.hearers), dict(self.blue_lakes)
        try:
            self.index.promote_group("blue", "old")
        except ConfigError:
            known = self.index.of_group("blue").positions().keys()
            assert known < self.servers.keys(), "it goes on with all"
            return
        self.index._groups["blue"] = self.index._groups.pop("old")
        for hearer in (*hearers.values(), *lakes.values()):
            hearer.fall_silent()
        self._change_places(lakes)
        with pytest.raises(StateTaken):
            before.log.withdraw("eu")
        if reader_dies:
            self.reader_begins()

    @invariant()
    def the_first_lake_has_what_it_says(self) -> None:
        for name, position in self.index.positions().items():
            assert position.applied <= self.lakes[name]

    def _change_places(self, blue: dict[str, Lake]) -> None:
        """Begin both as what they are by now: each lake is what it was."""
        first = {name: (self.copied[name], self.lakes[name]) for name in self.servers}
        for name, lake in blue.items():
            assert self.index.positions()[name].applied <= lake.at
            self.copied[name], self.lakes[name] = lake.copied_at, lake.at
        self.applier_begins()
        self.blue_index = MemoryGroupIndex(self.index, "blue")
        process = Process(self.blue_index, self.objects, self.blue.log._role, "blue")
        for name, (copied_at, at) in first.items():
            made = Lake(process, name, self.servers[name])
            made.copied_at, made.at = copied_at, at
            made.has = {one.end for one in self.servers[name].wal if copied_at < one.end <= at}
            made.is_receiving = asyncio.Event()
            self.blue_lakes[name] = made
        self.blue_begins()


__all__ = ["PromotionMachine"]
