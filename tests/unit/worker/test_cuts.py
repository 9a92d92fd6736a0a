"""Cuts of one worker's tables, in the lake in memory."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from kuvasz.errors import CutRefused
from kuvasz.lake.memory.lake import MemoryLake
from kuvasz.model import SourcePosition
from kuvasz.state.memory import MemoryNotes
from kuvasz.state.progress import Progress
from kuvasz.state.tables import TableStates
from kuvasz.worker import cuts as module
from kuvasz.worker.cuts import Cuts
from kuvasz.worker.workers import Workers
from tests.support.changes import ITEMS, TARGET, feed, target


class Idle:
    """A worker with nothing to do; in the middle of a cut something may happen."""

    def __init__(self, meanwhile: Any) -> None:
        self.cut = lambda _: meanwhile()

    def go_on(self) -> None: ...

    def has_begun_all(self, _: object) -> bool:
        return True

    def begun(self) -> int:
        return 0

    def has_ended(self, *_: object) -> bool:
        return True


def streaming() -> tuple[MemoryLake, Progress, TableStates]:
    """Return a lake, and what is known of it, with one table that streams up to 0/7D0."""
    lake, progress, states = MemoryLake(), Progress(), TableStates(MemoryNotes())
    lake.prepare(target(), feed(), ITEMS)
    lake.copy(feed(), ITEMS, [], SourcePosition(lsn=1000), lambda *_: None)
    states.add(TARGET, "eu", "items")
    states.activate(TARGET, "eu", 1)
    (seen,) = states.snapshot()
    states.promote(seen)
    progress.received("eu", 2000)
    return lake, progress, states


@pytest.mark.timeout(30)
def test_a_table_of_cuts_that_does_not_answer_keeps_neither_the_cut_nor_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake, progress, states = streaming()
    answers = threading.Event()
    monkeypatch.setattr(module, "_TELLING_S", 0.01)
    monkeypatch.setattr(lake.about, "write", lambda _: answers.wait())
    idle: Any = Idle(lambda: None)
    try:
        made = asyncio.run(Cuts(Workers([idle]), lake, states, progress).make("cut_a", ["eu"], 60.0))
        assert made.lsns == {"eu": 2000}
    finally:
        answers.set()


@pytest.mark.parametrize("leaves", [False, True])
def test_a_source_that_leaves_the_map_meanwhile_is_in_no_cut(leaves: bool) -> None:
    """What waited of it was dropped, so its tables may show less than the cut says."""
    lake, progress, states = streaming()

    def leave() -> None:
        if leaves:
            progress.forget("eu")
            states.begin_anew("eu", {})

    idle: Any = Idle(leave)
    cuts = Cuts(Workers([idle]), lake, states, progress)
    if not leaves:
        made = asyncio.run(cuts.make("cut_a", ["eu"], 60.0))
        assert (made.lsns, made.snapshots.keys()) == ({"eu": 2000}, {TARGET})
        return
    with pytest.raises(CutRefused, match=r"^source eu: its source is being read again from before 0/7D0\n"):
        asyncio.run(cuts.make("cut_a", ["eu"], 60.0))
    assert not lake.tags.rows
