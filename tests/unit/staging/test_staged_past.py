"""What a slot has to agree with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kuvasz.staging.staged_log import StagedLog
from kuvasz.staging.staged_past import StagedPast
from kuvasz.state.ports import SourceRecord
from kuvasz.state.progress import Progress
from kuvasz.state.staged.memory import MemoryIndex
from kuvasz.state.staged.ports import StagedPosition
from tests.support.memory_store import MemoryStore


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
