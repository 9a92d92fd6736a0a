from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kuvasz.errors import SourceError
from kuvasz.source.reading import gulps
from kuvasz.source.reading.ends import StreamWatch
from kuvasz.source.reading.facts import ReaderFacts
from kuvasz.source.reading.gulps import Gulps
from kuvasz.source.reading.options import ReaderOptions

OPTIONS = ReaderOptions(gulp_bytes=1000, gulp_s=0.5, longest_gulp_s=0.5, quiet_bytes=100)


class World:
    """Gulps, a clock that stands still, and a connection that says how much it holds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(gulps, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.connection: Any = SimpleNamespace(gathered_bytes=0)
        self.facts = ReaderFacts()
        nobody: Any = SimpleNamespace(inboxes=(), progress=None, budget=None)
        unused: Any = None
        self.left: list[asyncio.Future[Any]] = []
        self.announced: list[Sequence[int]] = []
        self.assembler: Any = SimpleNamespace(hear=lambda _: False, received_lsn=0)
        self.gulps = Gulps(
            "eu", OPTIONS, self.assembler, nobody, self.facts, unused,
            watch=StreamWatch(on_describing=self.announced.append), on_left=self.left.append,
        )  # fmt: skip

    def hear(self, added: int, held: int) -> None:
        self.connection.gathered_bytes = held
        self.gulps.hear(self.connection, added)

    def is_due(self, added: int) -> bool:
        return self.gulps.is_due(self.connection, added)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_nothing_is_never_due(world: World) -> None:
    world.now += 1000
    assert not world.is_due(0)


def test_it_is_due_when_nothing_more_is_coming(world: World) -> None:
    world.hear(500, 500)
    assert not world.is_due(500)
    assert world.is_due(99)


def test_it_is_due_when_it_is_large(world: World) -> None:
    world.hear(500, 500)
    world.hear(499, 999)
    assert not world.is_due(500)
    world.hear(1, 1000)
    assert world.is_due(500)


def test_it_is_due_when_its_first_bytes_are_old(world: World) -> None:
    world.hear(200, 200)
    world.now += 0.4
    world.hear(200, 400)
    assert not world.is_due(200)
    world.now += 0.1
    assert world.is_due(200), "the later bytes do not make it younger"


def test_what_came_is_noted_and_ends_an_error(world: World) -> None:
    world.facts.error = SourceError("no answer")
    world.hear(200, 200)
    world.hear(50, 250)
    assert (world.facts.bytes, world.facts.last_message_at, world.facts.error) == (250, 100.0, None)


def test_who_waits_for_the_end_of_a_reader_is_told_of_the_thread_that_goes_on(world: World) -> None:
    """It may ask the source, and have the lake follow, by a map that is no more in use."""
    goes_on = threading.Event()

    def feed(*_: object) -> list[Any]:
        assert goes_on.wait(30)
        return []

    world.assembler.feed = feed
    message = bytearray(25) + b"R" + bytes(4)
    world.connection.gulp = lambda: (message, np.array([len(message)], np.uint32))

    async def run() -> None:
        task = asyncio.ensure_future(world.gulps.route(world.connection))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (job,) = world.left
        assert not job.done()
        goes_on.set()
        assert await job == []

    asyncio.run(run())


#: More than any pool has threads.
SILENT = 300


def test_sources_that_do_not_describe_their_tables_keep_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever alters a table and then says nothing keeps the thread that routes its gulp."""
    silence, message = threading.Event(), bytearray(25) + b"R" + bytes(4)

    def one(feed: Callable[..., list[Any]]) -> Gulps:
        world = World(monkeypatch)
        world.assembler.feed = feed
        world.assembler.take_reply_wanted = lambda: False
        nobody: Any = SimpleNamespace(received=lambda *_: None)
        world.gulps._progress = nobody
        return world.gulps

    def connection() -> Any:
        return SimpleNamespace(
            gathered_bytes=len(message), clear=lambda: None,
            gulp=lambda: (message, np.array([len(message)], np.uint32)),
        )  # fmt: skip

    def silent(*_: object) -> list[Any]:
        silence.wait(60)
        return []

    async def run() -> None:
        tasks = [asyncio.create_task(one(silent).route(connection())) for _ in range(SILENT)]
        try:
            await asyncio.sleep(0.1)
            async with asyncio.timeout(10):
                await one(lambda *_: []).route(connection())
        finally:
            silence.set()
            await asyncio.gather(*tasks)

    asyncio.run(run())
