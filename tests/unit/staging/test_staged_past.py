"""What a slot has to agree with."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from kuvasz.config.model import ClusterRole
from kuvasz.errors import SourceError
from kuvasz.staging.staged_log import StagedLog
from kuvasz.staging.staged_past import StagedPast
from kuvasz.state.ports import SourceRecord
from kuvasz.state.progress import Progress
from kuvasz.state.staged.memory import MemoryIndex
from kuvasz.state.staged.ports import SourcesMoved, StagedPosition
from tests.support.memory_store import MemoryStore
from tests.support.staged_world import Process


@pytest.fixture
def log() -> Iterator[StagedLog]:
    index = MemoryIndex()
    made = StagedLog(index, MemoryStore(), interval_s=1, object_bytes=100, sources=1)
    made.open()
    yield made
    made.close()


def test_without_a_log_only_progress_counts() -> None:
    progress = Progress()
    past = StagedPast(None, "eu", progress)
    past.take_up(50)
    assert (past.is_known, past.ended_lsn, past.standing(SourceRecord())) == (False, 0, SourceRecord())
    past.begin_anew(100)
    assert progress.confirmable("eu") == 100
    past.set_back(70)
    assert progress.confirmable("eu") == 70


def test_what_is_staged_is_what_a_server_was_told(log: StagedLog) -> None:
    progress = Progress()
    past = StagedPast(log, "eu", progress)
    assert past.standing(SourceRecord(confirmed_lsn=9)).confirmed_lsn == 9
    past.take_up(100)
    past.take_up(500)
    assert log.source("eu").known == StagedPosition(lsn=100, ended=0, number=0, applied=100)
    assert (past.is_known, past.standing(SourceRecord()).confirmed_lsn) == (True, 100)
    assert progress.confirmable("eu") == 0, "the lake may lack what is staged"
    past.set_back(80)
    assert (past.standing(SourceRecord()).confirmed_lsn, progress.confirmable("eu")) == (80, 80)
    past.begin_anew(300)
    assert (log.source("eu").known.lsn, progress.confirmable("eu"), past.ended_lsn) == (300, 300, 0)


def test_what_is_staged_of_a_server_while_another_one_is_looked_at_is_compared_with_that() -> None:
    """Else what only the old one has would be applied, and as much of the new one left out as if it had come."""
    index = MemoryIndex()
    past = StagedPast(Process(index, {}, ClusterRole.APPLY).log, "eu", Progress())
    past.take_up(100)
    for ended in (120, 140):
        past.look()
        at = index.positions()["eu"]
        moved = dataclasses.replace(at, lsn=ended, ended=ended, number=at.number + 1)
        index.append(str(ended), [], {"eu": (at, moved)})
        with pytest.raises(SourceError, match="more of the server before was staged"):
            past.set_back(110)
        with pytest.raises(SourcesMoved):
            index.append("late", [], {"eu": (moved, dataclasses.replace(moved, number=9))})
        past.look()
        assert past.ended_lsn == ended
    past.set_back(110)
