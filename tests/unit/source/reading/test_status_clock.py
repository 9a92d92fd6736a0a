"""The status clock with a server that writes down what it is told."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.errors import SourceError
from kuvasz.events import Event
from kuvasz.source.reading.facts import ReaderFacts
from kuvasz.source.reading.options import ReaderOptions
from kuvasz.source.reading.shutdown import ShutdownWatch
from kuvasz.source.reading.status_clock import StatusClock
from kuvasz.source.reading.wake_up import WakeUp
from kuvasz.state.progress import Progress

QUICK = ReaderOptions(status_interval_s=0.1, confirm_interval_s=0.01, silence_timeout_s=60)


class World:
    """A clock and all that it asks."""

    def __init__(self, options: ReaderOptions = QUICK) -> None:
        self.told: list[tuple[int, int, bool]] = []
        self.noted: list[int] = []
        self.error: SourceError | None = None
        self.facts, self.progress, self.wake = ReaderFacts(), Progress(), WakeUp()
        self.assembler: Any = SimpleNamespace(received_lsn=900, unproven_lsn=None)
        record: Any = SimpleNamespace(confirming=self.noted.append)
        self.clock = StatusClock("eu", options, self.facts, self.progress, self.assembler, record, self.wake)
        self.progress.restarted("eu", 1)
        self.progress.received("eu", 500)

    def send_status(self, *, written: int, flushed: int, is_reply_wanted: bool) -> None:
        assert self.noted[-1] == flushed, "it is noted before it is told"
        if self.error is not None:
            raise self.error
        self.told.append((written, flushed, is_reply_wanted))

    async def until_told(self, is_told: Callable[[], bool]) -> None:
        """Wait until the server was told something; a busy machine may take its time."""
        async with asyncio.timeout(30):
            while not is_told():  # noqa: ASYNC110 (of a server, which tells nobody)
                await asyncio.sleep(0.005)

    def run(self, life: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            connection: Any = self
            self.clock.start(connection)
            await life()
            self.clock.stop()

        asyncio.run(main())


def test_what_is_durable_is_told_and_nothing_beyond() -> None:
    world = World(
        ReaderOptions(status_interval_s=600, confirm_interval_s=0.01)
    )  # news come before the interval is over

    async def life() -> None:
        assert world.told == [(900, 500, False)]
        world.progress.routed("eu", 0, 700)
        world.progress.received("eu", 700)
        world.clock.send()
        assert world.told[-1] == (900, 500, False)
        world.progress.durable("eu", 0, 700, 1)
        await world.until_told(lambda: world.told[-1] == (900, 700, False))

    world.run(life)
    assert world.facts.confirmed_lsn == 700
    assert world.facts.last_status_at is not None


def test_nothing_is_confirmed_behind_a_transaction_that_has_yet_to_come() -> None:
    world = World()
    world.assembler.unproven_lsn = 300

    async def life() -> None:
        assert world.told == [(900, 300, False)]

    world.run(life)


def test_the_server_hears_that_we_live_though_nothing_is_new() -> None:
    world = World()

    async def life() -> None:
        await world.until_told(lambda: len(world.told) >= 3)

    world.run(life)


def test_a_server_that_drops_who_is_silent_is_told_in_time() -> None:
    world = World(ReaderOptions(status_interval_s=60, confirm_interval_s=60))
    world.clock.keep_within(0.15)

    async def life() -> None:
        await world.until_told(lambda: len(world.told) >= 3)

    world.run(life)
    world.clock.keep_within(0.0)
    assert world.clock._interval_s == 60


def test_a_silent_server_is_asked_and_then_dead() -> None:
    world = World(ReaderOptions(status_interval_s=0.02, confirm_interval_s=0.01, silence_timeout_s=0.3))
    world.facts.last_message_at = time.monotonic()

    async def life() -> None:
        async with asyncio.timeout(10):
            await world.wake.called.wait()

    world.run(life)
    assert world.told[0][2] is False
    assert world.told[-1][2] is True
    assert "source eu: nothing came from the server for 0 s" in str(world.wake.failure)


def test_a_server_that_we_do_not_listen_to_is_not_dead() -> None:
    world = World(ReaderOptions(status_interval_s=0.02, confirm_interval_s=0.01, silence_timeout_s=0.05))
    world.facts.last_message_at, world.facts.is_paused = time.monotonic(), True

    async def life() -> None:
        await asyncio.sleep(0.2)

    world.run(life)
    assert world.wake.failure is None


def test_a_status_that_cannot_be_sent_ends_the_connection() -> None:
    world = World()
    world.error = SourceError("cut")

    async def life() -> None:
        assert world.wake.failure is world.error
        assert (world.facts.confirmed_lsn, world.facts.last_status_at) == (0, None)

    world.run(life)
    world.clock.send()  # stopped: there is nobody to be told


def test_a_server_that_is_shutting_down_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr(ShutdownWatch, "asked", lambda *_: True)

    async def life() -> None:
        assert world.wake.failure is None
        world.clock.reply()
        assert len(world.told) == 2, "it has its answer"

    world.run(life)
    assert "source eu: the server is shutting down, and waits for what is not in the lake yet" in str(
        world.wake.failure
    )


def test_what_nobody_thought_of_ends_the_connection_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Else nothing is ever confirmed again of a stream that goes on, and its server keeps all WAL."""
    world = World()

    async def life() -> None:
        world.error = RuntimeError("nobody thought of this")  # type: ignore[assignment]
        await asyncio.wait_for(world.wake.called.wait(), 5)

    with caplog.at_level(logging.ERROR, "kuvasz"):
        world.run(life)
    assert world.wake.failure is not None
    assert "RuntimeError: nobody thought of this" in str(world.wake.failure)
    # Once at least: the clock goes on until whoever receives the stream ends it.
    assert {record.getMessage() for record in caplog.records} == {Event.SOURCE_UNFORESEEN.message}
