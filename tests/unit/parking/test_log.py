from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.errors import StateError
from kuvasz.model import Segment, TableName
from kuvasz.parking.log import ParkingLog
from kuvasz.parking.log_folder import LogFolder
from kuvasz.parking.ports import LogDamaged
from kuvasz.seal.sealing_secrets import SealingSecrets
from tests.support.changes import Sender, again, insert, relation
from tests.support.examples import examples
from tests.support.parked import facts, rows

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


def test_all_that_is_in_the_file_counts(tmp_path: Path) -> None:
    log, eu = made(tmp_path), Sender()
    log.append([eu.one(insert(1))], 1108, is_open=False)
    log.append([eu.truncation()], 1208, is_open=False)
    for found in (log, loaded(log)):
        groups = found.read(0, 1 << 20)
        assert found.size == found.end == log._path.stat().st_size == groups[1].end
        assert (found.id, found.place) == (ID, str(log._path))


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


SECRET, LATER = "a secret of sixteen characters", "another one of as many"


def with_secrets(log: ParkingLog, now: str | None, earlier: str | None = None) -> ParkingLog:
    """The same log in the next process, with a map's secrets."""
    found = ParkingLog(log._path, "eu", SealingSecrets(now, earlier))
    found.load()
    return found


def test_nothing_in_a_sealed_log_can_be_read_without_the_secret(tmp_path: Path) -> None:
    """A map that gets a secret, another one and none reads on; one that lacks a secret loses nothing."""
    eu = Sender()
    segments = [eu.one(insert(number, 1, f"Zq7-{number}-")) for number in range(4)]
    ends = [int(one.transactions.end_lsn[0]) for one in segments]
    log = made(tmp_path)
    for secrets, segment, end in zip(
        [(None, None), (SECRET, None), (LATER, SECRET), (None, LATER)], segments, ends, strict=True
    ):
        log = with_secrets(log, *secrets)
        log.append([segment], end, is_open=False)
    written = log._path.read_bytes()
    assert [f"Zq7-{number}-".encode() in written for number in range(4)] == [True, False, False, True]
    assert rows(with_secrets(log, SECRET, LATER).read(0, 1 << 20)) == [facts(one) for one in segments]
    for secrets in ((None, None), (SECRET, None), ("yet another secret of a map", None)):
        found = with_secrets(log, *secrets)
        assert found.last_lsn == int(segments[-1].transactions.commit_lsn[0]), "it is known what the log has"
        with pytest.raises(StateError, match=r"items\.log was sealed with another secret than the map has") as told:
            found.read(0, 1 << 20)
        assert told.value.hint == "set `pipeline.earlier_seal_secret` to the `seal_secret` of then, and start again"
        assert found._path.read_bytes() == written
    log = with_secrets(log, LATER)
    with pytest.raises(StateError):
        log.read(0, 1 << 20)
    log = with_secrets(log, LATER, SECRET)  # as the hint says
    assert rows(log.read(0, 1 << 20)) == [facts(one) for one in segments]


def test_what_was_sealed_for_one_log_is_not_read_in_another(tmp_path: Path) -> None:
    """Nor in another place of it: the checksum of a record is no secret."""
    log = with_secrets(made(tmp_path), SECRET)
    log.append([Sender().one(insert(1))], 1108, is_open=False)
    data = bytearray(log._path.read_bytes())
    data[9:41] = b"f" * 32  # the log's id
    log._path.write_bytes(data)
    with pytest.raises(LogDamaged, match="its seal does not fit"):
        with_secrets(log, SECRET).read(0, 1 << 20)


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


@settings(max_examples=examples(60), deadline=None)
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


def test_a_log_that_cannot_be_read_now_is_neither_gone_nor_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many open files, or a disk that does not answer, lose nothing of what is parked."""
    log, segment = made(tmp_path), Sender().one(insert(1))
    log.append([segment], 0, is_open=False)
    folder = LogFolder(tmp_path)
    monkeypatch.setattr(folder, "path", lambda *_: log._path)
    for call in ("open", "pread"):
        with monkeypatch.context() as failing:
            failing.setattr(os, call, Mock(side_effect=OSError(errno.EMFILE, "too many open files")))
            with pytest.raises(StateError, match="cannot be read: too many open files"):
                ParkingLog(log._path, "eu").load()
    with monkeypatch.context() as failing:
        failing.setattr(os, "pread", Mock(side_effect=OSError(errno.EIO, "input/output error")))
        with pytest.raises(StateError, match="cannot be read: input/output error"):
            log.read(0, 1 << 20)
    with monkeypatch.context() as failing:
        failing.setattr(Path, "stat", Mock(side_effect=OSError(errno.EACCES, "permission denied")))
        assert log.is_there, "as far as anybody knows"
        with pytest.raises(StateError, match="cannot be read: permission denied"):
            folder.unfinished_lsn("shop.items", "eu")
    assert rows(loaded(log).read(0, 1 << 20)) == [facts(segment)]
