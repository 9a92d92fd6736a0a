"""Whether another look would show the same: only if the server says so now, of the stream that it was before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.sync.context.current_reader import CurrentReader
from kuvasz.sync.watch import standstill
from kuvasz.sync.watch.standstill import Standstill


class Stream:
    """What is asked of a reader: how far the server has sent."""

    def __init__(self, sent_lsn: int | None) -> None:
        self.sent_lsn, self.epoch, self.asked = sent_lsn, 1, 0
        self.facts = SimpleNamespace(bytes=90, keepalive_bytes=50)

    async def ask_sent_lsn(self) -> int | None:
        self.asked += 1
        self.facts.bytes += 18
        self.facts.keepalive_bytes += 18
        return self.sent_lsn


def watched(stream: Stream, end_lsn: int = 100) -> tuple[Standstill, Any]:
    current: Any = CurrentReader()
    current.reader = stream
    made = Standstill(current)
    made.begin()
    made.found(end_lsn)
    return made, current


def lasts(made: Standstill) -> bool:
    return asyncio.run(made.lasts())


@pytest.mark.parametrize(
    ("sent_lsn", "is_still"), [(90, True), (100, True), (101, False), (None, False)]
)  # fmt: skip
def test_it_lasts_while_no_more_was_sent_than_there_was(sent_lsn: int | None, *, is_still: bool) -> None:
    made, _ = watched(Stream(sent_lsn))
    assert [lasts(made), lasts(made)] == [is_still] * 2


def test_without_a_look_that_found_all_well_nobody_is_asked() -> None:
    stream = Stream(90)
    made, _ = watched(stream, end_lsn=0)
    assert (lasts(made), stream.asked) == (False, 0)
    made.found(100)
    assert lasts(made)
    made.begin()
    assert not lasts(made), "the look before has been forgotten"


def _more_comes(stream: Stream) -> None:
    stream.facts.bytes += 1


def _connects_anew(stream: Stream) -> None:
    stream.epoch += 1


@pytest.mark.parametrize("event", [_more_comes, _connects_anew])
def test_it_is_over_when_more_comes_or_the_stream_begins_anew(event: Callable[[Stream], None]) -> None:
    stream = Stream(90)
    made, _ = watched(stream)
    assert lasts(made)
    event(stream)
    assert not lasts(made)


def test_another_reader_or_none_says_nothing() -> None:
    made, current = watched(Stream(90))
    current.reader = Stream(90)
    assert not lasts(made)
    current.reader = None
    assert not lasts(made)


def test_it_is_time_to_look_now_and_then() -> None:
    made, _ = watched(Stream(90))
    found = [lasts(made) for _ in range(standstill._MOST + 1)]
    assert found == [True] * standstill._MOST + [False]
