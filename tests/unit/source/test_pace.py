from __future__ import annotations

import pytest

from kuvasz.source.pace import Pace


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_rows_come_at_the_rate_whatever_the_pieces(clock: Clock) -> None:
    pace = Pace(1000, clock, clock.sleep)
    for rows in (1, 500, 3000, 0, 1499):
        pace.took(rows, rows * 50)
    assert clock.now == pytest.approx(5.0)


def test_little_is_caught_up_on(clock: Clock) -> None:
    """What takes its time between the pieces costs no rows, but a long pause is followed by no flood."""
    pace = Pace(1000, clock, clock.sleep)
    for _ in range(10):
        clock.now += 0.05
        pace.took(100, 5000)
    assert clock.now == pytest.approx(1.0)
    clock.now += 60
    pace.took(1000, 50000)
    assert clock.now == pytest.approx(61.0)
    pace.took(1000, 50000)
    assert clock.now == pytest.approx(62.0)


def test_gulps_fit_the_rate(clock: Clock) -> None:
    pace = Pace(20_000, clock, clock.sleep)
    assert pace.gulp_bytes == 100_000, "a twentieth of a second's rows of 100 bytes"
    pace.took(1000, 20_000)
    assert pace.gulp_bytes == 20_000
    assert Pace(1, clock, clock.sleep).gulp_bytes == 4096
    assert Pace(1e9, clock, clock.sleep).gulp_bytes == 1 << 20
