"""What goes when the lake has it, whatever fails meanwhile."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kuvasz.errors import StateError, StateTaken
from kuvasz.staging import staged_removal
from kuvasz.staging.staged_removal import StagedRemoval
from kuvasz.staging.staged_room import StagedRoom
from kuvasz.staging.staged_source import StagedSource
from kuvasz.state.staged.memory import MemoryGroupIndex, MemoryIndex
from kuvasz.state.staged.ports import LogGroup, StagedPosition, StagedSlice
from tests.support.memory_store import MemoryStore


class Log:
    """A log with one object, of which the lake has all."""

    def __init__(self) -> None:
        self.index, self.store = MemoryIndex(), MemoryStore()
        self.index.begin_anew("eu", 100)
        at = StagedPosition(lsn=200, ended=200, number=1)
        piece = StagedSlice(source="eu", first=1, last=1, through=200, is_open=False, object="a", at=0, size=1)
        self.index.append("a", [piece], {"eu": (self.index.positions()["eu"], at)})
        self.store.put("a", b"x")
        self.source = StagedSource("eu", self.index.positions()["eu"], StagedRoom(1), 1)
        self.source.applied = 500
        self.removal = StagedRemoval(self.index, self.store)

    def turn(self) -> None:
        self.removal.look([self.source])
        self.removal.remove()


def raised(error: Exception) -> Any:
    raise error


@pytest.fixture
def log() -> Log:
    return Log()


def test_an_object_is_known_until_it_is_gone(log: Log) -> None:
    log.turn()
    assert (log.store.objects, set(log.index.objects())) == ({}, {"a"})
    assert log.source.known.applied == 200, "it is never further than what is staged"
    log.turn()
    assert not log.index.objects()


def test_one_that_cannot_be_removed_now_is_tried_again(log: Log) -> None:
    log.store.is_away = True
    for _ in range(3):
        log.turn()
    assert (set(log.store.objects), set(log.index.objects())) == ({"a"}, {"a"})
    log.store.is_away = False
    for _ in range(2):
        log.turn()
    assert (log.store.objects, set(log.index.objects())) == ({}, set())


def test_an_answer_that_was_lost_leaves_nothing_behind(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    applied = log.index.applied

    def lose(*arguments: object) -> None:
        applied(*arguments)  # type: ignore[arg-type]
        raise StateError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(log.index, "applied", lose)
        log.turn()
    assert log.store.objects
    for _ in range(2):
        log.turn()
    assert (log.store.objects, set(log.index.objects())) == ({}, set())


def test_what_others_need_no_more_is_asked_for_also_where_nothing_moves(log: Log) -> None:
    """Another group has it by now, or is retired."""
    blue = MemoryGroupIndex(log.index, "blue")
    blue.open()
    blue.begin_anew("eu", 0)
    for _ in range(3):
        log.turn()
    assert set(log.index.objects()) == {"a"}
    log.index.retire_group("blue")
    log.turn()
    assert set(log.index.objects()) == {"a"}, "not each second"
    for _ in range(2):
        log.removal._asked_at -= 11
        log.turn()
    assert (log.store.objects, set(log.index.objects())) == ({}, set())


def test_a_group_that_is_behind_is_shown_and_told_once(
    log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    late = LogGroup(name="blue", objects=7, behind_s=301.0, lives=False)
    found = [LogGroup(name="green", objects=1, behind_s=2.0, lives=True), late]
    monkeypatch.setattr(log.index, "groups", lambda: found)

    def told() -> int:
        log.removal._seen_at -= 11
        log.turn()
        return sum("another group is behind" in record.getMessage() for record in caplog.records)

    assert log.removal.groups == ()
    assert [told(), told()] == [1, 1]
    assert log.removal.groups == found
    found.remove(late)
    assert told() == 1
    found.append(late)
    assert told() == 2
    monkeypatch.setattr(log.index, "groups", lambda: raised(StateError("away")))
    assert told() == 2
    assert log.removal.groups == found, "as they were seen last"


def test_of_a_long_log_all_goes_without_waiting_for_the_next_look(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else hundreds of thousands of objects would take hours."""
    monkeypatch.setattr("kuvasz.staging.staged_removal._SPENT_S", 60.0)
    for number in range(2, 1001):
        name = f"{number:04d}"
        at = log.index.positions()["eu"]
        piece = StagedSlice(
            source="eu", first=number, last=number, through=at.lsn + 1, is_open=False, object=name, at=0, size=1
        )
        after = StagedPosition(lsn=at.lsn + 1, ended=at.lsn + 1, number=number)
        log.index.append(name, [piece], {"eu": (at, after)})
        log.store.put(name, b"x")
    log.source.position = log.index.positions()["eu"]
    log.source.applied = log.source.position.lsn
    for _ in range(2):
        log.turn()
    assert (len(log.store.objects), len(log.index.objects())) == (0, 0)


@pytest.mark.parametrize("fails", ["index", "store"])
def test_that_nothing_goes_is_told_if_it_lasts(
    log: Log, fails: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = [time.monotonic()]
    monkeypatch.setattr(staged_removal.time, "monotonic", lambda: clock[0])

    def told() -> list[str]:
        log.turn()
        return [record.__dict__["error"] for record in caplog.records if "cannot go" in record.getMessage()]

    with monkeypatch.context() as patch:
        if fails == "index":
            patch.setattr(log.index, "applied", lambda *_: raised(StateError("it takes too long")))
        else:
            log.store.is_away = True
        assert told() == [], "what is away for a moment is told of elsewhere"
        clock[0] += 61
        assert [told(), told()] == [told()] * 2
        (why,) = told()
        assert ("it takes too long" if fails == "index" else "1 objects cannot be removed") in why
    log.store.is_away = False
    for _ in range(2):
        told()
    assert (log.store.objects, set(log.index.objects())) == ({}, set())
    assert len(told()) == 1


def test_that_the_lease_is_lost_is_not_for_the_log_to_tell(
    log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log.index, "applied", lambda *_: raised(StateTaken("another process applies")))
    monkeypatch.setattr(staged_removal, "_STUCK_S", 0.0)
    log.turn()
    assert not caplog.records
