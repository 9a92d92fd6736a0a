"""Sources that are given back: nothing of them is lost, and nothing is given before all of it is staged."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

from kuvasz.config.model import ClusterRole
from kuvasz.errors import StateError
from kuvasz.staging.staged_log import StagedLog
from kuvasz.staging.stretch import Stretch
from kuvasz.state.staged.memory import MemoryIndex
from kuvasz.state.staged.orders import KnownPast, StreamOrder
from kuvasz.verbs.cluster.source_handover import SourceHandover
from tests.support.memory_store import MemoryStore
from tests.support.pgoutput import keepalive


class Reading:
    """What receives a source: its last words come while it ends."""

    def __init__(self, log: StagedLog) -> None:
        self._log = log

    async def end(self) -> None:
        data = keepalive(200)
        lengths = np.array([len(data)], np.uint32)
        self._log.source("eu").add([Stretch(number=1, data=data, lengths=lengths, lsn=200, ended=200)])


class World:
    """A process that reads one source, and has another share by now."""

    def __init__(self) -> None:
        self.index, self.store = MemoryIndex(), MemoryStore()
        self.log = StagedLog(
            self.index, self.store, interval_s=0.01, object_bytes=100, sources=1, role=ClusterRole.READ
        )
        self.index.begin_anew("eu", 100)
        self.index.give("eu", StreamOrder(slot="s", publications=(), system_id="", timeline=1), KnownPast())
        self.index.hold(self.index.shared().pasts)
        self.log.open()
        assert self.log.take_over(dict(self.index.shared().pasts)) == ["eu"]
        self.handover = SourceHandover(self.log, self.index)

    async def settled(self) -> None:
        async with asyncio.timeout(60):
            while self.handover.sources:  # noqa: ASYNC110 (told by nobody)
                await asyncio.sleep(0.01)


def test_it_is_given_when_all_that_came_is_staged() -> None:
    world = World()

    async def give() -> None:
        world.store.is_away = True
        reading: Any = Reading(world.log)
        world.handover.begin("eu", reading)
        world.handover.begin("eu", None)
        async with asyncio.timeout(60):
            while world.log.writer.error is None:  # noqa: ASYNC110 (told by nobody)
                await asyncio.sleep(0.01)
        assert world.handover.sources == {"eu"}
        assert world.index.shared().holders == {"eu": world.index.node}
        world.store.is_away = False
        await world.settled()

    asyncio.run(give())
    world.log.close()
    assert world.index.shared().holders == {"eu": None}
    assert world.index.positions()["eu"].lsn == 200
    assert world.log.source("eu").is_left


def test_what_could_not_be_given_is_held_and_given_later() -> None:
    world = World()
    release, failures = world.index.release, ["no answer"]

    def fail(sources: Any) -> None:
        if failures:
            raise StateError(failures.pop())
        release(sources)

    async def give() -> None:
        world.index.release = fail  # type: ignore[method-assign]
        for holder in (world.index.node, None):
            world.handover.begin("eu", None)
            await world.settled()
            assert world.index.shared().holders == {"eu": holder}

    asyncio.run(give())
    world.log.close()


def test_it_is_cut_off_where_the_process_ends() -> None:
    world = World()

    async def give() -> None:
        world.store.is_away = True
        reading: Any = Reading(world.log)
        world.handover.begin("eu", reading)
        await asyncio.sleep(0)
        world.handover.cut_off()
        await world.settled()

    asyncio.run(give())
    world.log.close()
    assert world.index.shared().holders == {"eu": world.index.node}, "whoever takes over ends its lease"
