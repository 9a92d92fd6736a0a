"""A server that asks for replies over and over is shutting down."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kuvasz.source.reading.shutdown import PATIENCE_S, ShutdownWatch


def told(times: Sequence[float], received: Sequence[int] = (9,), confirmed: Sequence[int] = (5,)) -> bool:
    watch = ShutdownWatch()
    answers = [
        watch.asked(now, received[min(place, len(received) - 1)], confirmed[min(place, len(confirmed) - 1)])
        for place, now in enumerate(times)
    ]
    assert not any(answers[:-1])
    return answers[-1]


def test_who_asks_at_once_after_each_reply_is_shutting_down() -> None:
    assert told([100 + PATIENCE_S * place / 50 for place in range(51)])


@pytest.mark.parametrize(
    "times",
    [
        [100.0 + 30 * place for place in range(30)],  # half of wal_sender_timeout
        [100 + 0.001 * place for place in range(200)],  # what is on its way may still come
        [100.0, 100.5, 101.0, 105.0, 105.1],
    ],
    ids=["rarely", "not for long", "now and then"],
)
def test_who_asks_otherwise_is_not(times: Sequence[float]) -> None:
    assert not told(times)


def test_what_is_still_sent_or_confirmed_begins_the_count_anew() -> None:
    times = [100 + PATIENCE_S * place / 50 for place in range(60)]
    assert not told(times, received=range(60))
    assert not told(times, confirmed=range(60))
