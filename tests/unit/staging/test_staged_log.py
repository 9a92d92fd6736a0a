"""The log of a process, and of the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from kuvasz.config.model import ClusterRole
from kuvasz.errors import ConfigError, LakeError, SlotLost, SourceError, StateError
from kuvasz.seal.sealing_secrets import SealingSecrets
from kuvasz.staging import staged_log
from kuvasz.staging.staged_log import StagedLog
from kuvasz.staging.stretch import Stretch
from kuvasz.state.staged.memory import MemoryIndex
from kuvasz.state.staged.ports import StagedPosition
from kuvasz.view import staged_view
from tests.support.memory_store import MemoryStore
from tests.support.pgoutput import keepalive
from tests.support.waiting import wait_until


def stretch(number: int, lsn: int, *, open_lsn: int = 0) -> Stretch:
    data = keepalive(lsn)
    lengths = np.array([len(data)], np.uint32)
    return Stretch(number=number, data=data, lengths=lengths, lsn=lsn, ended=lsn, open_lsn=open_lsn)


class Place:
    """Where one process after another has its log."""

    def __init__(self) -> None:
        self.index, self.store = MemoryIndex(), MemoryStore()

    def log(self, secrets: SealingSecrets | None = None) -> StagedLog:
        return StagedLog(self.index, self.store, interval_s=0.01, object_bytes=100, sources=2, secrets=secrets)


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def opened(place: Place) -> Iterator[Callable[[], StagedLog]]:
    made: list[StagedLog] = []

    def open_() -> StagedLog:
        made.append(place.log())
        made[-1].open()
        return made[-1]

    yield open_
    for log in made:
        log.close()


def test_the_next_process_finds_what_was_staged(place: Place, opened: Callable[[], StagedLog]) -> None:
    log = opened()
    assert log.source("eu").position is None
    log.begin_anew("eu", 100)
    source = log.source("eu")
    told: list[bool] = []
    log.listen("eu", lambda: told.append(True))
    source.add([stretch(1, 200), stretch(2, 300)])
    wait_until(lambda: source.known.lsn == 300, "it is staged")
    wait_until(lambda: told, "it is told")
    log.unlisten("eu")
    source.applied = 150
    log.close()
    strays = {number: f"memory-{number:010d}-0000000001-0.log" for number in (1, 2, 3)}
    place.store.objects |= dict.fromkeys([*strays.values(), "other-1.log"], b"of a process that died, or lives")
    after = opened()
    assert {strays[3], "other-1.log"} < set(place.store.objects), "of a later process, and of another log"
    assert not {strays[1], strays[2]} & set(place.store.objects)
    assert after.source("eu").known == StagedPosition(lsn=300, ended=300, number=2, applied=150)
    assert after.source("eu").cursor(150) is None
    (found,) = after.slices("eu", 0, 150)
    assert len(after.read(found).lengths) == 2
    assert after.slices("eu", 0, 300) == []


def test_what_is_gone_or_damaged_is_lost_and_what_is_away_comes_back(
    place: Place, opened: Callable[[], StagedLog]
) -> None:
    log = opened()
    log.begin_anew("eu", 100)
    log.source("eu").add([stretch(1, 200)])
    wait_until(lambda: log.slices("eu", 0, 0), "it is staged")
    (found,) = log.slices("eu", 0, 0)
    place.store.is_away = True
    with pytest.raises(SourceError, match="cannot be read"):
        log.read(found)
    place.store.is_away = False
    good = place.store.objects[found.object]
    place.store.objects[found.object] = good[:-1] + b"x"
    with pytest.raises(SlotLost, match="is damaged: its checksum"):
        log.read(found)
    place.store.objects[found.object] = good.replace(b"kvszslc1", b"kvszslc3")
    with pytest.raises(SourceError, match="later version"):
        log.read(found)
    del place.store.objects[found.object]
    with pytest.raises(SlotLost, match="is gone"):
        log.read(found)


def test_what_is_staged_is_sealed_and_a_secret_that_is_missing_is_asked_for(place: Place) -> None:
    """It is in the object that was staged before the next process, and no source begins anew."""
    one, other = "a secret of sixteen characters", "another one of as many"
    log = place.log(SealingSecrets(one))
    log.open()
    log.begin_anew("eu", 100)
    log.source("eu").add([stretch(1, 200)])
    wait_until(lambda: log.slices("eu", 0, 0), "it is staged")
    (found,) = log.slices("eu", 0, 0)
    log.close()
    data = keepalive(200)
    assert not any(data in written for written in place.store.objects.values())
    for secrets in (None, SealingSecrets(other)):
        with pytest.raises(SourceError, match="was sealed with another secret than the map has") as told:
            place.log(secrets).read(found)
        assert not isinstance(told.value, SlotLost)
    for secrets in (SealingSecrets(one), SealingSecrets(other, one)):
        assert place.log(secrets).read(found).data == data


def test_what_is_gone_because_nobody_needs_it_is_not_lost(opened: Callable[[], StagedLog]) -> None:
    log = opened()
    log.begin_anew("eu", 100)
    source = log.source("eu")
    source.add([stretch(1, 200)])
    wait_until(lambda: log.slices("eu", 0, 0), "it is staged")
    (found,) = log.slices("eu", 0, 0)
    wait_until(lambda: source.known.lsn == 200, "and known to be")
    source.applied = 200
    wait_until(lambda: not log.slices("eu", 0, 0), "the lake has it")
    with pytest.raises(SourceError, match="needed no more"):
        wait_until(lambda: log.read(found) is None, "it is removed")


def test_a_store_that_cannot_be_listed_is_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def names() -> list[str]:
        raise OSError("no rights")

    monkeypatch.setattr(place.store, "names", names)
    with pytest.raises(LakeError, match=r"cluster\.log: memory cannot be listed: no rights"):
        place.log().open()


def test_sources_are_read_no_further_when_much_waits(place: Place, opened: Callable[[], StagedLog]) -> None:
    log = opened()
    log.begin_anew("eu", 100)
    place.store.is_away = True
    source = log.source("eu")
    before = staged_view(log)
    assert before is not None
    assert (before.objects, before.error, before.is_full, before.lsns) == (0, None, False, {"eu": 100})
    for number in range(1, 20):
        source.add([stretch(number, 100 + number)])
    assert not log.room.is_there
    wait_until(lambda: log.writer.error is not None, "it is told")
    failing = staged_view(log)
    assert failing is not None
    assert (failing.error, failing.is_full) == ("the store is away", True)
    place.store.is_away = False
    wait_until(lambda: log.room.is_there, "it is staged")
    wait_until(lambda: log.source("eu").known.lsn == 119, "all of it is")
    after = staged_view(log)
    assert after is not None
    assert (after.error, after.objects, after.lsns) == (None, len(place.store.objects), {"eu": 119})
    assert after.staged_at is not None
    source.applied = 119
    wait_until(lambda: log.writer.removal.objects == 0, "the lake has it")


def test_parts_pasts_and_sources_are_given_up(opened: Callable[[], StagedLog]) -> None:
    log = opened()
    log.begin_anew("eu", 100)
    source = log.source("eu")
    source.add([stretch(1, 200), stretch(2, 200, open_lsn=300)])
    wait_until(lambda: len(log.slices("eu", 0, 0)) == 2, "both are staged")
    log.abandon_open("eu")
    assert [one.last for one in log.slices("eu", 0, 0)] == [1]
    source.applied = 250
    assert log.set_back("eu", 150) == 200
    assert source.known.lsn == 200
    log.begin_anew("eu", 50)
    assert (log.slices("eu", 0, 0), source.known.lsn, source.applied) == ([], 50, 50)
    log.forget("eu")
    assert log.source("eu").position is None


def test_a_source_is_connected_again_while_the_store_is_away(
    place: Place, opened: Callable[[], StagedLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for one within a transaction whose parts may be on their way to the log."""
    monkeypatch.setattr("kuvasz.staging.staged_log._TURN_S", 0.05)
    log = opened()
    for name in ("eu", "us"):
        log.begin_anew(name, 100)
        log.abandon_open(name)
    place.store.is_away = True
    log.source("eu").add([stretch(1, 200)])
    log.source("us").add([stretch(1, 200, open_lsn=300)])
    wait_until(lambda: log.writer.error is not None, "it is tried again and again")
    log.abandon_open("eu")
    assert log.source("eu").newest == (200, 200, 1), "what came is kept"
    with pytest.raises(StateError, match="cannot be written now"):
        log.abandon_open("us")
    place.store.is_away = False
    wait_until(lambda: log.source("eu").known.lsn == 200, "it is staged")
    log.abandon_open("us")


def test_another_folder_is_told_from_one_that_lost_what_is_staged(
    place: Place, opened: Callable[[], StagedLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened()
    assert place.index.lies_in() == "memory"
    log.begin_anew("eu", 100)
    log.source("eu").add([stretch(1, 200)])
    wait_until(lambda: log.source("eu").known.lsn == 200, "it is staged")
    log.close()
    before, place.store = place.store, MemoryStore()
    place.store.place = "elsewhere"
    with pytest.raises(ConfigError, match=r"elsewhere has none of 1 staged objects .* lacks, which is in memory"):
        opened()
    with monkeypatch.context() as patch:
        patch.setattr(staged_log, "_PROVING", 1)
        with pytest.raises(ConfigError, match="has none of 1 or more staged objects"):
            opened()
    place.store.objects.update(before.objects)
    moved = opened()
    assert place.index.lies_in() == "elsewhere", "all of it is there"
    (found,) = moved.slices("eu", 0, 0)
    applier = StagedLog(place.index, before, interval_s=1, object_bytes=9, sources=1, role=ClusterRole.APPLY)
    before.objects.clear()
    with pytest.raises(SourceError, match="is not there: what is staged is in elsewhere"):
        applier.read(found)
    place.store.objects.clear()
    with pytest.raises(SlotLost, match="is gone"):
        moved.read(found)
