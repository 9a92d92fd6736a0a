"""What is in memory of one source, for whom, and for how long."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from kuvasz.staging.staged_room import StagedRoom
from kuvasz.staging.staged_source import StagedSource
from kuvasz.staging.stream_messages import StreamMessages
from kuvasz.staging.stretch import Stretch
from kuvasz.state.staged.ports import StagedPosition
from tests.support.pgoutput import begin, commit, gulp, keepalive

#: What one of the stretches here weighs.
WEIGHT = 1014


def stretch(number: int, lsn: int, *, open_lsn: int = 0, size: int = 10, has_rows: bool = True) -> Stretch:
    ended = 0 if open_lsn and number == 1 else lsn
    return Stretch(
        number=number, data=bytes(size), lengths=np.array([size], np.uint32), lsn=lsn, ended=ended,
        open_lsn=open_lsn, has_rows=has_rows,
    )  # fmt: skip


def position(lsn: int, number: int) -> StagedPosition:
    return StagedPosition(lsn=lsn, ended=lsn, number=number)


@pytest.fixture
def source() -> StagedSource:
    return StagedSource(
        "eu", StagedPosition(lsn=100, ended=90, number=4, applied=80), StagedRoom(9999), 2 * WEIGHT + 5
    )


def numbers(source: StagedSource, after: int) -> list[int]:
    found = []
    while (one := source.after(after)) is not None:
        after = one.number
        found.append(after)
    return found


def test_what_is_not_staged_stays_and_what_is_stays_until_it_was_heard(source: StagedSource) -> None:
    assert source.newest == (100, 90, 4)
    source.add([stretch(5, 200), stretch(6, 300)])
    assert source.newest == (300, 300, 6)
    assert not source.is_staged
    assert source.cursor(100) == 4
    assert numbers(source, 4) == [5, 6]
    assert numbers(source, 4) == [5, 6], "nothing is staged"
    source.staged(position(200, 5))
    assert source.after(4) is None
    assert (source.dropped, numbers(source, 5)) == (5, [6])
    assert (source.cursor(199), source.cursor(200)) == (None, 5)
    source.staged(position(300, 6))
    assert source.is_staged, "though it is kept still"
    source.add([stretch(7, 400)])
    source.staged(position(400, 7))
    assert numbers(source, 6) == [7], "nobody had heard it"


def test_memory_is_bounded_also_if_nobody_listens(source: StagedSource) -> None:
    source.add([stretch(number, 100 * number) for number in range(5, 10)])
    source.staged(position(900, 9))
    assert (source.dropped, numbers(source, 7)) == (7, [8, 9])


def test_what_is_to_be_staged_is_of_whole_transactions_or_parts_of_one(source: StagedSource) -> None:
    source.add([stretch(5, 200), stretch(6, 200, open_lsn=300), stretch(7, 200, open_lsn=300), stretch(8, 308)])
    for numbers_, lsn in (([5], 200), ([6, 7], 200), ([8], 308)):
        assert [one.number for one in source.unstaged(100)] == numbers_
        source.staged(StagedPosition(lsn=lsn, ended=lsn, number=numbers_[-1]))
    assert source.unstaged(100) == []
    source.add([stretch(9, 400), stretch(10, 500), stretch(11, 600, has_rows=False)])
    assert [one.number for one in source.unstaged(20)] == [9, 10]
    assert (source._room.bytes, source._room.sources()) == (2 * WEIGHT, ["eu"])
    source.staged(StagedPosition(lsn=600, ended=600, number=11))
    assert (source._room.bytes, source._room.sources()) == (0, [])


def test_parts_are_given_up_and_their_numbers_never_used_again(source: StagedSource) -> None:
    source.add([stretch(5, 200), stretch(6, 200, open_lsn=300), stretch(7, 200, open_lsn=300)])
    source.staged(StagedPosition(lsn=200, ended=200, number=6))
    before = source.generation
    source.abandon_open()
    assert source.generation > before
    assert source.newest == (200, 200, 7)
    source.abandon_open()
    assert source.generation == before + 1, "there was nothing more"
    source.add([stretch(8, 300)])
    assert [one.number for one in source.unstaged(100)] == [8]


def test_nobody_begins_in_the_middle_of_a_transaction(source: StagedSource) -> None:
    source.add([stretch(5, 200, open_lsn=300, size=30), stretch(6, 308)])
    source.staged(StagedPosition(lsn=100, ended=90, number=5))
    assert source.dropped == 5
    assert source.cursor(250) is None
    source.staged(position(308, 6))
    assert source.after(5) is not None
    assert source.cursor(308) == 6


def test_another_past_begins_with_nothing(source: StagedSource) -> None:
    source.add([stretch(5, 200)])
    source.begin(StagedPosition(lsn=50, ended=0, number=4, applied=50))
    assert (source.newest, source.applied, source.unstaged(9), source.cursor(50)) == ((50, 0, 5), 50, [], 5)


def test_a_keepalive_of_the_server_before_tells_nobody_how_far_the_next_was_heard(source: StagedSource) -> None:
    data, lengths = gulp([begin(110), commit(110, 115), keepalive(5000)])
    source.add([Stretch(number=5, data=data, lengths=lengths, lsn=5000, ended=115)])
    source.set_back(115, 1)
    again = source.after(4)
    assert again is not None
    messages = StreamMessages(again.data, again.lengths)
    assert [messages.keepalive_lsn(one) for one in messages.keepalives.tolist()] == [115]
    assert again.lsn == 115


def test_it_is_set_back(source: StagedSource) -> None:
    source.applied = 95
    data, lengths = gulp([keepalive(120)])
    source.add([Stretch(number=5, data=data, lengths=lengths, lsn=120, ended=90, has_rows=False)])
    source.set_back(92, 1)
    assert (source.newest[0], source.past) == (92, 1), "that was another server's"
    assert (source.known, source.applied) == (StagedPosition(lsn=92, ended=90, number=4, applied=80), 92)
    source.noted(92)
    assert source.known.applied == 92


def test_what_another_process_stages_is_news_and_what_the_lake_has_is_none() -> None:
    source = StagedSource("eu", None, StagedRoom(100), -1)
    at = StagedPosition(lsn=100, ended=100, number=1, applied=50, past=7)
    steps: list[tuple[dict[str, int], bool]] = [
        ({}, True), ({}, False), ({"applied": 90}, False), ({"lsn": 120}, True), ({"lsn": 120, "number": 2}, True),
        ({"lsn": 120, "number": 2, "past": 8}, True), ({"lsn": 120, "number": 2, "past": 8, "given_up": 1}, True),
    ]  # fmt: skip
    assert [source.follow(dataclasses.replace(at, **changes)) for changes, _ in steps] == [news for _, news in steps]
