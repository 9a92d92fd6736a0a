from __future__ import annotations

import pytest

from kuvasz.worker.flush import FlushPolicy, Waiting

SMALL = FlushPolicy(interval_s=1.0, bytes=100)
LARGE = FlushPolicy(interval_s=1.0, bytes=64 << 20)


def waiting(size: int, tables: int = 1, *, since: float = 10.0, last: float | None = None) -> Waiting:
    """What waits, and still comes unless it is said when the last of it came."""
    return Waiting(bytes=size, tables=tables, since=since, last=1e9 if last is None else last, last_begin=10.0)


@pytest.mark.parametrize(
    ("size", "now", "wait"),
    [
        (1, 10.0, 1.0),
        (12, 10.25, 0.75),
        (13, 10.25, 0.0),  # an eighth of the most: a backlog is worked off without a pause
        (1, 11.0, 0.0),
        (1, 99.0, 0.0),  # after a quiet time the first change is on its way at once
        (100, 10.0, 0.0),
    ],
)
def test_waits_for_the_interval_or_the_bytes(size: int, now: float, wait: float) -> None:
    assert SMALL.wait(waiting(size), now) == pytest.approx(wait)


@pytest.mark.parametrize(
    ("tables", "enough", "interval_s"),
    [(1, 8 << 20, 1.0), (9, 8 << 20, 1.0), (11, 10 << 20, 1.0), (51, 50 << 20, 3.0), (501, 64 << 20, 30.0)],
)
def test_the_more_tables_are_dirty_the_more_is_gathered_for_their_commits(
    tables: int, enough: int, interval_s: float
) -> None:
    for size, wait in ((enough, 0.0), (enough - 1, interval_s - 0.25)):
        assert LARGE.wait(waiting(size, tables), 10.25) == pytest.approx(wait)


def test_a_trickle_into_many_tables_is_committed_at_half_of_a_core() -> None:
    for now, wait in ((10.25, 3.75), (14.0, 0.0)):
        assert LARGE.wait(waiting(200_000, tables=101), now) == pytest.approx(wait)


def test_a_flood_into_many_tables_is_given_time_to_gather_and_a_transaction_is_not() -> None:
    assert LARGE.wait(waiting(1 << 20, tables=101, since=98.5), 99.0) == pytest.approx(5.5)
    assert LARGE.wait(waiting(1 << 20, tables=1, since=98.5), 99.0) == 0.0


def test_the_first_changes_of_many_tables_wait_to_be_told_from_a_floods_first() -> None:
    for tables, wait in ((1, 0.0), (2, 0.02), (6, 0.1), (100, 0.2)):
        assert LARGE.wait(waiting(1, tables, since=99.0), 99.0) == pytest.approx(wait)
    assert LARGE.wait(waiting(100_000, tables=100, since=98.8), 99.0) == 0.0


def test_a_flood_that_is_over_is_not_waited_for() -> None:
    flood = waiting(8 << 20, tables=101, since=98.5, last=98.9)
    assert LARGE.wait(flood, 99.0) == pytest.approx(0.2)
    assert LARGE.wait(flood, 99.25) == 0.0
    # A burst that brought little for each table is no flood, and an interval that was asked for is kept.
    assert LARGE.wait(waiting(5 << 20, tables=101, since=10.0, last=10.1), 11.25) == pytest.approx(4.75)
    assert LARGE.wait(waiting(8 << 20, tables=101, since=10.0, last=10.1), 10.5) == pytest.approx(0.5)


def test_one_table_is_committed_as_often_as_was_asked_for() -> None:
    policy = FlushPolicy(interval_s=0.01, bytes=64 << 20)
    for size in (1, 1 << 20):
        assert policy.wait(waiting(size), 10.004) == pytest.approx(0.006)


@pytest.mark.parametrize(("tables", "most"), [(1, 64 << 20), (11, 74 << 20), (100, 96 << 20)])
def test_more_is_taken_at_once_where_commits_cost_much(tables: int, most: int) -> None:
    assert LARGE.most(tables) == most
