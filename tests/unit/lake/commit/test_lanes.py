"""Commits of many tables: who is stuck holds up nobody else, and is given up only if it is alone with that."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

import pytest

from kuvasz.errors import LakeError, TableStuck
from kuvasz.lake.commit import lanes
from kuvasz.lake.commit.lanes import Lanes, Outcome, Ticket
from kuvasz.ports import Failure, Receipt
from tests.support.waiting import wait_until


class Store:
    """Takes the commits of tables, but of those that are broken: it refuses them, or does not answer."""

    def __init__(self) -> None:
        self.broken: set[str] = set()
        self.silent: set[str] = set()
        self.answers = True
        self.seconds = 0.0  #: that a commit takes
        self.made: list[tuple[str, list[int]]] = []
        self.lanes = Lanes(self.commit, self.hangs, self.answer, room_bytes=1000)

    def commit(self, tickets: Sequence[Ticket]) -> Sequence[Outcome]:
        ticket = tickets[0]
        ticket.waits_since = time.monotonic()
        while ticket.target in self.silent:
            time.sleep(0.01)
        while ticket.target in self.broken:
            ticket.refusal = LakeError("refused")
            if ticket.is_given_up.wait(0.01) and ticket.target in self.broken:  # tried a last time
                return [(Failure(target=ticket.target, error=ticket.refusal),)]
        time.sleep(self.seconds)
        self.made.append((ticket.target, [ticket.written.number for ticket in tickets]))
        return [
            (Receipt(target=ticket.target, positions={}, rows=1, snapshot_id=ticket.written.number),)
            for ticket in tickets
        ]

    def hangs(self, _: Ticket) -> TableStuck:
        return TableStuck("no answer")

    def answer(self) -> None:
        if not self.answers:
            raise LakeError("nobody there")

    def put(self, number: int, *targets: str) -> list[Ticket]:
        works = (SimpleNamespace(target=name, changes=()) for name in targets)
        tickets = [Ticket(SimpleNamespace(work=work, number=number, rejected=list)) for work in works]
        self.lanes.put(tickets)
        return tickets


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(lanes, "PATIENCE_S", 0.1)
    monkeypatch.setattr(lanes, "_FAREWELL_S", 0.2)
    made = Store()
    yield made
    made.broken.clear()
    made.silent.clear()
    made.lanes.close()


def done(tickets: list[Ticket]) -> list[bool]:
    return [ticket.outcome.done() for ticket in tickets]


@pytest.mark.parametrize("how", ["broken", "silent"])
def test_others_go_on_and_the_stuck_one_keeps_its_order(store: Store, how: str) -> None:
    store.put(0, "a", "b")
    getattr(store, how).add("a")
    early = [store.put(number, "a", "b") for number in range(1, 4)]
    assert [done(tickets) for tickets in early] == [[False, True]] * 3
    assert store.lanes.is_stuck("a")
    getattr(store, how).clear()
    assert [tickets[0].outcome.result(10)[0].snapshot_id for tickets in early] == [1, 2, 3]
    wait_until(lambda: not store.lanes.is_stuck("a"), "it is as before")
    made = [numbers for name, numbers in store.made if name == "a"]
    assert [number for numbers in made for number in numbers] == [0, 1, 2, 3]
    assert made[-1] == [2, 3], "what has waited becomes one commit"
    assert done(store.put(4, "a", "b")) == [True, True]


def test_one_that_was_stuck_catches_up_while_more_comes_than_single_commits_could_take(store: Store) -> None:
    store.broken.add("a")
    for number in range(20):
        store.put(number, "a", "b")
    store.seconds = 0.05
    store.broken.clear()
    is_pending = []
    for number in range(20, 40):
        (mine, _) = store.put(number, "a", "b")
        is_pending.append(not mine.outcome.done())
        time.sleep(0.01)
    assert not any(is_pending[-10:]), "the others wait for it again, as it does for them"
    assert not store.lanes.is_stuck("a")


@pytest.mark.parametrize("how", ["broken", "silent"])
def test_one_that_is_stuck_while_others_are_not_is_given_up(
    store: Store, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(lanes, "BOUND_S", 0.3)
    getattr(store, how).add("a")
    (first, _), (second, _) = store.put(1, "a", "b"), store.put(2, "a", "b")
    assert isinstance(first.outcome.result(10)[0], Failure)
    if how == "silent":
        assert second.outcome.result(10) == (), "its table has failed"
    assert done(store.put(3, "b")) == [True]


def test_a_lone_table_is_given_up_only_if_catalog_and_store_answer(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "BOUND_S", 0.1)
    asked = threading.Event()
    real = store.lanes._answer
    monkeypatch.setattr(store.lanes, "_answer", lambda: (asked.set(), real()))
    store.answers = False
    store.broken.add("a")
    (ticket,) = store.put(1, "a")
    assert asked.wait(10)
    assert not ticket.outcome.done()
    store.answers = True
    assert isinstance(ticket.outcome.result(10)[0], Failure)


def test_many_that_are_stuck_leave_their_turns_to_others(store: Store) -> None:
    stuck = "abcdefgh"
    store.silent.update(stuck)
    tickets = store.put(1, *stuck, "z")
    assert done(tickets) == [False] * len(stuck) + [True]


def test_if_all_are_away_everything_waits(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.broken.update("ab")
    tickets = store.put(1, "a", "b")
    wait_until(lambda: all(ticket.refusal for ticket in tickets), "none of them gets through")
    monkeypatch.setattr(lanes, "BOUND_S", 0.1)
    time.sleep(0.5)
    assert done(tickets) == [False, False]
    store.broken.clear()
    assert all(isinstance(ticket.outcome.result(10)[0], Receipt) for ticket in tickets)


def test_beyond_the_room_whoever_brings_more_waits(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.broken.update("ab")
    monkeypatch.setattr(lanes._Lane, "bytes", property(lambda lane: 600 * len(lane.tickets)))
    store.put(1, "a")
    after: list[Ticket] = []
    thread = in_thread(lambda: after.extend(store.put(2, "a")))
    time.sleep(0.3)
    assert thread.is_alive()
    store.broken.clear()
    thread.join(10)
    assert done(after) == [True]


def in_thread(job: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=job, daemon=True)
    thread.start()
    return thread
