from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from kuvasz.sync.context.current_reader import CurrentReader, reached


def test_without_a_reader_nothing_was_heard_and_nothing_stops() -> None:
    current = CurrentReader()
    current.quiesce()
    current.stop()
    assert (current.is_there, current.heard_lsn) == (False, 0)


def test_a_reader_is_asked_and_told() -> None:
    told: list[str] = []
    reader: Any = SimpleNamespace(
        received_lsn=700, quiesce=lambda: told.append("quiesce"), stop=lambda: told.append("stop")
    )
    current = CurrentReader()
    current.reader = reader
    assert (current.is_there, current.heard_lsn) == (True, 700)
    current.quiesce()
    current.stop()
    assert told == ["quiesce", "stop"]


def test_a_reader_is_waited_for_until_it_has_begun_anew() -> None:
    async def run() -> None:
        reader: Any = SimpleNamespace(epoch=1)
        waiting = asyncio.ensure_future(reached(reader, 2))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        reader.epoch = 2
        await asyncio.wait_for(waiting, 10)

    asyncio.run(run())
