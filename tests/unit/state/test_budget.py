from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuvasz.state.budget import Budget


def test_full_at_the_high_mark_until_the_low_mark():
    budget = Budget(100, 40)
    budget.add("eu", 99)
    assert not budget.is_full_for("eu")
    budget.add("eu", 1)
    assert budget.is_full_for("eu")
    budget.remove({"eu": 59})
    assert budget.is_full_for("eu")
    budget.remove({"eu": 1})
    assert not budget.is_full_for("eu")
    assert (budget.bytes, budget.peak_bytes) == (40, 100)


def test_waiters_are_woken_once_when_room_is_made():
    budget, woken = Budget(100), []
    budget.add("eu", 200)
    budget.when_room("eu", lambda: woken.append(1))
    budget.remove({"eu": 100})
    assert woken == []
    budget.remove({"eu": 50})
    assert woken == [1]
    budget.add("eu", 100)
    budget.remove({"eu": 150})
    assert woken == [1]


def test_a_waiter_is_called_at_once_while_there_is_room():
    budget, woken = Budget(100), []
    budget.when_room("eu", lambda: woken.append(1))
    assert woken == [1]


def test_a_forgotten_waiter_sleeps_on():
    budget, woken = Budget(10), []

    def wake() -> None:
        woken.append(1)

    budget.add("eu", 10)
    budget.when_room("eu", wake)
    budget.forget(wake)
    budget.remove({"eu": 10})
    assert woken == []


def test_water_marks_must_fit():
    with pytest.raises(ValueError, match="low 10, high 10"):
        Budget(10, 10)


def test_one_that_fills_it_keeps_no_other_from_its_share():
    budget = Budget(100)
    budget.add("flood", 300)
    assert budget.is_full_for("flood")
    assert not budget.is_full_for("quiet")
    budget.add("quiet", 12)  # a quarter for the two
    assert not budget.is_full_for("quiet")
    budget.add("quiet", 1)
    assert budget.is_full_for("quiet")


def test_one_that_is_within_its_share_again_is_woken_before_there_is_room_for_all():
    budget, woken = Budget(100), []
    budget.add("flood", 300)
    budget.add("quiet", 50)
    for source in ("flood", "quiet"):
        budget.when_room(source, lambda source=source: woken.append(source))
    budget.remove({"quiet": 40})
    assert woken == ["quiet"]
    budget.remove({"flood": 300})
    assert woken == ["quiet", "flood"]


def test_a_row_larger_than_the_share_waits_only_for_itself():
    budget = Budget(100)
    budget.add("flood", 100)
    budget.add("large", 500)
    assert budget.is_full_for("large")
    budget.remove({"large": 500})
    assert not budget.is_full_for("large")


SOURCES = ("a", "b", "c", "d")


@given(
    st.lists(st.tuples(st.sampled_from(SOURCES), st.integers(1, 60), st.booleans()), max_size=60),
)
def test_nobody_waits_who_has_nothing_and_all_may_go_on_in_the_end(steps: list[tuple[str, int, bool]]) -> None:
    """Readers add one delivery when they have room; the worker takes out what a source has, whole."""
    budget, of, waiting = Budget(100), dict.fromkeys(SOURCES, 0), set()
    for source, count, is_worker in steps:
        if is_worker:
            budget.remove({source: of[source]})
            of[source] = 0
        elif budget.is_full_for(source):
            waiting.add(source)
            budget.when_room(source, lambda source=source: waiting.discard(source))
        else:
            budget.add(source, count)
            of[source] += count
        assert budget.bytes == sum(of.values())
        assert budget.bytes < 100 + 25 + len(SOURCES) * 60, "what shares add to it is bounded"
        assert all(of[one] for one in waiting), "who has nothing in flight has room"
        assert all(budget.is_full_for(one) for one in waiting), "who has room is woken"
    budget.remove(of)
    assert not waiting
    assert not any(budget.is_full_for(source) for source in SOURCES)
