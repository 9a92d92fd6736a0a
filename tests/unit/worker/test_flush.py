from __future__ import annotations

import pytest

from kuvasz.worker.flush import FlushPolicy

POLICY = FlushPolicy(interval_s=1.0, bytes=100)


@pytest.mark.parametrize(
    ("waiting_bytes", "now", "wait"),
    [
        (1, 10.0, 1.0),
        (12, 10.25, 0.75),
        (13, 10.25, 0.0),  # an eighth of the most: a backlog is worked off without a pause
        (1, 11.0, 0.0),
        (1, 99.0, 0.0),  # after a quiet time the first change is on its way at once
        (100, 10.0, 0.0),
    ],
)
def test_waits_for_the_interval_or_the_bytes(waiting_bytes: int, now: float, wait: float) -> None:
    assert POLICY.wait(waiting_bytes=waiting_bytes, last_begin=10.0, now=now) == pytest.approx(wait)
