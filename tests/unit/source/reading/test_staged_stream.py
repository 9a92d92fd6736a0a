"""A source's stream behind a staged log, whoever fails and whenever: nothing is lost, nothing comes twice.

A server, a log and its hearer in memory, and steps in any order; `slow` takes thousands of orders.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from kuvasz.staging.stretch import Stretch
from kuvasz.state.staged.memory import MemoryIndex
from tests.support.examples import examples
from tests.support.staged_world import Process, Received, Server, staged, without_threads

NAMES = st.sampled_from(["eu", "us"])


class StagedMachine(RuleBasedStateMachine):
    """Two sources, one log, and one process after another."""

    def __init__(self) -> None:
        super().__init__()
        self._exits = contextlib.ExitStack()
        self._exits.enter_context(without_threads())
        self._runner = self._exits.enter_context(asyncio.Runner())
        self.index, self.objects = MemoryIndex(), dict[str, bytes]()
        self.servers = {name: Server() for name in ("eu", "us")}
        self.lakes = dict.fromkeys(self.servers, 100)  #: what the lake has of each source
        self.has_failed_over: set[str] = set()
        self.begin()

    def begin(self) -> None:
        """A process begins."""
        self.process = Process(self.index, self.objects)
        self.ends = {name: Received(self.process, name, server) for name, server in self.servers.items()}

    @rule(name=NAMES, oids=st.lists(st.sampled_from([1, 2]), min_size=1, max_size=30), size=st.integers(1, 60))
    def a_transaction_commits(self, name: str, oids: list[int], size: int) -> None:
        self.servers[name].commit(oids, size)

    @rule(name=NAMES, oid=st.sampled_from([1, 2]))
    def a_table_is_altered(self, name: str, oid: int) -> None:
        self.servers[name].versions[oid] += 1

    @rule(name=NAMES)
    def connect(self, name: str) -> None:
        if self.ends[name].connect(has_failed_over=name in self.has_failed_over):
            self.has_failed_over.discard(name)

    @rule(name=NAMES, messages=st.integers(1, 60), keepalive=st.booleans())
    def receive(self, name: str, messages: int, keepalive: bool) -> None:
        self.ends[name].receive(messages, keepalive=keepalive)

    @rule(name=NAMES)
    def confirm(self, name: str) -> None:
        self.ends[name].confirm()

    @rule(name=NAMES, steps=st.integers(1, 6))
    def hear(self, name: str, steps: int) -> None:
        end = self.ends[name]
        self._runner.run(end.hear(steps))
        if end.heard is not None:
            expected = [one for one in self.servers[name].wal if one.end > end.heard.from_lsn]
            assert end.heard.whole == expected[: len(end.heard.whole)]

    @rule(name=NAMES)
    def the_reader_goes_back(self, name: str) -> None:
        self.ends[name].fall_silent()

    @rule(name=NAMES, part=st.floats(0, 1))
    def the_lake_gets_what_was_heard(self, name: str, part: float) -> None:
        heard = self.ends[name].heard
        if heard is None:
            return
        to = heard.lsn
        if part < 1:
            ends = [one.end for one in heard.whole]
            to = ends[int(part * len(ends))] if ends else heard.from_lsn
        self.lakes[name] = max(self.lakes[name], to)
        self.ends[name].tell(to)

    @rule(
        failures=st.lists(st.sampled_from(["nothing", "all"]), max_size=2),
        lost=st.integers(0, 2),
        meanwhile=st.lists(st.tuples(NAMES, st.sampled_from(["receive", "commit"])), max_size=3),
    )
    def stage(self, failures: list[str], lost: int, meanwhile: list[tuple[str, str]]) -> None:
        self.process.store.failures, self.process.index.lost_answers = list(failures), lost
        for name, what in meanwhile:
            end = self.ends[name]
            self.process.stop.meanwhile.append(
                (lambda end=end: end.receive(9, keepalive=True)) if what == "receive"
                else (lambda end=end: end.server.commit([1, 2, 1], 20))
            )  # fmt: skip
        self.process.stage()
        self.process.stop.meanwhile.clear()
        self.process.index.lost_answers = 0

    @rule(lost=st.integers(0, 1), keeps=st.integers(0, 1))
    def shorten(self, lost: int, keeps: int) -> None:
        self.process.index.lost_answers, self.process.store.keeps = lost, keeps
        self.process.shorten()
        self.process.index.lost_answers = self.process.store.keeps = 0

    @rule(failures=st.lists(st.sampled_from(["nothing", "all"]), max_size=2), lost=st.integers(0, 1))
    def another_process_takes_over_while_this_one_stages(self, failures: list[str], lost: int) -> None:
        before = self.process
        before.store.failures, before.index.lost_answers = [*failures, "nothing"], lost
        took: list[bool] = []

        def take_over() -> None:
            self.begin()
            took.append(True)
            before.stop.meanwhile.append(before.stop.set)

        for end in self.ends.values():
            end.fall_silent()
        before.stop.meanwhile = [lambda: None] * len(failures) + [take_over]
        before.stage()
        before.shorten()
        if not took:
            self.begin()
        before.stop.set()
        before.stage()

    @precondition(lambda self: not self.has_failed_over)
    @rule(name=NAMES, lag=st.integers(0, 50), kept=st.integers(0, 3))
    def another_server_takes_over(self, name: str, lag: int, kept: int) -> None:
        server, end = self.servers[name], self.ends[name]
        end._stream = None
        end.is_receiving.clear()
        least = max(end.source.newest[1], self.lakes[name] if self.lakes[name] in self._ends(name) else 0, 100)
        least = max(least, max((one for one in self._ends(name) if one <= self.lakes[name]), default=0))
        behind = [least, *(one.end for one in server.wal if one.end > least)]
        server.fail_over(behind[min(kept, len(behind) - 1)])
        server.confirmed = max(100, server.confirmed - lag)
        self.has_failed_over.add(name)

    def _ends(self, name: str) -> list[int]:
        return [one.end for one in self.servers[name].wal]

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
            for end in self.ends.values():
                end.fall_silent()
            self._exits.close()

    def _end(self) -> None:
        for name, end in self.ends.items():
            server = self.servers[name]
            server.commit([1, 2], 10)
            self.connect(name)
            while end.receive(50):
                self.hear(name, 3)
            quiet = 0
            while quiet < 3:
                came = self._runner.run(end.hear(5))
                quiet = 0 if came or end.heard is None else quiet + 1
            assert end.heard is not None
            assert end.heard.whole == [one for one in server.wal if one.end > end.heard.from_lsn]
            self.lakes[name] = end.heard.lsn
            end.tell(end.heard.lsn)
        while self.process.log.room.sources():
            self.process.stage()
        for name, end in self.ends.items():
            end.confirm()
            assert self.servers[name].confirmed == end.source.known.lsn
        for _ in range(2):
            self.process.shorten()
        assert not self.index.objects()
        for name in self.ends:
            assert not self.index.slices(name, 0, through=0, most=9)
        self.begin()
        assert not self.objects, "nor are there any of a process that lost its lease"


@pytest.fixture
def machine() -> Iterator[StagedMachine]:
    made = StagedMachine()
    yield made
    made.teardown()


def test_what_is_given_up_while_it_is_heard_is_not_gone_on_with(
    machine: StagedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.a_transaction_commits(name="eu", oids=[1] * 20, size=50)
    machine.connect(name="eu")
    machine.receive(name="eu", messages=6, keepalive=False)
    source = machine.ends["eu"].source
    after, before = source.after, source.generation

    def after_and_given_up(number: int) -> Stretch | None:
        found = after(number)
        if found is not None and found.open_lsn and source.generation == before:
            source.abandon_open()
        return found

    monkeypatch.setattr(source, "after", after_and_given_up)
    machine.hear(name="eu", steps=1)
    assert source.generation > before
    machine.connect(name="eu")
    machine.receive(name="eu", messages=6, keepalive=False)
    machine.hear(name="eu", steps=1)
    assert machine.ends["eu"].hearing is None, "it begins again"


def test_the_parts_of_a_transaction_whose_end_is_not_staged_yet_are_kept(machine: StagedMachine) -> None:
    machine.a_transaction_commits(name="eu", oids=[1] * 20, size=50)
    machine.connect(name="eu")
    machine.receive(name="eu", messages=9, keepalive=False)
    machine.stage(failures=[], lost=0, meanwhile=[])
    machine.receive(name="eu", messages=60, keepalive=False)
    machine.connect(name="eu")
    machine.stage(failures=[], lost=0, meanwhile=[])
    machine.confirm(name="eu")
    machine.what_is_confirmed_is_staged_or_in_the_lake()
    machine.begin()


def test_one_that_is_slower_than_a_large_transaction_goes_on_where_it_is(machine: StagedMachine) -> None:
    machine.a_transaction_commits(name="eu", oids=[1] * 200, size=50)
    machine.connect(name="eu")
    machine.receive(name="eu", messages=3, keepalive=False)
    machine.hear(name="eu", steps=1)
    first = machine.ends["eu"].heard
    for number in range(60):
        machine.receive(name="eu", messages=3, keepalive=False)
        machine.stage(failures=[], lost=0, meanwhile=[])
        if number % 6 == 0:
            machine.hear(name="eu", steps=4)
    assert first is not None
    assert machine.ends["eu"].heard is first


def test_what_the_lake_got_while_it_was_found_is_not_lost(machine: StagedMachine) -> None:
    machine.a_transaction_commits(name="eu", oids=[1], size=50)
    machine.connect(name="eu")
    machine.receive(name="eu", messages=9, keepalive=False)
    machine.stage(failures=[], lost=0, meanwhile=[])
    machine.begin()
    machine.connect(name="eu")
    machine.hear(name="eu", steps=2)  # its slice is found, and not read yet
    end = machine.ends["eu"]
    assert end.hearing is not None
    assert end.hearing._fetching is not None
    end.tell(end.source.known.lsn)
    machine.lakes["eu"] = end.source.known.lsn
    machine.process.shorten()
    assert not machine.objects
    machine.hear(name="eu", steps=9)
    assert end.hearing is None, "it begins again, behind that"


COMMON: dict[str, Any] = {
    "deadline": None, "database": None, "print_blob": True, "report_multiple_bugs": False,
    "suppress_health_check": list(HealthCheck),
}  # fmt: skip


def test_nothing_is_lost_or_doubled_whatever_fails() -> None:
    run_state_machine_as_test(
        StagedMachine,
        settings=settings(max_examples=examples(60), stateful_step_count=40, derandomize=True, **COMMON),
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)  # five minutes on a quiet core
def test_nothing_is_lost_or_doubled_in_thousands_of_orders() -> None:
    run_state_machine_as_test(StagedMachine, settings=settings(max_examples=5000, stateful_step_count=80, **COMMON))
