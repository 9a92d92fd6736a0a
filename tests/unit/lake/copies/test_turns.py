from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import pytest

from kuvasz.lake.copies.turns import CopyTurns, Limits


def never() -> bool:
    return False


def of(rows_per_second: int | None, sessions: int | None = None) -> Callable[[], Limits]:
    return lambda: (rows_per_second, sessions)


def taken(
    turns: CopyTurns, stack: contextlib.ExitStack, limits: Callable[[], Limits], server: str = "a:5432"
) -> float:
    return stack.enter_context(turns.turn(server, limits, lambda: True))


@pytest.mark.parametrize(
    ("rate", "most", "wanted", "sessions"),
    [(1, 8, None, 1), (100_000, 8, None, 1), (100_001, 8, None, 2), (10**6, 8, None, 8), (250_000, 2, None, 2),
     (10**6, 8, 3, 3), (1, 8, 3, 1)],
)  # fmt: skip
def test_sessions_share_the_rate(rate: int, most: int, wanted: int | None, sessions: int) -> None:
    turns, limits = CopyTurns(most), of(rate, wanted)
    with contextlib.ExitStack() as stack:
        given = [taken(turns, stack, limits) for _ in range(sessions)]
        assert sum(given) == pytest.approx(rate)
        assert taken(turns, stack, limits) == 0, "there is no other turn; whoever is over waits for none"
        assert taken(turns, stack, limits, "b:5432") == pytest.approx(rate / sessions), "each server has its own"
    with contextlib.ExitStack() as stack:
        assert taken(turns, stack, limits) == pytest.approx(rate / sessions)


def test_without_a_rate_nobody_waits() -> None:
    turns = CopyTurns(1)
    with contextlib.ExitStack() as stack:
        assert [taken(turns, stack, of(None)) for _ in range(5)] == [0.0] * 5


def test_other_limits_count_for_who_waits_already() -> None:
    turns, limits, given = CopyTurns(4), [(None, 1)], list[float]()

    def wait() -> None:
        with turns.turn("a:5432", lambda: limits[0], never) as rows_per_second:
            given.append(rows_per_second)

    with turns.turn("a:5432", lambda: limits[0], never):
        waiting = threading.Thread(target=wait)
        waiting.start()
        waiting.join(0.3)
        assert given == [], "one session at a time"
        limits[0] = (300_000, 2)
        waiting.join(5)
        assert given == [150_000]


def test_a_turn_is_waited_for() -> None:
    turns = CopyTurns(4)
    given: list[float] = []

    def wait() -> None:
        with turns.turn("a:5432", of(1000), never) as rows_per_second:
            given.append(rows_per_second)

    with turns.turn("a:5432", of(1000), never):
        waiting = threading.Thread(target=wait)
        waiting.start()
        waiting.join(0.3)
        assert given == []
    waiting.join(5)
    assert given == [1000]
