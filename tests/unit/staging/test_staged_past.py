"""What a slot has to agree with."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from kuvasz.config.model import ClusterRole
from kuvasz.errors import SourceError, StateError
from kuvasz.staging.staged_log import StagedLog
from kuvasz.staging.staged_past import StagedPast
from kuvasz.state.ports import SourceRecord
from kuvasz.state.progress import Progress
from kuvasz.state.staged.memory import MemoryGroupIndex, MemoryIndex
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


def test_a_group_goes_on_where_its_lake_is_and_begins_anew_with_a_source_that_did() -> None:
    index = MemoryIndex()
    index.begin_anew("eu", 100)
    blue, progress = MemoryGroupIndex(index, "blue"), Progress()
    log = Process(blue, {}, ClusterRole.APPLY).log
    past = StagedPast(log, "eu", progress)
    assert past.group == "blue"
    past.look()
    assert (past.is_known, past.ended_lsn) == (False, 0)
    past.begin_anew(110)
    assert (past.is_known, progress.confirmable("eu"), log.source("eu").applied) == (True, 110, 100)
    at = index.positions()["eu"]
    index.append("a", [], {"eu": (at, dataclasses.replace(at, lsn=200, ended=150, number=1))})
    assert log.follower is not None
    log.follower.look()
    source = log.source("eu")
    source.applied = 190
    log.follower._shorten()
    assert blue.positions()["eu"].applied == 190
    index.set_back("eu", 160)  # before the follower has seen that
    past.look()
    past.take_up(170)
    assert (past.is_known, past.ended_lsn, source.applied) == (True, 150, 160)
    assert progress.confirmable("eu") == 160, "what the server before said counts no more"
    source.has(300, source.past - 1)
    assert source.applied == 160, "nor what is said by who heard that"
    past.look()
    past.set_back(155)
    assert (source.applied, progress.confirmable("eu"), index.positions()["eu"].applied) == (155, 155, 100)
    assert past.release() is False
    index.begin_anew("eu", 500)
    past.look()
    assert (past.is_known, source.is_left) == (False, True)


def test_a_source_that_a_group_does_not_find_now_is_not_taken_for_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    index = MemoryIndex()
    index.begin_anew("eu", 100)
    blue = MemoryGroupIndex(index, "blue")
    log = Process(blue, {}, ClusterRole.APPLY).log
    past = StagedPast(log, "eu", Progress())
    past.begin_anew(100)
    rejoin = blue.rejoin
    monkeypatch.setattr(blue, "rejoin", lambda name: (rejoin(name), index.withdraw(name))[0])
    with pytest.raises(StateError, match="begins anew"):
        past.look()
    monkeypatch.undo()
    past.look()
    assert past.is_known
    index.withdraw("eu")
    assert log.follower is not None
    log.follower.look()
    assert (past.is_known, log.source("eu").is_left) == (True, True), "whoever hears it looks again"
