from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.errors import StateError
from kuvasz.model import Segment, TableName, Truncation
from kuvasz.parking.log import Change, LogDamaged, ParkingLog, TransactionGroup
from tests.contract.changes import Sender, again, insert, relation

ID = "0123456789abcdef" * 2
OTHER = relation(table=TableName(schema="public", name="part"), oid=7)


def made(folder: Path) -> ParkingLog:
    log = ParkingLog(folder / "parked" / "eu" / "items.log", "eu")
    log.create(ID)
    return log


def loaded(log: ParkingLog) -> ParkingLog:
    """The same log in the next process."""
    found = ParkingLog(log._path, "eu")
    found.load()
    return found


def facts(change: Change) -> tuple:
    if isinstance(change, Truncation):
        return dataclasses.astuple(change)
    runs = change.transactions
    arrays = change.lengths, runs.commit_lsn, runs.end_lsn, runs.commit_us, runs.xid, runs.row_end
    return change.source, change.relation, bytes(change.data), *(array.tolist() for array in arrays)


def rows(groups: Sequence[TransactionGroup]) -> list[tuple]:
    return [facts(change) for group in groups for change in group.changes]


def test_what_is_appended_comes_back_in_order_also_in_the_next_process(tmp_path: Path) -> None:
    log, eu, part = made(tmp_path), Sender(), Sender(relation=OTHER, start=1040)
    first = [eu.transactions([insert(1), insert(2)], [insert(3)]), part.one(insert(9))]
    second: list[Change] = [eu.truncation(), eu.one(insert(4))]
    log.append(first, 1208, is_open=False)
    log.append(second, 1408, is_open=False)
    for found in (log, loaded(log)):
        groups = found.read(0, 1 << 20)
        assert rows(groups) == [facts(change) for change in [*first, *second]]
        assert [(group.through, group.is_open) for group in groups] == [(1208, False), (1408, False)]
        assert found.read(groups[0].end, 1 << 20) == groups[1:] or rows(found.read(groups[0].end, 1 << 20)) == rows(
            groups[1:]
        )
        assert len(found.read(0, 1)) == 1
        assert found.read(groups[1].end, 1) == []
        assert (found.id, found.first_lsn, found.last_lsn) == (ID, 1100, 1400)
        assert found.size == found.end == log._path.stat().st_size == groups[1].end


def test_what_comes_again_is_left_out(tmp_path: Path) -> None:
    log, eu = made(tmp_path), Sender()
    first, second, truncation = eu.transactions([insert(1)], [insert(2)]), eu.one(insert(3)), eu.truncation()
    log.append([first], 1208, is_open=False)
    log.append([again(first), second], 1308, is_open=False)
    log.append([again(second), truncation], 1408, is_open=False)
    log.append([again(first), again(second), truncation], 1408, is_open=False)
    assert rows(log.read(0, 1 << 20)) == [facts(change) for change in (first, second, truncation)]


def test_a_segment_that_overlaps_what_is_there_is_cut(tmp_path: Path) -> None:
    log, eu = made(tmp_path), Sender()
    both = eu.transactions([insert(1), insert(2)], [insert(3), insert(4)])
    log.append([eu.segment([(1100, [insert(1), insert(2)])])], 1108, is_open=False)
    log.append([both], 1208, is_open=False)
    _, second = log.read(0, 1 << 20)
    assert rows([second]) == [facts(dataclasses.replace(eu.segment([(1200, [insert(3), insert(4)])]),
        transactions=dataclasses.replace(second.changes[0].transactions)))]  # fmt: skip
    assert second.changes[0].transactions.row_end.tolist() == [2]


def test_parts_of_a_large_transaction_count_once_it_has_ended(tmp_path: Path) -> None:
    log, eu = made(tmp_path), Sender()
    lsn = eu.commit_lsn()
    parts = [eu.part(lsn, insert(1)), eu.part(lsn, insert(2))]
    for part in parts:
        log.append([part], 1000, is_open=True)
    assert log.read(0, 1 << 20) == []
    assert log.last_lsn == 0
    log.append([], lsn + 8, is_open=False)
    groups = loaded(log).read(0, 1 << 20)
    assert rows(groups) == [facts(part) for part in parts]
    assert [(group.through, group.is_open) for group in groups] == [(1000, True), (1000, True), (lsn + 8, False)]
    assert log.last_lsn == lsn


def test_a_large_transaction_that_begins_again_replaces_its_parts(tmp_path: Path) -> None:
    log, eu = made(tmp_path), Sender()
    whole, lsn = eu.one(insert(1)), eu.commit_lsn()
    part = dataclasses.replace(eu.part(lsn, insert(2)), relation=OTHER)
    log.append([whole, part], 1108, is_open=True)
    for process in (lambda: log, lambda: loaded(log)):
        found = process()
        found.abandon_open()
        assert rows(found.read(0, 1 << 20)) == [facts(whole)], "whole ones in the same delivery stay"
    found.append([again(whole), again(part)], 1108, is_open=True)
    found.append([eu.segment([(lsn, [insert(3)])])], lsn + 8, is_open=False)
    assert [change[1] for change in rows(loaded(found).read(0, 1 << 20))] == [whole.relation, OTHER, whole.relation]


def test_one_large_transaction_follows_another_in_one_delivery(tmp_path: Path) -> None:
    log, eu = made(tmp_path), Sender()
    first, second = eu.commit_lsn(), eu.commit_lsn()
    log.append([eu.part(first, insert(1))], 1000, is_open=True)
    log.append([eu.part(second, insert(2))], first + 8, is_open=True)
    log.append([eu.segment([(second, [insert(3)])])], second + 8, is_open=False)
    assert [group.is_open for group in log.read(0, 1 << 20)] == [True, False, True, False]
    assert log.last_lsn == second


@pytest.mark.parametrize("missing", [1, 5, 40])
def test_a_torn_end_is_cut_off(tmp_path: Path, missing: int) -> None:
    log, eu = made(tmp_path), Sender()
    first, second = eu.one(insert(1)), eu.one(insert(2))
    log.append([first], 1108, is_open=False)
    log.append([second], 1208, is_open=False)
    os.truncate(log._path, log.size - missing)
    found = loaded(log)
    assert rows(found.read(0, 1 << 20)) == [facts(first)]
    assert found._path.stat().st_size == found.size
    found.append([again(first), again(second)], 1208, is_open=False)
    assert rows(loaded(found).read(0, 1 << 20)) == [facts(first), facts(second)]


def test_what_was_on_the_disk_once_is_missed(tmp_path: Path) -> None:
    log, eu = made(tmp_path), Sender()
    for number in range(3):
        log.append([eu.one(insert(number))], 0, is_open=False)
    first, second, _ = log.read(0, 1 << 20)
    os.truncate(log._path, second.end - 1)
    with pytest.raises(LogDamaged, match=f"is damaged at byte {first.end} of {second.end}"):
        loaded(log)


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    log, eu = made(tmp_path), Sender()
    log.append([eu.one(insert(1))], 0, is_open=False)
    first_end = log.size
    log.append([eu.one(insert(2))], 0, is_open=False)
    with log._path.open("r+b") as file:
        file.seek(first_end - 30)
        byte = file.read(1)
        file.seek(first_end - 30)
        file.write(bytes([byte[0] ^ 4]))
    with pytest.raises(LogDamaged):
        log.read(0, 1 << 20)
    with pytest.raises(LogDamaged):
        loaded(log)


def test_a_log_that_is_gone_or_none_is_told(tmp_path: Path) -> None:
    log = ParkingLog(tmp_path / "x.log", "eu")
    with pytest.raises(LogDamaged, match="is gone"):
        log.load()
    for text in (b"", b"short", b"x" * 200):
        (tmp_path / "x.log").write_bytes(text)
        with pytest.raises(LogDamaged):
            log.load()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "parked").write_text("")
    with pytest.raises(StateError, match="cannot be written"):
        made(tmp_path)


#: How many rows a transaction has, and whether it comes in parts.
PROGRAMS = st.lists(st.tuples(st.integers(1, 3), st.booleans(), st.booleans()), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(program=PROGRAMS, cut=st.floats(0, 1), data=st.data())
def test_cut_off_anywhere_it_goes_on_where_it_stood(
    tmp_path_factory: pytest.TempPathFactory, program: list, cut: float, data: st.DataObject
) -> None:
    eu = Sender()
    deliveries: list[tuple[list[Segment], int, bool]] = []
    through = 1000
    for number, (count, is_large, is_other) in enumerate(program):
        lsn, kind = eu.commit_lsn(), OTHER if is_other else None
        messages = [insert(10 * number + row) for row in range(count)]
        if is_large:
            deliveries += [([eu.segment([(lsn, [row])], is_open=True, relation=kind)], through, True)
                           for row in messages]  # fmt: skip
            deliveries.append(([], lsn + 8, False))
        else:
            deliveries.append(([eu.segment([(lsn, messages)], relation=kind)], lsn + 8, False))
        through = lsn + 8
    log = made(tmp_path_factory.mktemp("log"))
    sizes = [log.size]
    for changes, end, is_open in deliveries:
        log.append(changes, end, is_open=is_open)
        sizes.append(log.size)
    expected = rows(log.read(0, 1 << 20))
    assert len(expected) == sum(len(changes) for changes, _, _ in deliveries)
    # Killed while some delivery was being written: the header knows the one before.
    last = data.draw(st.integers(0, len(deliveries) - 1))
    killed = made(tmp_path_factory.mktemp("log"))
    for changes, end, is_open in deliveries[: last + 1]:
        killed.append(changes, end, is_open=is_open)
    size = killed.size
    os.truncate(killed._path, sizes[last] + round(cut * (size - sizes[last])))
    found = loaded(killed)
    # The stream comes again from any earlier place on, between two transactions.
    begins = [n for n in range(last + 1) if n == 0 or not deliveries[n - 1][2]]
    for changes, end, is_open in deliveries[data.draw(st.sampled_from(begins)) :]:
        found.append([again(change) for change in changes], end, is_open=is_open)
    assert rows(loaded(found).read(0, 1 << 20)) == expected
    assert np.all(np.diff([group.end for group in found.read(0, 1 << 20)]) > 0)
