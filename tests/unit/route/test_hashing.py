from __future__ import annotations

import collections

import pytest

from kuvasz.route.hashing import owner_of, worker_of


def test_workers_are_the_same_in_every_version():
    # These numbers may never change: a table's position index lies with its worker.
    assert [worker_of(f"shop.table_{number}", 4) for number in range(8)] == EXPECTED


def test_tables_spread_evenly():
    counts = collections.Counter(worker_of(f"shop.table_{number}", 4) for number in range(2000))
    assert all(400 < counts[worker] < 600 for worker in range(4))


def test_one_more_worker_moves_only_what_it_takes_over():
    for number in range(500):
        before, after = worker_of(f"t{number}", 4), worker_of(f"t{number}", 5)
        assert after in {before, 4}


def test_no_workers():
    with pytest.raises(ValueError, match="empty"):
        worker_of("t", 0)


EXPECTED: list[int] = [2, 2, 1, 1, 1, 3, 2, 1]


def test_some_targets_have_workers_of_their_own_behind_the_others() -> None:
    own = ("every day", "every hour")
    assert [owner_of(name, 4, own) for name in own] == [4, 5]
    assert owner_of("shop.items", 4, own) == worker_of("shop.items", 4)
