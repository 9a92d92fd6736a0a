from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from kuvasz.errors import StateError
from kuvasz.parking.log_folder import LogFolder
from kuvasz.parking.logs import ParkingLogs
from kuvasz.parking.ports import LogDamaged
from tests.support.changes import Sender, again, insert

T, S = "shop.items", "shop_eu"


class Lot(ParkingLogs):
    def __init__(self, folder: Path, most_bytes: int = 1 << 20) -> None:
        self.held: list[tuple[str, str]] = []
        super().__init__(
            LogFolder(folder),
            most_bytes,
            lambda source, target: self.held.append((source, target)),
            lambda source, target: self.held.clear(),
        )

    def count(self) -> int:
        return sum(len(change.lengths) for group in self.read(T, S, 0, 1 << 20) for change in group.changes)


def test_nothing_is_parked_before_the_connection_from_which_on_it_is(tmp_path: Path) -> None:
    lot, eu = Lot(tmp_path), Sender()
    assert not lot.takes(T, S, 5)
    lot.create(T, S)
    assert lot.has(T, S)
    assert not lot.takes(T, S, 5)
    lot.begin(T, S, 6)
    assert (lot.takes(T, S, 5), lot.takes(T, S, 6), lot.takes(T, S, 7)) == (False, True, True)
    lot.begin(T, S, 9)  # who parks goes on
    assert lot.takes(T, S, 6)
    lot.park(T, S, 6, [eu.one(insert(1))], 1108, is_open=False)
    lot.end(T, S)
    lot.settled(T, S)
    lot.park(T, S, 6, [eu.one(insert(2))], 1208, is_open=False)
    assert lot.count() == 1
    assert not lot.held, "who ended it holds the source"


def test_a_log_that_began_anew_has_no_part_of_an_earlier_connection(tmp_path: Path) -> None:
    """A worker may still be at what it took before: what is parked behind a gap would pass for all before it."""
    lot, eu = Lot(tmp_path), Sender()
    lot.create(T, S)
    lot.begin(T, S, 6)
    lot.drop(T, S)
    lot.create(T, S)
    lot.begin(T, S, 8)
    lot.park(T, S, 6, [eu.one(insert(1))], 1108, is_open=False)
    assert (lot.count(), lot.last_lsn(T, S)) == (0, 0)
    lot.park(T, S, 8, [eu.one(insert(2))], 1208, is_open=False)
    assert lot.count() == 1


def test_a_log_is_found_again_by_its_id_alone(tmp_path: Path) -> None:
    lot, eu = Lot(tmp_path), Sender()
    log_id = lot.create(T, S)
    lot.begin(T, S, 1)
    lot.park(T, S, 1, [eu.one(insert(1))], 1108, is_open=False)
    lot.close()
    after = Lot(tmp_path)
    with pytest.raises(LogDamaged, match="is another log than the lake's table knows"):
        after.load(T, S, "f" * 32)
    assert not after.has(T, S)
    after.load(T, S, log_id)
    assert after.id_of(T, S) == log_id
    assert after.count() == 1
    after.drop(T, S)
    assert after.id_of(T, S) is None
    assert after.views() == {}
    with pytest.raises(LogDamaged, match="is gone"):
        after.load(T, S, log_id)
    after.drop(T, S)


def test_at_the_bound_parking_ends_and_the_source_is_held(tmp_path: Path) -> None:
    lot, eu = Lot(tmp_path, 2200), Sender()
    lot.create(T, S)
    lot.begin(T, S, 1)
    segments = [eu.one(*(insert(number) for number in range(5))) for _ in range(9)]
    for segment in segments:
        lot.park(T, S, 1, [segment], 0, is_open=False)
    count = lot.count()
    assert 0 < count < 45
    assert lot.held == [(S, T)]
    assert lot.is_full(T, S)
    assert not lot.is_parking(T, S)
    assert lot.views()[T, S].is_full
    lot.begin(T, S, 2)  # the next start tries again
    assert lot.is_parking(T, S)
    lot.most_bytes = 1 << 20
    for segment in segments:
        lot.park(T, S, 2, [again(segment)], 0, is_open=False)
    assert lot.count() == 45


def test_a_source_is_let_go_only_while_all_is_parked(tmp_path: Path) -> None:
    lot = Lot(tmp_path)
    lot.held = [(S, T)]
    lot.let_go(T, S, 9)
    lot.create(T, S)
    lot.let_go(T, S, 9)
    lot.begin(T, S, 5)
    lot.let_go(T, S, 4)
    with lot._parked[T, S].lock:
        lot.let_go(T, S, 5)
    assert lot.held == [(S, T)]
    lot.let_go(T, S, 5)
    assert not lot.held
    lot.held = [(S, T)]
    lot.end(T, S)
    lot.let_go(T, S, 5)
    assert lot.held == [(S, T)]


def test_a_disk_that_refuses_holds_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lot, eu = Lot(tmp_path), Sender()
    lot.create(T, S)
    lot.begin(T, S, 1)
    lot.park(T, S, 1, [eu.one(insert(1))], 0, is_open=False)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fdatasync", full)
        lot.park(T, S, 1, [eu.one(insert(2))], 0, is_open=False)
    assert lot.held == [(S, T)]
    assert lot.count() == 1
    with monkeypatch.context() as patch:
        patch.setattr("os.pwrite", full)
        with pytest.raises(StateError, match="cannot be written: no space left on device"):
            lot.create("shop.others", S)


def test_changes_that_cannot_be_veiled_hold_their_source_alone(tmp_path: Path) -> None:
    """The worker that parks them has those of all sources; and what is wrong may quote what is to be taken out."""

    class Torn:
        def over(self, _: object) -> object:
            raise ValueError("secret")

    lot, eu = Lot(tmp_path), Sender()
    lot.create(T, S)
    torn: Any = Torn()
    lot.begin(T, S, 1, torn)
    lot.park(T, S, 1, [eu.one(insert(1))], 0, is_open=False)
    assert lot.held == [(S, T)]
    assert lot.count() == 0
    assert not lot.is_parking(T, S)


def test_a_new_connection_begins_an_unfinished_transaction_again(tmp_path: Path) -> None:
    lot, eu = Lot(tmp_path), Sender()
    lot.create(T, S)
    lot.begin(T, S, 1)
    lsn = eu.commit_lsn()
    part = eu.part(lsn, insert(1))
    lot.park(T, S, 1, [part], 0, is_open=True)
    lot.park(T, S, 2, [again(part)], 0, is_open=True)
    lot.park(T, S, 2, [eu.segment([(lsn, [insert(2)])])], lsn + 8, is_open=False)
    assert lot.count() == 2


def test_replays_are_of_the_log_that_is_there(tmp_path: Path) -> None:
    lot = Lot(tmp_path)
    log_id = lot.create(T, S)
    first, _ = lot.replays.begin(T, S)
    lot.replays.applied(T, S, first, 500)
    lot.load(T, S, log_id)
    assert not lot.replays.is_on(T, S, first)
    assert lot.replays.offset(T, S) == 0
    second, _ = lot.replays.begin(T, S)
    lot.drop(T, S)
    assert not lot.replays.is_on(T, S, second)


def test_one_thread_drops_what_others_use(tmp_path: Path) -> None:
    lot, eu = Lot(tmp_path), Sender()
    lot.create(T, S)
    lot.begin(T, S, 1)
    failures: list[BaseException] = []

    def use(function: object, *arguments: object, **named: object) -> None:
        try:
            for _ in range(300):
                function(*arguments, **named)
        except BaseException as error:  # noqa: BLE001 (shown by the test)
            failures.append(error)

    segment = eu.one(insert(1))
    threads = [
        threading.Thread(target=use, args=(lot.park, T, S, 1, [segment], 0), kwargs={"is_open": False}),
        threading.Thread(target=use, args=(lot.read, T, S, 0, 1 << 20)),
    ]
    for thread in threads:
        thread.start()
    lot.drop(T, S)
    for thread in threads:
        thread.join()
    assert not failures
    assert not lot.has(T, S)


def test_a_log_that_is_left_is_one_of_an_earlier_process(tmp_path: Path) -> None:
    lot, eu = Lot(tmp_path), Sender()
    lot.leave(T, S)
    made = lot.create(T, S)
    lot.begin(T, S, 6)
    lot.park(T, S, 6, [eu.one(insert(1))], 1108, is_open=False)
    lot.leave(T, S)
    assert (lot.has(T, S), lot.takes(T, S, 6), lot.views()) == (False, False, {})
    lot.park(T, S, 6, [eu.one(insert(2))], 1208, is_open=False)
    lot.load(T, S, made)
    assert lot.count() == 1
