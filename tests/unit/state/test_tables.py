from __future__ import annotations

import pytest

from kuvasz.errors import TableError
from kuvasz.state.tables import State, TableStates

T, S = "shop.items", "eu"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def states(clock: Clock) -> TableStates:
    made = TableStates(clock)
    made.add(T, S, "public.items")
    return made


def test_a_table_is_new_until_told_otherwise(states: TableStates, clock: Clock) -> None:
    states.add(T, S, "another name changes nothing")
    clock.now = 5.0
    states.set(T, S, State.COPYING)
    clock.now = 6.0
    states.set(T, S, State.COPYING)
    (state,) = states.snapshot()
    assert (state.table, state.state, state.since) == ("public.items", State.COPYING, 5.0)


def test_an_error_goes_with_the_state_that_has_it(states: TableStates) -> None:
    error = TableError("wrong")
    states.set(T, S, State.ERROR, error)
    assert states.snapshot()[0].error is error
    states.set(T, S, State.CATCHING_UP)
    assert states.snapshot()[0].error is None


@pytest.mark.parametrize("state", State)
def test_only_tables_that_follow_the_stream_are_active(states: TableStates, state: State) -> None:
    states.set(T, S, state)
    follows = state in {State.CATCHING_UP, State.STREAMING}
    assert states.is_streaming(T, S) is follows
    assert states.is_active(T, S, 0) is follows
    assert not states.is_active("shop.unknown", S, 0)


def test_what_an_earlier_connection_brought_is_not_applied(states: TableStates) -> None:
    states.activate(T, S, 3)
    assert [states.is_active(T, S, epoch) for epoch in (2, 3, 4)] == [False, True, True]
    assert states.snapshot()[0].state is State.CATCHING_UP


def test_facts_are_set_and_counts_added(states: TableStates) -> None:
    states.note(T, S, rows=5, commits=1, last_commit_us=100, copy_total=4)
    states.note(T, S, rows=2, commits=1, last_commit_us=90, copy_total=3)
    states.note("shop.unknown", S, rows=1)
    (state,) = states.snapshot()
    assert (state.rows, state.commits, state.copy_total) == (7, 2, 3)
    assert state.last_commit_us == 100, "the newest change stays the newest"


def test_snapshots_are_copies_in_order(states: TableStates) -> None:
    states.add("shop.a", "us", "a")
    states.add("shop.b", "eu", "b")
    found = states.snapshot()
    assert [(state.source, state.target) for state in found] == [("eu", "shop.b"), ("eu", T), ("us", "shop.a")]
    found[0].rows = 99
    assert states.snapshot()[0].rows == 0
    assert states.sources_of(T) == [S]
