from __future__ import annotations

import pytest

from kuvasz.state.budget import Budget


def test_full_at_the_high_mark_until_the_low_mark():
    budget = Budget(100, 40)
    budget.add(99)
    assert not budget.is_full
    budget.add(1)
    assert budget.is_full
    budget.remove(59)
    assert budget.is_full
    budget.remove(1)
    assert not budget.is_full
    assert (budget.bytes, budget.peak_bytes) == (40, 100)


def test_waiters_are_woken_once_when_room_is_made():
    budget, woken = Budget(100), []
    budget.add(200)
    budget.when_room(lambda: woken.append(1))
    budget.remove(100)
    assert woken == []
    budget.remove(50)
    assert woken == [1]
    budget.add(100)
    budget.remove(150)
    assert woken == [1]


def test_a_waiter_is_called_at_once_while_there_is_room():
    budget, woken = Budget(100), []
    budget.when_room(lambda: woken.append(1))
    assert woken == [1]


def test_a_forgotten_waiter_sleeps_on():
    budget, woken = Budget(10), []

    def wake() -> None:
        woken.append(1)

    budget.add(10)
    budget.when_room(wake)
    budget.forget(wake)
    budget.remove(10)
    assert woken == []


def test_water_marks_must_fit():
    with pytest.raises(ValueError, match="low 10, high 10"):
        Budget(10, 10)
