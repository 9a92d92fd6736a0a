from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.lake.executors.jobs import balance


@settings(deadline=None)  # a busy machine is no fault of ours
@given(st.lists(st.integers(0, 10**9), max_size=40), st.integers(1, 9))
def test_balance_deals_every_task_once_and_evenly(sizes: list[int], count: int) -> None:
    tasks = list(range(len(sizes)))
    lists = balance(tasks, sizes, count)
    assert sorted(task for one in lists for task in one) == tasks
    assert len(lists) == min(count, len(tasks))
    if any(sizes):
        loads = [sum(sizes[task] for task in one) for one in lists]
        assert max(loads) - min(loads) <= max(sizes)


def test_tasks_of_no_size_do_not_leave_a_core_idle_beside_a_large_one() -> None:
    assert balance(["big", "a", "b"], [10, 1, 1], 2) == [["big"], ["a", "b"]]
