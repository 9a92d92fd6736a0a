from __future__ import annotations

import contextlib
import threading

import pytest

from kuvasz.lake.copies.turns import CopyTurns


def never() -> bool:
    return False


def taken(turns: CopyTurns, stack: contextlib.ExitStack, server: str = "a:5432") -> float:
    return stack.enter_context(turns.turn(server, lambda: True))


@pytest.mark.parametrize(
    ("rate", "most", "sessions"), [(1, 8, 1), (100_000, 8, 1), (100_001, 8, 2), (10**6, 8, 8), (250_000, 2, 2)]
)
def test_sessions_share_the_rate(rate: int, most: int, sessions: int) -> None:
    turns = CopyTurns(rate, most)
    with contextlib.ExitStack() as stack:
        given = [taken(turns, stack) for _ in range(sessions)]
        assert sum(given) == pytest.approx(rate)
        assert taken(turns, stack) == 0, "there is no other turn; whoever is over waits for none"
        assert taken(turns, stack, "b:5432") == pytest.approx(rate / sessions), "each server has its own"
    with contextlib.ExitStack() as stack:
        assert taken(turns, stack) == pytest.approx(rate / sessions)


def test_without_a_rate_nobody_waits() -> None:
    turns = CopyTurns(None, 1)
    with contextlib.ExitStack() as stack:
        assert [taken(turns, stack) for _ in range(5)] == [0.0] * 5


def test_a_turn_is_waited_for() -> None:
    turns = CopyTurns(1000, 4)
    given: list[float] = []

    def wait() -> None:
        with turns.turn("a:5432", never) as rows_per_second:
            given.append(rows_per_second)

    with turns.turn("a:5432", never):
        waiting = threading.Thread(target=wait)
        waiting.start()
        waiting.join(0.3)
        assert given == []
    waiting.join(5)
    assert given == [1000]
