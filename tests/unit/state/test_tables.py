from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from kuvasz.errors import EarlierError, LakeRewound, ParkedLost, StateError, TableError
from kuvasz.state.memory import MemoryNotes
from kuvasz.state.tables import State, TableState, TableStates

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
    made = TableStates(MemoryNotes(), clock)
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


def test_why_it_is_copied_again_is_known_until_it_follows(states: TableStates) -> None:
    states.note(T, S, why_copy="the key was changed")
    for state in (State.NEW, State.COPYING, State.ERROR):
        states.set(T, S, state)
        assert states.get(T, S).why_copy == "the key was changed"
    states.activate(T, S, 1)
    assert states.get(T, S).why_copy == "the key was changed", "it is in error"
    states.set(T, S, State.CATCHING_UP)
    assert states.get(T, S).why_copy == ""


def test_snapshots_are_copies_in_order(states: TableStates) -> None:
    states.add("shop.a", "us", "a")
    states.add("shop.b", "eu", "b")
    found = states.snapshot()
    assert [(state.source, state.target) for state in found] == [("eu", "shop.b"), ("eu", T), ("us", "shop.a")]
    states.note("shop.b", "eu", rows=99)
    assert found[0].rows == 0
    assert states.snapshot()[0].rows == 99
    assert states.snapshot()[1] is found[1], "what has not changed is not copied again"
    assert states.sources_of(T) == [S]


@pytest.mark.parametrize(
    "change",
    [
        lambda states: states.set(T, S, State.ERROR, TableError("no")),
        lambda states: states.rename(T, S, "b", "a"),
        lambda states: states.pause(T, S),
        lambda states: [states.pause(T, S), states.snapshot(), states.unpause(T, S)],
        lambda states: states.resync(T, S, is_due=True),
        lambda states: states.note(T, S, retry_at=3.0),
        lambda states: states.activate(T, S, 4),
        lambda states: [states.activate(T, S, 4), states.promote(states.snapshot()[0])],
        lambda states: [states.activate(T, S, 4), states.fail(T, TableError("no"), hold=lambda _: None)],
    ],
)
def test_whatever_changes_is_seen_and_not_by_who_looked_before(
    states: TableStates, change: Callable[[TableStates], object]
) -> None:
    before = states.snapshot()
    as_it_was = [dataclasses.replace(one) for one in before]
    change(states)
    assert states.snapshot(S) == states.snapshot() == [states.get(T, S)]
    assert [one for one in states.catching_up() if one not in states.snapshot()] == []
    assert before == as_it_was


def test_what_was_removed_is_not_seen_when_it_is_there_again(states: TableStates) -> None:
    states.note(T, S, rows=5)
    states.snapshot()
    states.remove(T, S)
    assert states.snapshot() == []
    states.add(T, S, "items")
    assert states.snapshot()[0].rows == 0


class Home:
    """States that are made anew from the same notes, as at each start, with a wall clock far from the other."""

    def __init__(self) -> None:
        self.notes = MemoryNotes()
        self.now = 0.0
        self.started = 0.0

    def start(self) -> TableStates:
        self.started = self.now
        made = TableStates(self.notes, lambda: self.now - self.started, lambda: 1000.0 + self.now)
        made.add(T, S, "public.items")
        return made

    def age(self, state: TableState) -> float:
        return self.now - self.started - state.since


@pytest.fixture
def home() -> Home:
    return Home()


def test_a_paused_table_shows_that_its_parked_changes_are_lost_and_no_other_error(home: Home) -> None:
    states = home.start()
    states.set(T, S, State.ERROR, ParkedLost("it is gone", hint="resync"))
    states.pause(T, S)
    for found in (states.get(T, S), home.start().get(T, S)):
        assert (found.state, str(found.error)) == (State.PAUSED, "it is gone\nhint: resync")
    states.set(T, S, State.ERROR, TableError("wrong"))
    assert (states.get(T, S).state, states.get(T, S).error) == (State.PAUSED, None)
    states.set(T, S, State.ERROR, ParkedLost("it is gone", hint="resync"))
    states.unpause(T, S)
    assert (states.get(T, S).state, states.get(T, S).error) == (State.NEW, None)


def test_a_paused_table_says_that_it_was_set_back_in_the_lake(home: Home) -> None:
    states, held = home.start(), list[str]()
    states.pause(T, S)
    assert not states.fail(T, TableError("wrong"), hold=held.append)
    for is_news in (True, False):
        assert states.fail(T, LakeRewound("it was set back", hint="resync"), hold=held.append) is is_news
        for found in (states.get(T, S), home.start().get(T, S)):
            assert (found.state, str(found.error)) == (State.PAUSED, "it was set back\nhint: resync")
    assert held == [], "it holds its source already, or its changes are parked"
    states.unpause(T, S)
    assert states.get(T, S).error is None


def test_a_paused_table_is_paused_after_a_restart_until_it_is_resumed(home: Home) -> None:
    home.start().pause(T, S)
    home.now = 7.0
    states = home.start()
    found = states.get(T, S)
    assert (found.state, found.is_paused, home.age(found)) == (State.PAUSED, True, 7.0)
    for state in (State.NEW, State.CATCHING_UP, State.STREAMING, State.ERROR):
        states.set(T, S, state, TableError("x") if state is State.ERROR else None)
        assert (states.get(T, S).state, states.get(T, S).error) == (State.PAUSED, None)
    states.activate(T, S, 1)
    assert not states.is_active(T, S, 1)
    states.unpause(T, S)
    assert states.get(T, S).state is State.NEW
    assert home.start().get(T, S).state is State.NEW


def test_a_copy_under_way_is_finished_before_the_pause_shows(home: Home) -> None:
    states = home.start()
    states.set(T, S, State.COPYING)
    states.pause(T, S)
    assert states.get(T, S).state is State.COPYING
    assert home.start().get(T, S).state is State.PAUSED
    states.set(T, S, State.CATCHING_UP)
    assert states.get(T, S).state is State.PAUSED


def test_an_error_keeps_its_since_until_the_table_streams(home: Home) -> None:
    states = home.start()
    states.set(T, S, State.ERROR, TableError("first", hint="mend it"))
    home.now = 4.0
    states = home.start()
    found = states.get(T, S)
    assert (found.state, str(found.error), home.age(found)) == (State.ERROR, "first\nhint: mend it", 4.0)
    assert isinstance(found.error, EarlierError), "its words are known, and not what they meant"
    states.set(T, S, State.NEW)
    states.set(T, S, State.CATCHING_UP)
    home.now = 9.0
    states.set(T, S, State.ERROR, TableError("second"))
    assert (str(states.get(T, S).error), home.age(states.get(T, S))) == ("second", 9.0)
    states.set(T, S, State.STREAMING)
    assert home.start().get(T, S).state is State.NEW
    states.set(T, S, State.ERROR, TableError("third"))
    assert home.age(states.get(T, S)) == 0.0


def test_a_copy_that_is_due_is_due_after_a_restart(home: Home) -> None:
    states = home.start()
    states.resync(T, S, is_due=True)
    states = home.start()
    assert states.get(T, S).is_resync_due
    states.resync(T, S, is_due=False)
    assert not home.start().get(T, S).is_resync_due


@pytest.mark.parametrize("is_due", [True, False])
def test_a_copy_of_all_stays_due_whatever_comes_of_a_repair(home: Home, is_due: bool) -> None:
    states = home.start()
    states.resync(T, S, is_due=True)
    states.resync(T, S, is_due=is_due, is_repair=True)
    found = home.start().get(T, S)
    assert found.is_resync_due
    assert not found.is_repair


def test_the_next_attempt_is_forgotten_with_the_state(states: TableStates) -> None:
    states.set(T, S, State.ERROR, TableError("wrong"))
    states.note(T, S, retry_at=12.0)
    assert states.get(T, S).retry_at == 12.0
    states.set(T, S, State.NEW)
    assert states.get(T, S).retry_at is None


def test_what_was_noted_of_all_members_is_noted_of_each(home: Home) -> None:
    states = home.start()
    states.pause(T, S)
    states = home.start()
    for member in (f"{S}/1", f"{S}/2"):
        states.add(T, member, "public.items_1")
    states.spread(S)
    states.unpause(T, f"{S}/1")
    states = home.start()
    for member in (f"{S}/1", f"{S}/2", f"{S}/3"):
        states.add(T, member, "public.items_1")
    states.spread(S)
    assert [states.get(T, f"{S}/{number}").is_paused for number in (1, 2, 3)] == [False, True, False]
    assert states.get(T, f"{S}/1").database == S
    assert (states.get(T, f"{S}/1").key, states.get(T, f"{S}/1").label) == (f"{T}/1", f"{T}/public.items_1")
    assert (states.get(T, S).key, states.get(T, S).label) == (T, T)


def test_a_table_that_was_removed_is_nobodys(home: Home) -> None:
    states = home.start()
    states.pause(T, S)
    states.remove(T, S)
    states.set(T, S, State.STREAMING)
    states.note(T, S, retry_at=1.0)
    states.resync(T, S, is_due=True)
    states.note(T, S, rows=1)
    assert (states.get(T, S).state, states.snapshot()) == (State.ERROR, [])
    assert not home.start().get(T, S).is_paused


def test_a_table_has_another_name(states: TableStates) -> None:
    states.rename(T, S, "public.other")
    assert states.get(T, S).table == "public.other"


def test_what_is_asked_for_all_the_time_is_found_without_looking_at_all(states: TableStates) -> None:
    states.add(T, "us", "public.items")
    states.add("shop.users", "eu/7", "public.users_7")
    assert [state.key for state in states.snapshot(S)] == [T, "shop.users/7"]
    assert states.snapshot("nobody") == states.catching_up() == []
    states.activate(T, S, 1)
    states.activate("shop.users", "eu/7", 1)
    assert [(state.target, state.source) for state in states.catching_up()] == [(T, S), ("shop.users", "eu/7")]
    states.set(T, S, State.STREAMING)
    states.remove("shop.users", "eu/7")
    assert states.catching_up() == []
    assert states.snapshot(S) == [states.get(T, S)]


def test_a_source_that_begins_anew_has_its_tables_as_at_a_start_and_what_was_counted(clock: Clock) -> None:
    notes = MemoryNotes()
    states = TableStates(notes, clock)
    for target in (T, "shop.others", "shop.gone", "shop.moved"):
        states.add(target, S, f"public.{target[5:]}")
    states.add("shop.parts", f"{S}/7", "public.parts_1")
    states.add(T, "us", "public.items")
    states.rename(T, S, "public.things", "public.items")
    states.activate(T, S, 3)
    states.note(T, S, rows=5, commits=2, copied_rows=7, why_copy="once")
    states.pause("shop.others", S)
    states.pause("shop.gone", S)
    states.begin_anew(S, {T: "public.items", "shop.others": "public.others", "shop.moved": "public.new"})
    found = {(one.target, one.source): one for one in states.snapshot()}
    assert found.keys() == {(T, S), ("shop.others", S), (T, "us")}
    mine = found[T, S]
    assert (mine.state, mine.table, mine.rows, mine.commits, mine.copied_rows, mine.why_copy) == (
        State.NEW, "public.items", 5, 2, 7, "")  # fmt: skip
    assert found["shop.others", S].is_paused
    assert not states.is_active(T, S, 3)
    assert not states.catching_up()
    states.add("shop.gone", S, "public.gone")
    assert states.get("shop.gone", S).is_paused, "what was noted is there when it comes back"


def test_of_a_source_that_goes_to_another_process_nothing_is_noted_later(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = MemoryNotes()
    states = TableStates(notes, clock)
    for source in (S, "us"):
        states.add(T, source, "public.items")
        states.activate(T, source, 1)
    with monkeypatch.context() as patch:
        patch.setattr(notes, "put", lambda _: (_ for _ in ()).throw(StateError("no room")))
        for source in (S, "us"):
            states.fail(T, TableError("wrong"), hold=lambda _: None, source=source)
    states.begin_anew(S, {})
    states.pause(T, "us")
    assert notes.all().keys() == {(T, "us")}


def never() -> None:
    raise AssertionError


def test_a_table_that_goes_up_to_an_lsn_stops_there_for_whoever_gathers_what_came_over_that_connection(
    states: TableStates,
) -> None:
    states.activate(T, S, 3, 500)
    assert [states.end(T, S, epoch) for epoch in (3, 4)] == [500, 500]
    assert states.begin_copy(T, S, hold=lambda: None)
    assert states.get(T, S).state is State.COPYING
    assert not states.begin_copy(T, S, hold=never), "it does not follow"
    states.activate(T, S, 5)
    assert [states.end(T, S, epoch) for epoch in (4, 5, 6)] == [500, None, None]
    states.activate(T, S, 7, 900)
    states.go_on(T, S, 8)
    assert [states.end(T, S, epoch) for epoch in (7, 8)] == [900, None]
    states.remove(T, S)
    assert states.end(T, S, 7) is None
