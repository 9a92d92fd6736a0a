"""Waits double up to the last, and begin again after a success."""

from __future__ import annotations

import pytest

from kuvasz.backoff import Backoff


def test_waits_double_up_to_the_last() -> None:
    backoff = Backoff(1, 5)
    assert [backoff.next_s() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.reset()
    assert backoff.next_s() == 1


@pytest.mark.parametrize(("jitter", "wait"), [(0.0, 2), (0.5, 4), (1.0, 6)])
def test_jitter_spreads_around_the_wait(jitter: float, wait: float) -> None:
    assert Backoff(4, 8).next_s(jitter) == wait
