"""Sources that three processes share, whoever of them dies, sleeps, wakes, is drained or gets no answer.

As `tests.support.roles_machine`: nothing is lost, nothing comes twice; and no source is read by two of one past.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from kuvasz.config.model import ClusterRole
from kuvasz.errors import KuvaszError, StateTaken
from kuvasz.state.staged.sharing import share_of
from tests.support.roles_machine import NAMES, RolesMachine
from tests.support.staged_world import Process, Received

NODES = ("one", "two", "three")


class Node:
    """A process that reads its share."""

    def __init__(self, machine: SharedMachine, name: str) -> None:
        self.process = Process(machine.index, machine.objects, ClusterRole.READ, name)
        self.ends = {source: Received(self.process, source, server) for source, server in machine.servers.items()}
        self.pasts: dict[str, int] = {}  #: of the sources that it reads
        self.given: set[str] = set()  #: what it gives back, and has not all staged of

    @property
    def has_ended(self) -> bool:
        """Whether it noticed that its lease is another one's."""
        return isinstance(self.process.log.writer.error, StateTaken)

    def leave(self, source: str) -> None:
        self.process.log.source(source).leave()
        self.ends[source]._stream = None
        self.pasts.pop(source, None)

    def look(self) -> None:
        """Do what a process that reads does with each look."""
        index, log = self.process.index, self.process.log
        shared = index.shared()
        share = share_of(shared.node, shared.nodes, shared.holders)
        for source, past in list(self.pasts.items()):
            if source not in shared.orders or shared.orders[source].past != past or log.source(source).is_left:
                self.leave(source)
        self.given &= shared.orders.keys()
        for source in share.given:
            if self.ends[source]._stream is None or not log.source(source).is_open:
                self.ends[source]._stream = None
                self.pasts.pop(source, None)
                self.given.add(source)
        for source in list(self.given):
            if log.source(source).is_staged:
                self.leave(source)
                index.release([source])
                self.given.discard(source)
        new = {
            source: given.past for source, given in shared.orders.items() if source not in {*self.pasts, *share.given}
        } if not self.given else {}  # fmt: skip
        for source in log.take_over(new):
            self.pasts[source] = new[source]
        index.hold({source: shared.pasts[source] for source in share.taken})


class SharedMachine(RolesMachine):
    """Steps of one process that reads after another; each may be in the middle of something meanwhile."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.node = NODES[0]
        super().__init__()
        self.all_read_the_orders()

    def reader_begins(self) -> None:
        """Have all begin, or the one begin anew whose turn it is."""
        self.index.nodes.pop("memory", None)
        for name in NODES if not self.nodes else (self.node,):
            self.nodes[name] = Node(self, name)
            self.another_one_has_its_turn(name)

    @rule(name=st.sampled_from(NODES))
    def another_one_has_its_turn(self, name: str) -> None:
        self.node, node = name, self.nodes[name]
        self.reader, self.ends, self.pasts = node.process, node.ends, node.pasts

    @rule(lost=st.integers(0, 1))
    def the_orders_are_read(self, lost: int = 0) -> None:
        self.reader.index.lost_answers = lost
        with contextlib.suppress(KuvaszError):
            self.nodes[self.node].look()
        self.reader.index.lost_answers = 0

    @rule()
    def all_read_the_orders(self) -> None:
        turn = self.node
        for name in (*NODES, *NODES):
            self.another_one_has_its_turn(name)
            self.the_orders_are_read()
        self.another_one_has_its_turn(turn)

    @rule()
    def it_sleeps_until_its_share_is_taken(self) -> None:
        """And wakes: the next steps may be its own."""
        turn = self.node
        self.it_is_late()
        for name in [name for name in (*NODES, *NODES) if name != turn]:
            self.another_one_has_its_turn(name)
            self.the_orders_are_read()
        self.another_one_has_its_turn(turn)

    @rule(name=NAMES)
    def it_is_about_to_connect(self, name: str) -> None:
        """It has yet to end whoever reads the slot."""
        if name in self.pasts:
            self.ends[name]._stream = None
            with contextlib.suppress(KuvaszError):
                self.reader.log.abandon_open(name)

    @rule()
    def it_is_late(self) -> None:
        """As one that sleeps, or is cut off: it may go on before anybody notices, and after that."""
        self.reader.index.be_late()

    @rule()
    def it_is_heard_of_again(self) -> None:
        self.reader.index.be_heard_of()

    @rule(drains=st.booleans())
    def it_is_drained(self, drains: bool) -> None:
        if self.node in self.index.nodes:
            self.index.nodes[self.node] = drains

    @rule(name=NAMES)
    def connect(self, name: str) -> None:
        if name in self.pasts and self.ends[name].connect():
            for node in NODES:
                if node != self.node:  # whoever reads the slot is ended
                    self.nodes[node].ends[name]._stream = None

    @rule(failures=st.lists(st.sampled_from(["nothing", "all"]), max_size=2), lost=st.integers(0, 1))
    def the_reader_dies(self, failures: list[str], lost: int) -> None:
        """And begins anew; what it was about to write comes when another process has its name."""
        super().the_reader_dies(failures, lost)

    @rule(name=NAMES)
    def the_slot_is_made_anew(self, name: str) -> None:
        for node in self.nodes.values():
            node.ends[name]._stream = None
        super().the_slot_is_made_anew(name)

    @invariant()
    def no_source_is_read_by_two(self) -> None:
        at = {name: found.past for name, found in self.index.positions().items()}
        reads = Counter(name for node in self.nodes.values() for name, past in node.pasts.items() if at[name] == past)
        assert not [name for name, count in reads.items() if count > 1]

    def _end(self) -> None:
        self._all_begin_anew()
        self.all_read_the_orders()
        self.all_read_the_orders()
        assert sorted(name for node in self.nodes.values() for name in node.pasts) == sorted(self.servers)
        assert max(len(node.pasts) for node in self.nodes.values()) == 1, "each has its share"
        staged: dict[str, int] = {}
        for name in NODES:
            self.another_one_has_its_turn(name)
            staged |= self.stage_all(list(self.pasts))
        self.hear_all(staged)
        assert not self.index.objects()
        self._all_begin_anew()
        assert not self.objects, "nor are there any of a process that lost its lease"

    def _all_begin_anew(self) -> None:
        for node in self.nodes.values():
            node.process.index.be_late()
        self.reader.index._end_late()
        self.nodes.clear()
        self.reader_begins()


COMMON: dict[str, Any] = {
    "deadline": None, "database": None, "print_blob": True, "report_multiple_bugs": False,
    "suppress_health_check": list(HealthCheck),
}  # fmt: skip


def test_nothing_is_lost_or_doubled_whoever_reads() -> None:
    run_state_machine_as_test(
        SharedMachine, settings=settings(max_examples=30, stateful_step_count=40, derandomize=True, **COMMON)
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_nothing_is_lost_or_doubled_whoever_reads_in_thousands_of_orders() -> None:
    run_state_machine_as_test(SharedMachine, settings=settings(max_examples=4000, stateful_step_count=100, **COMMON))
