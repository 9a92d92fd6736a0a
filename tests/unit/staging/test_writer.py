"""The thread that stages: what becomes one object, what is tried again, and what is removed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from kuvasz.errors import StateError, StateTaken
from kuvasz.staging import slice_format
from kuvasz.staging.staged_room import StagedRoom
from kuvasz.staging.staged_source import StagedSource
from kuvasz.staging.stretch import Stretch
from kuvasz.staging.writer import LogWriter
from kuvasz.state.staged.memory import MemoryIndex
from kuvasz.state.staged.ports import LogLease
from tests.support.memory_store import MemoryStore
from tests.support.pgoutput import keepalive
from tests.support.waiting import wait_until


def stretch(number: int, lsn: int, *, has_rows: bool = True) -> Stretch:
    data = keepalive(lsn)
    lengths = np.array([len(data)], np.uint32)
    return Stretch(number=number, data=data, lengths=lengths, lsn=lsn, ended=lsn, has_rows=has_rows)


class Staging:
    """A writer with two sources."""

    def __init__(self) -> None:
        self.index, self.store = MemoryIndex(), MemoryStore()
        for name in ("eu", "us"):
            self.index.begin_anew(name, 100)
        positions, room = self.index.positions(), StagedRoom(1 << 20)
        self.eu, self.us = (StagedSource(name, positions[name], room, 1 << 20) for name in ("eu", "us"))
        self.told = 0
        self.writer = LogWriter(
            self.index, self.store, lambda: [self.eu, self.us], room, interval_s=0.01, object_bytes=1000,
            on_staged=self._tell,
        )  # fmt: skip

    def _tell(self) -> None:
        self.told += 1

    def start(self) -> None:
        self.writer.start(LogLease("log", 7))


@pytest.fixture
def staging() -> Iterator[Staging]:
    made = Staging()
    yield made
    made.writer.stop(10)


def test_what_came_of_all_sources_is_one_object(staging: Staging) -> None:
    staging.eu.add([stretch(1, 200), stretch(2, 300)])
    staging.us.add([stretch(1, 150), stretch(2, 400, has_rows=False)])
    staging.start()
    wait_until(lambda: staging.us.known.lsn == 400 and staging.eu.known.lsn == 300, "both are staged")
    (name,) = staging.store.objects
    assert name.startswith("log-0000000007-")
    for source, last in (("eu", 2), ("us", 1)):
        (found,) = staging.index.slices(source, 0, through=0, most=9)
        held = slice_format.decode(staging.store.get(name, found.at, found.size), source, 1, last)
        assert (found.last, len(held.lengths)) == (last, last), "what has no rows only moves the source"
    assert staging.index.positions()["us"].number == 2
    assert staging.told


def test_nothing_is_staged_before_store_and_index_have_it_and_nothing_overtakes(staging: Staging) -> None:
    staging.store.is_away = True
    staging.eu.add([stretch(1, 200)])
    staging.start()
    wait_until(lambda: staging.writer.error is not None, "it is told")
    staging.eu.add([stretch(2, 300)])
    assert (staging.eu.known.lsn, staging.store.objects) == (100, {})
    staging.store.is_away = False
    wait_until(lambda: staging.eu.known.lsn == 300, "both are staged")
    assert staging.writer.error is None
    assert [one.last for one in staging.index.slices("eu", 0, through=0, most=9)] == [1, 2]


def test_an_answer_that_was_lost_changes_nothing(staging: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    append, calls = staging.index.append, []

    def lose(*arguments: object) -> None:
        append(*arguments)  # type: ignore[arg-type]
        calls.append(arguments)
        if len(calls) == 1:
            raise StateError("no answer")

    monkeypatch.setattr(staging.index, "append", lose)
    staging.eu.add([stretch(1, 200)])
    staging.start()
    wait_until(lambda: staging.eu.known.lsn == 200, "it is staged")
    assert len(calls) == 2
    assert len(staging.index.slices("eu", 0, through=0, most=9)) == 1


def test_who_stands_elsewhere_ends(staging: Staging) -> None:
    staging.index.set_back("eu", 90)  # as a coordinator that was restored says
    staging.eu.add([stretch(1, 200)])
    staging.start()
    wait_until(lambda: staging.writer.died is not None, "the thread ends")
    assert isinstance(staging.writer.died, StateTaken)
    assert staging.eu.known.lsn == 100


def test_the_more_sources_there_are_the_more_rarely_those_that_only_move_are_noted(staging: Staging) -> None:
    seconds = []
    for count in (2, 100, 5000):
        staging.writer._sources = lambda count=count: [staging.eu] * count
        seconds.append(staging.writer._quiet_s)
    assert seconds == [1.0, pytest.approx(3.0), 10.0]
    staging.writer._sources = list


def test_what_the_lake_has_is_removed(staging: Staging) -> None:
    staging.eu.add([stretch(1, 200)])
    staging.us.add([stretch(1, 200)])
    staging.start()
    wait_until(lambda: staging.told, "both are staged")
    staging.eu.applied = 500
    wait_until(lambda: staging.eu.known.applied == 200, "it is never further than what is staged")
    assert len(staging.store.objects) == 1
    staging.us.applied = 200
    staging.store.is_away = True
    wait_until(lambda: staging.us.known.applied == 200, "the lake has it")
    assert staging.index.objects(), "it is known until it is gone"
    staging.store.is_away = False
    wait_until(lambda: not staging.store.objects, "nobody needs it")
    wait_until(lambda: not staging.index.objects(), "and it is known no more")


def test_a_source_that_is_left_while_it_is_staged_stops_nobody(
    staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = staging.store.put

    def leave(name: str, *pieces: bytes) -> None:
        staging.eu.leave()
        put(name, *pieces)

    monkeypatch.setattr(staging.store, "put", leave)
    staging.eu.add([stretch(1, 200)])
    staging.start()
    wait_until(lambda: staging.index.positions()["eu"].lsn == 200, "it is staged")
    staging.us.add([stretch(1, 200)])
    wait_until(lambda: staging.us.known.lsn == 200 or staging.writer.died, "so are others")
    assert staging.writer.died is None


def test_a_mistake_is_told_and_never_passed_over(staging: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging.store, "put", lambda *_: 1 / 0)
    staging.eu.add([stretch(1, 200)])
    assert staging.writer.died is None
    staging.start()
    wait_until(lambda: staging.writer.died is not None, "the thread ends")
    assert staging.eu.known.lsn == 100


def test_the_last_words_are_staged(staging: Staging) -> None:
    staging.start()
    staging.eu.add([stretch(1, 200)])
    staging.eu.applied = 200
    staging.writer.stop(10)
    assert staging.index.positions()["eu"].applied == 200
    assert not staging.store.objects
