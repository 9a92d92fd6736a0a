"""Groups that three processes apply, whoever of them dies, sleeps, wakes, is drained or gets no answer.

As `tests.support.roles_machine`: what is in the lake is what the sources committed, once each and in their order, and
no object goes that is needed. A commit names the position that it was worked out on, and Iceberg refuses it if that
has moved.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from kuvasz.config.model import ClusterRole
from kuvasz.errors import KuvaszError, StateError, StateTaken
from kuvasz.state.shares.memory import MemoryGroups
from kuvasz.state.shares.ports import ApplierNode
from kuvasz.state.staged.orders import KnownPast, StreamOrder
from kuvasz.sync import group_shares
from tests.support.roles_machine import NAMES, RolesMachine
from tests.support.staged_world import Process, Received, Transaction

NODES = ("one", "two", "three")
UNITS = {"eu": "eu", "us": "us"}  #: each group has one source of its name
MAP = "map"


class Applier:
    """A process that applies its share."""

    def __init__(self, machine: ApplyingMachine, name: str) -> None:
        self.machine, self.name = machine, name
        self.process = Process(machine.index, machine.objects, ClusterRole.APPLY, name, is_shared=True)
        self.hearers: dict[str, Received] = {}  #: of the groups that it applies
        self.positions: dict[str, int] = {}  #: of its tables, as it knows them
        self.given: set[str] = set()  #: groups that have ended here, and whose rows are there still
        machine.groups.ended.discard(name)
        machine.groups.nodes[name] = ApplierNode(map=MAP)

    @property
    def is_ended(self) -> bool:
        """Whether its lease was ended: whatever it asks for is refused."""
        return self.name in self.machine.groups.ended or self.machine.appliers.get(self.name) is not self

    def look(self) -> None:
        """Do what a process that applies does with each look."""
        groups = self.machine.groups
        groups.node = self.name
        shared = groups.shared()
        if self.name not in shared.nodes:
            return
        share = group_shares.share_of(shared, UNITS, MAP)
        mine = {name for name, one in shared.held.items() if one.node == self.name and one.lives}
        for name in share.given:
            self.end(name)
        if share.given:
            self.machine.write(self, lambda: groups.release(share.given))
            return
        if share.taken:
            self.machine.end_late()
            mine |= set(self.machine.write(self, lambda: groups.hold(dict.fromkeys(share.taken, 1), MAP)))
        for name in sorted(mine - self.hearers.keys()):
            self.begin(name)

    def begin(self, name: str) -> None:
        self.process.log.adopt([name])
        self.hearers[name] = Received(self.process, name, self.machine.servers[name])
        self.hearers[name].is_receiving.set()
        self.positions[name] = self.machine.lakes[name]  # loaded from the catalog
        self.give(name)

    def end(self, name: str) -> None:
        if name in self.hearers:
            self.hearers.pop(name).fall_silent()
            self.positions.pop(name)
            self.process.log.let_go([name])

    def give(self, name: str) -> None:
        order = StreamOrder(slot="s", publications=(f"p{self.machine.orders[name]}",), system_id="", timeline=1)
        self.process.log.give(name, order, KnownPast())
        self.process.log.look(name)


class ApplyingMachine(RolesMachine):
    """Steps of one process that applies after another; each may be in the middle of something meanwhile."""

    def __init__(self) -> None:
        self.groups = MemoryGroups()
        self.groups.nodes.clear()
        self.appliers: dict[str, Applier] = {}
        self.turn = NODES[0]
        self.tables: dict[str, list[Transaction]] = {name: [] for name in UNITS}
        self.begun = dict.fromkeys(UNITS, 100)  #: from where the tables have what the sources committed
        self.lost = 0
        super().__init__()

    def applier_begins(self) -> None:
        for name in NODES if not self.appliers else (self.turn,):
            for source in list(self.appliers[name].hearers) if name in self.appliers else ():
                self.appliers[name].hearers[source].fall_silent()
            self.appliers[name] = Applier(self, name)
        self.applier = self.appliers[self.turn].process
        self.all_look()

    def write(self, node: Applier, what: Any) -> Any:
        """Do what names the lease of a process."""
        if node.is_ended:
            raise StateTaken("another process replicates by now")
        found = what()
        if self.lost:
            self.lost -= 1
            raise StateError("no answer")
        return found

    def end_late(self) -> None:
        """End who is late, and holds anything: in the coordinator that is one step with what is taken."""
        holders = self.index.__dict__["holders"]
        for name, one in self.groups.shared().held.items():
            if one.node not in self.groups.nodes:
                self.groups.ended.add(one.node)
                holders.pop(f"apply/{one.node}", None)
            assert name in UNITS

    @property
    def now(self) -> Applier:
        return self.appliers[self.turn]

    @rule(name=st.sampled_from(NODES))
    def another_one_has_its_turn(self, name: str) -> None:
        self.turn, self.applier = name, self.appliers[name].process

    @rule(lost=st.integers(0, 1))
    def it_looks(self, lost: int = 0) -> None:
        self.lost = lost
        with contextlib.suppress(KuvaszError):
            self.now.look()
        self.lost = 0

    @rule()
    def all_look(self) -> None:
        before = self.turn
        for name in (*NODES, *NODES, *NODES):
            self.another_one_has_its_turn(name)
            self.it_looks()
        self.another_one_has_its_turn(before)

    @rule()
    def it_is_late(self) -> None:
        """As one that sleeps, or is cut off: it may go on before anybody notices, and after that."""
        self.groups.nodes.pop(self.turn, None)

    @rule()
    def it_sleeps_until_its_share_is_taken(self) -> None:
        """And wakes: the next steps may be its own."""
        self.it_is_late()
        self.all_look()

    @rule()
    def it_is_heard_of_again(self) -> None:
        if self.turn not in self.groups.ended:
            self.groups.nodes.setdefault(self.turn, ApplierNode(map=MAP))

    @rule(drains=st.booleans())
    def it_is_drained(self, drains: bool) -> None:
        if self.turn in self.groups.nodes:
            self.groups.nodes[self.turn] = ApplierNode(map=MAP, drains=drains)

    @rule()
    def follow(self) -> None:
        assert self.applier.log.follower is not None
        self.applier.log.follower.look()

    @rule(name=NAMES, steps=st.integers(1, 6))
    def hear(self, name: str, steps: int) -> None:
        if (hearer := self.now.hearers.get(name)) is not None:
            self._runner.run(hearer.hear(steps))

    @rule(name=NAMES, oids=st.lists(st.sampled_from([1, 2]), min_size=1, max_size=30))
    def a_transaction_is_heard(self, name: str, oids: list[int]) -> None:
        """By whoever applies its group, wherever all others are."""
        self.a_transaction_commits(name, oids, 10)
        self.the_orders_are_read()
        if self.ends[name]._stream is None:
            self.connect(name)
        self.receive(name, 100, keepalive=False)
        self.stage([], 0)
        self.follow()
        for _ in range(3):
            self.hear(name, 6)

    @rule(name=NAMES)
    def another_one_applies_it_while_it_sleeps(self, name: str) -> None:
        """And then it wakes, with what it had worked out."""
        sleeper = self.turn
        self.it_sleeps_until_its_share_is_taken()
        for one in NODES:
            if one != sleeper:
                self.another_one_has_its_turn(one)
                self.a_transaction_is_heard(name, [1])
                self.the_lake_gets_what_was_heard(name)
        self.another_one_has_its_turn(sleeper)
        self.the_lake_gets_what_was_heard(name)
        self.shorten()

    @rule(name=NAMES)
    def the_hearer_goes_back(self, name: str) -> None:
        if (hearer := self.now.hearers.get(name)) is not None:
            hearer.fall_silent()

    @rule(name=NAMES)
    def the_lake_gets_what_was_heard(self, name: str) -> None:
        """A commit: of one that was worked out on another position nothing is there."""
        node = self.now
        hearer = node.hearers.get(name)
        if hearer is None or hearer.heard is None or hearer.heard.lsn <= node.positions[name]:
            return
        known = node.positions[name]
        if self.lakes[name] != known:
            node.end(name)  # the table is another one's by now, and so is the lease
            return
        self.tables[name] += [one for one in hearer.heard.whole if one.end > known]
        self.lakes[name] = node.positions[name] = hearer.heard.lsn
        hearer.tell(hearer.heard.lsn)

    @rule(lost=st.integers(0, 1), keeps=st.integers(0, 1))
    def shorten(self, lost: int = 0, keeps: int = 0) -> None:
        self.applier.index.lost_answers, self.applier.store.keeps = lost, keeps
        with contextlib.suppress(StateTaken):
            self.applier.shorten()
        self.applier.index.lost_answers = self.applier.store.keeps = 0

    @rule(name=NAMES)
    def another_order_is_given(self, name: str) -> None:
        self.orders[name] += 1
        if name in self.now.hearers:
            with contextlib.suppress(StateTaken):
                self.now.give(name)

    @precondition(lambda self: all(name in self.now.hearers for name in UNITS) and not self.now.is_ended)
    @rule(name=NAMES)
    def the_slot_is_made_anew(self, name: str) -> None:
        """All is copied: what was before counts no more."""
        server, node = self.servers[name], self.now
        if self.lakes[name] != node.positions[name]:
            return
        node.process.log.withdraw(name)
        self.ends[name]._stream = None
        server.confirmed = self.lakes[name] = self.begun[name] = node.positions[name] = server.end
        self.tables[name] = []
        node.hearers[name].fall_silent()
        node.process.log.begin_anew(name, server.end)
        node.give(name)

    @rule()
    def the_applier_dies(self) -> None:
        """And begins anew under its name: what it held is its own again, by a lease with another number."""
        before = self.now
        holders = self.index.__dict__["holders"]
        self.groups._held = {name: one for name, one in self.groups._held.items() if one.node != self.turn}
        holders.pop(f"apply/{self.turn}", None)
        self.applier_begins()
        with pytest.raises(StateTaken):
            before.process.log.withdraw("eu")

    @invariant()
    def the_lake_has_what_was_committed_once_and_in_order(self) -> None:
        for name, server in self.servers.items():
            assert self.tables[name] == [one for one in server.wal if self.begun[name] < one.end <= self.lakes[name]]

    @invariant()
    def no_group_is_applied_by_two_who_may_write(self) -> None:
        counts = Counter(name for node in self.appliers.values() if not node.is_ended for name in node.hearers)
        assert not [name for name, count in counts.items() if count > 1]

    def teardown(self) -> None:
        try:
            self._end()
        finally:
            for node in self.appliers.values():
                for hearer in node.hearers.values():
                    hearer.fall_silent()
            self._exits.close()

    def _end(self) -> None:
        for name in NODES:
            self.another_one_has_its_turn(name)
            self.it_is_late()
        self.groups._held.clear()
        self.appliers.clear()
        self.applier_begins()
        self.all_look()
        shares = [len(node.hearers) for node in self.appliers.values()]
        assert sorted(shares) == [0, 1, 1], "each has its share"
        self.the_orders_are_read()
        ends = self.stage_all(self.ends)
        for name in NODES:
            self.another_one_has_its_turn(name)
            self._hear_out(ends)
        assert not self.index.objects()

    def _hear_out(self, ends: dict[str, int]) -> None:
        self.follow()
        for name, hearer in self.now.hearers.items():
            quiet = 0
            while quiet < 3:
                came = self._runner.run(hearer.hear(5))
                quiet = 0 if came or hearer.heard is None else quiet + 1
            assert hearer.heard is not None
            assert hearer.heard.lsn == ends[name]
            self.the_lake_gets_what_was_heard(name)
            assert self.lakes[name] == ends[name]
        for _ in range(2):
            self.shorten()


COMMON: dict[str, Any] = {
    "deadline": None, "database": None, "print_blob": True, "report_multiple_bugs": False,
    "suppress_health_check": list(HealthCheck),
}  # fmt: skip


def test_nothing_is_lost_or_doubled_whoever_applies() -> None:
    run_state_machine_as_test(
        ApplyingMachine, settings=settings(max_examples=30, stateful_step_count=40, derandomize=True, **COMMON)
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_nothing_is_lost_or_doubled_whoever_applies_in_thousands_of_orders() -> None:
    run_state_machine_as_test(
        ApplyingMachine, settings=settings(max_examples=4000, stateful_step_count=100, **COMMON)
    )
