from __future__ import annotations

import dataclasses

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kuvasz.state.progress import Durable, Progress
from tests.support.examples import examples


def test_idle_source_follows_the_keepalives():
    progress = Progress()
    progress.received("a", 10)
    progress.received("a", 30)
    assert progress.confirmable("a") == 30
    assert not progress.pending("a")


def test_nothing_is_confirmed_past_what_a_worker_still_holds():
    progress = Progress()
    progress.received("a", 10)
    progress.routed("a", 0, 20)
    progress.routed("a", 1, 20)
    progress.received("a", 20)
    progress.routed("a", 1, 30)
    progress.received("a", 35)
    assert progress.confirmable("a") == 10
    progress.durable("a", 1, 30, 0)
    assert progress.confirmable("a") == 10
    assert progress.pending("a")
    progress.durable("a", 0, 20, 0)
    assert progress.confirmable("a") == 35


def test_a_worker_that_was_idle_holds_back_only_its_own_delivery():
    progress = Progress()
    progress.received("a", 100)
    progress.routed("a", 0, 110)
    progress.received("a", 110)
    progress.routed("a", 1, 120)
    progress.received("a", 120)
    progress.durable("a", 0, 110, 0)
    assert progress.confirmable("a") == 110


def test_hold_freezes_and_release_frees():
    progress = Progress()
    progress.received("a", 10)
    progress.hold("a", "t1")
    progress.hold("a", "t2")
    assert progress.held("a") == {"t1", "t2"}
    progress.received("a", 20)
    progress.release("a", "t1")
    assert progress.confirmable("a") == 10
    progress.release("a", "t2")
    assert progress.confirmable("a") == 20


def test_what_stepped_aside_holds_back_itself_and_nothing_before_it():
    progress = Progress()
    progress.received("a", 10)
    numbers = []
    for end in (20, 30, 40):
        progress.routed("a", 0, end)
        progress.received("a", end)
        numbers.append(progress.step_aside("a", "t"))
        progress.durable("a", 0, end, 0)
        assert progress.confirmable("a") == 10
    progress.came_through("a", "t", numbers[0])
    assert progress.confirmable("a") == 20, "whatever comes behind it all the time"
    progress.routed("a", 0, 50)
    numbers.append(progress.step_aside("a", "t"))
    progress.came_through("a", "t", numbers[2])
    assert progress.confirmable("a") == 20, "the one before it has not come through"
    progress.came_through("a", "t", numbers[1])
    assert progress.confirmable("a") == 40, "before the last one"
    progress.came_through("a", "t", numbers[3])
    assert (progress.confirmable("a"), progress.pending("a")) == (40, True)
    progress.durable("a", 0, 50, 0)
    assert not progress.pending("a")


def test_a_table_has_what_its_own_worker_made_durable():
    progress = Progress()
    progress.received("a", 10)
    progress.hold("a", "copied")
    for worker, end in ((0, 20), (1, 30)):
        progress.routed("a", worker, end)
        progress.received("a", end)
    durable = progress.durable_in("a")
    assert [durable.through("t", worker) for worker in (0, 1, 2)] == [10, 20, 30]
    assert [durable.through("copied", worker) for worker in (0, 1, 2)] == [10, 10, 10]
    progress.durable("a", 0, 20, 0)
    aside = progress.step_aside("a", "slow")
    progress.durable("a", 1, 30, 0)
    assert [progress.durable_in("a").through(table, 1) for table in ("t", "slow", "copied")] == [30, 20, 10]
    progress.came_through("a", "slow", aside)
    assert progress.durable_in("a").through("slow", 1) == 30
    progress.restarted("a", 1)
    assert progress.durable_in("a").through("t", 1) == 10, "who was not asked in that epoch is not believed"
    assert progress.durable_in("b").through("t", 0) == 0


def test_sources_do_not_touch_each_other_and_can_be_forgotten():
    progress = Progress()
    progress.routed("a", 0, 10)
    progress.received("b", 10)
    assert (progress.confirmable("a"), progress.confirmable("b")) == (0, 10)
    progress.forget("b")
    assert progress.confirmable("b") == 0
    assert progress.pending("a")


def test_what_a_source_that_was_forgotten_has_on_its_way_proves_nothing_of_it_later():
    progress = Progress()
    progress.restarted("a", 3)
    progress.received("a", 10)
    held, aside = progress.hold("a", "t"), progress.step_aside("a", "t")
    progress.routed("a", 0, 20)
    progress.forget("a")
    assert (progress.epoch("a"), progress.held("a"), progress.pending("a")) == (4, frozenset(), False)
    again, later = progress.hold("a", "t"), progress.step_aside("a", "t")
    progress.release("a", "t", held)
    progress.came_through("a", "t", aside)
    assert progress.held("a") == {"t"}
    assert progress.pending("a")
    progress.release("a", "t", again)
    progress.came_through("a", "t", later)
    progress.restarted("a", 5)
    progress.routed("a", 0, 20)
    progress.received("a", 20)
    progress.durable("a", 0, 20, 3)
    assert progress.confirmable("a") == 0, "of the life before"
    progress.durable("a", 0, 20, 5)
    assert progress.confirmable("a") == 20


def test_what_is_read_again_after_a_reconnect_counts_once():
    progress = Progress()
    progress.routed("a", 0, 10)
    progress.received("a", 10)
    progress.restarted("a", 1)
    progress.routed("a", 0, 10)
    progress.received("a", 10)
    progress.durable("a", 0, 10, 1)
    assert progress.confirmable("a") == 10


def test_what_an_earlier_connection_made_durable_proves_nothing_for_this_one():
    # A table that did not follow then may follow now: its rows come for the first time.
    progress = Progress()
    progress.routed("a", 0, 10)
    progress.received("a", 10)
    progress.restarted("a", 1)
    progress.routed("a", 0, 10)
    progress.received("a", 10)
    progress.durable("a", 0, 10, 0)
    assert progress.confirmable("a") == 0
    progress.durable("a", 0, 10, 1)
    assert progress.confirmable("a") == 10


class Invariant1(RuleBasedStateMachine):
    """A source, three workers, what steps aside, reconnects and holds, against a list of all transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.progress = Progress()
        self.transactions: list[tuple[int, frozenset[int]]] = []  # end LSN, workers
        self.routed: dict[int, list[tuple[int, int]]] = {0: [], 1: [], 2: []}  # (through, epoch) in the inboxes
        self.durable = {0: 0, 1: 0, 2: 0}
        self.aside: dict[int, list[tuple[int, int]]] = {0: [], 1: [], 2: []}  # what is not, after an LSN up to one
        self.epoch = 0
        self.end = 0
        self.sent = 0  # transactions the reader has routed on this connection
        self.confirmed = 0
        self.frozen: int | None = None
        self.holds: set[str] = set()

    @rule(workers=st.frozensets(st.integers(0, 2)), gap=st.integers(1, 5))
    def commit(self, workers: frozenset[int], gap: int) -> None:
        self.end += gap
        self.transactions.append((self.end, workers))

    @precondition(lambda self: self.sent < len(self.transactions))
    @rule(count=st.integers(1, 4), is_together=st.booleans())
    def read(self, count: int, *, is_together: bool) -> None:
        batch = self.transactions[self.sent : self.sent + count]
        self.sent += len(batch)
        through = batch[-1][0]
        workers = sorted(frozenset().union(*(workers for _, workers in batch)))
        for worker in workers:
            self.routed[worker].append((through, self.epoch))
        if is_together:
            self.progress.heard([("a", worker, through) for worker in workers], [("a", through)])
            return
        for worker in workers:
            self.progress.routed("a", worker, through)
        self.progress.received("a", through)

    @precondition(lambda self: self.sent == len(self.transactions))
    @rule(gap=st.integers(1, 5))
    def keepalive(self, gap: int) -> None:
        self.end += gap
        self.progress.received("a", self.end)

    @rule(worker=st.integers(0, 2), count=st.integers(1, 3), is_late=st.booleans())
    def apply(self, worker: int, count: int, is_late: bool) -> None:
        taken, self.routed[worker] = self.routed[worker][:count], self.routed[worker][count:]
        if taken and is_late:  # a target's part of it
            number = self.progress.step_aside("a", f"t{worker}")
            self.aside[worker].append((self.durable[worker], taken[-1][0], number))
        for through, epoch in taken:
            self.progress.durable("a", worker, through, epoch)
            self.durable[worker] = max(self.durable[worker], through)

    @rule(worker=st.integers(0, 2), place=st.integers(0, 2))
    def come_through(self, worker: int, place: int) -> None:
        if place < len(self.aside[worker]):
            *_, number = self.aside[worker].pop(place)
            self.progress.came_through("a", f"t{worker}", number)

    def is_durable(self, worker: int, end: int) -> bool:
        return self.durable[worker] >= end and not any(after < end <= to for after, to, _ in self.aside[worker])

    @rule(loses_inboxes=st.booleans())
    def reconnect(self, loses_inboxes: bool) -> None:
        if loses_inboxes:
            self.routed = {0: [], 1: [], 2: []}
        confirmed = self.progress.confirmable("a")
        self.epoch += 1
        self.progress.restarted("a", self.epoch)
        self.sent = sum(end <= confirmed for end, _ in self.transactions)

    @rule(name=st.sampled_from("xy"))
    def hold(self, name: str) -> None:
        if not self.holds:
            self.frozen = self.progress.confirmable("a")
        self.holds.add(name)
        self.progress.hold("a", name)

    @rule(name=st.sampled_from("xy"))
    def release(self, name: str) -> None:
        self.holds.discard(name)
        self.progress.release("a", name)
        self.frozen = self.frozen if self.holds else None

    @invariant()
    def confirms_only_what_is_durable(self) -> None:
        confirmable = self.progress.confirmable("a")
        assert confirmable >= self.confirmed
        assert self.frozen is None or confirmable == self.frozen
        for end, workers in self.transactions:
            assert end > confirmable or all(self.is_durable(worker, end) for worker in workers)
        self.confirmed = confirmable

    @invariant()
    def confirms_all_once_all_is_durable(self) -> None:
        is_idle = self.sent == len(self.transactions) and not self.progress.pending("a") and not self.holds
        if is_idle and self.transactions:
            assert self.progress.confirmable("a") >= self.transactions[-1][0]


TestInvariant1 = Invariant1.TestCase
TestInvariant1.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)


def test_members_of_a_target_hold_one_by_one() -> None:
    progress = Progress()
    progress.hold("a/1", "shop.all")
    progress.hold("a/2", "shop.all")
    progress.received("a", 10)
    progress.release("a", "shop.all")
    progress.release("a/1", "shop.all")
    assert progress.confirmable("a") == 0
    progress.release("a/2", "shop.all")
    assert progress.confirmable("a") == 10


def test_a_stream_that_begins_anew_confirms_nothing_of_before():
    progress = Progress()
    progress.restarted("a", 3)
    progress.hold("a", "t")
    progress.routed("a", 0, 90)
    progress.received("a", 100)
    progress.begin_anew("a", 40)
    assert (progress.confirmable("a"), progress.received_lsn("a"), progress.routed_lsn("a")) == (40, 40, 0)
    assert progress.held("a") == {"t"}
    progress.durable("a", 0, 90, 2)
    progress.release("a", "t")
    assert progress.confirmable("a") == 40
    progress.received("a", 50)
    assert progress.confirmable("a") == 50


def test_whoever_holds_anew_is_not_released_by_whoever_held_before() -> None:
    progress = Progress()
    first = progress.hold("a", "t")
    second = progress.hold("a", "t")  # by a thread that found the table broken
    progress.received("a", 10)
    progress.release("a", "t", first)
    assert (progress.held("a"), progress.confirmable("a")) == ({"t"}, 0)
    progress.release("a", "t", second)
    assert progress.confirmable("a") == 10
    progress.hold("a", "t")
    progress.release("a", "t")
    assert not progress.held("a")


def test_where_nothing_is_held_or_pending_all_tables_are_as_far() -> None:
    even = Durable(confirmable=20, received=30)
    assert even.is_even
    assert {even.through(key, worker) for key in ("a", "b") for worker in (0, 1)} == {30}
    for uneven in ({"floors": {1: 25}}, {"aside": {"a": 25}}, {"held": frozenset({"a"})}):
        assert not dataclasses.replace(even, **uneven).is_even


def test_what_a_held_table_has_over_this_connection_is_known_as_well() -> None:
    progress = Progress()
    progress.received("eu", 100)
    progress.hold("eu", "t")
    progress.restarted("eu", 2)
    progress.routed("eu", 0, 140)
    progress.received("eu", 150)
    durable = progress.durable_in("eu")
    assert (durable.through("t", 0), durable.applied("t", 0), durable.applied("t", 1)) == (100, 100, 150)
    progress.durable("eu", 0, 140, 2)
    durable = progress.durable_in("eu")
    assert (durable.through("t", 0), durable.applied("t", 0)) == (100, 150)
