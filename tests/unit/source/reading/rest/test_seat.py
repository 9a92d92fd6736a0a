from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kuvasz.errors import InternalError, KuvaszError, SlotLost, SourceError
from kuvasz.model import Delivery
from kuvasz.route.many import FoundGulp
from kuvasz.source.reading.facts import ReaderFacts
from kuvasz.source.reading.rest.seat import Seat
from kuvasz.source.reading.wake_up import WakeUp

HINT = FoundGulp(200, False, 0, 0, 0, [])
CHANGE = FoundGulp(200, False, 1, 200, 5, [])
DELIVERY = Delivery(source="eu", changes=(), through=200, bytes=7)


class World:
    """A seat and all around it."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.taken: Any = [(0, DELIVERY)]
        self.is_asked = False
        self.told: list[Any] = []
        self.facts = ReaderFacts(error=SourceError("no answer"))
        self.wake = WakeUp()
        connection: Any = SimpleNamespace(fileno=5, took=self._took)
        drain: Any = SimpleNamespace(hold=lambda *what: self.told.append([len(one) for one in what]))
        assembler: Any = SimpleNamespace(
            take=lambda _: self.taken, take_reply_wanted=lambda: self.is_asked, received_lsn=150
        )
        gulps: Any = SimpleNamespace(hear=lambda _, size: self.told.append(f"{size} heard"))
        clock: Any = SimpleNamespace(reply=lambda: self.told.append("answered"))
        self.seat = Seat("eu", connection, drain, assembler, gulps, self.facts, clock, self.wake)

    def _took(self, size: int) -> None:
        self.told.append(size)
        if self.error is not None:
            raise self.error


@pytest.fixture
def world() -> World:
    return World()


def test_what_is_taken_is_noted(world: World) -> None:
    assert world.seat.take(CHANGE, 90, 3.5) == [(0, DELIVERY)]
    world.taken = []
    assert world.seat.take(HINT, 18, 4.5) == []
    facts = world.facts
    assert (facts.bytes, facts.keepalive_bytes, facts.last_message_at, facts.error) == (108, 18, 4.5, None)
    assert world.told == [90, 18]
    assert (world.seat.received_lsn, world.seat.fileno, world.seat.is_called) == (150, 5, False)


def test_what_the_assembler_has_to_be_fed_is_not_noted_here(world: World) -> None:
    world.taken = None
    assert world.seat.take(CHANGE, 90, 3.5) is None
    assert world.facts.bytes == 0


@pytest.mark.parametrize("error", [SourceError("it broke"), SlotLost("gone")])
def test_what_is_wrong_with_the_connection_ends_it(world: World, error: KuvaszError) -> None:
    world.error = error
    assert not world.seat.take(CHANGE, 90, 3.5)
    assert world.wake.failure is error
    assert world.seat.is_called
    assert world.facts.bytes == 0


def test_what_nobody_foresaw_ends_it_as_a_mistake(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.error = ValueError("no such thing")
    assert not world.seat.take(CHANGE, 90, 3.5)
    assert "no such thing" in str(world.wake.failure)
    assert not isinstance(world.wake.failure, InternalError)
    assert caplog.records


def test_what_is_handed_over_is_held_and_heard_by_the_reader(world: World) -> None:
    numbers = np.zeros(2, np.int64)
    world.seat.hand_over(np.zeros(30, np.uint8), np.zeros(3, np.uint32), numbers)
    assert world.told == [[30, 3, 2], "30 heard"]
    assert world.seat.is_called
    world.seat.hand_over(np.zeros(0, np.uint8), np.zeros(0, np.uint32), numbers)
    assert world.told[2:] == [[0, 0, 2]], "it has ended, or has a message that no room was for"


def test_a_server_is_answered_that_asked(world: World) -> None:
    assert not world.seat.reply()
    world.is_asked = True
    assert world.seat.reply()
    assert world.told == ["answered"]


def test_a_reader_is_called_once_it_has_to_look(world: World) -> None:
    async def run() -> None:
        waiting = asyncio.ensure_future(world.wake.called.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        world.seat.wake()
        await waiting

    asyncio.run(run())
