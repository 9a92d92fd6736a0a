"""What every store of parking logs owes: see `kuvasz.parking.ports`."""

from __future__ import annotations

import dataclasses
import itertools
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kuvasz.errors import StateError
from kuvasz.model import TableName
from kuvasz.parking.coordinated_logs import CoordinatedLogs
from kuvasz.parking.log_folder import FOLDER, LogFolder
from kuvasz.parking.memory import MemoryLogs
from kuvasz.parking.ports import LogDamaged, LogStore, TableLog
from kuvasz.route.parts import Change
from kuvasz.seal.sealing_secrets import SealingSecrets
from kuvasz.state.coordinator import pieces
from kuvasz.state.coordinator.store import CoordinatorStore
from tests.support.changes import Sender, again, insert, relation
from tests.support.parked import facts, rows
from tests.support.postgres import Database

T, S = "shop.items", "eu"
OTHER = relation(table=TableName(schema="public", name="part"), oid=7)
ROOM = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """Where one process after another opens the store."""

    open: Callable[[], LogStore]
    elsewhere: Callable[[], LogStore] | None = None  #: the same for a process of another machine
    #: makes a backup of all logs, and of nothing else; returns what puts it back. None: nobody can
    backup: Callable[[], Callable[[], None]] | None = None

    def create(self) -> TableLog:
        return self.open().create(T, S)

    def load(self, log: TableLog) -> TableLog:
        """Return the same log in the next process."""
        log.close()
        return (self.elsewhere or self.open)().load(T, S, log.id)


@pytest.fixture(
    params=[
        "folder", "sealed folder", "memory", pytest.param("coordinator", marks=pytest.mark.postgres),
        pytest.param("sealed coordinator", marks=pytest.mark.postgres),
    ]
)  # fmt: skip
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    secrets = SealingSecrets("a secret of sixteen characters" if "sealed" in request.param else None)
    if request.param.endswith("folder"):
        yield Place(open=lambda: LogFolder(tmp_path, secrets), backup=lambda: files_copied(tmp_path / FOLDER))
    elif request.param == "memory":
        memory = MemoryLogs()
        yield Place(open=lambda: memory)
    else:
        database, machines = request.getfixturevalue("database"), itertools.count()
        url = database.url
        store = CoordinatorStore(lambda: url, "tests", tmp_path / "state", 30.0)
        assert store._lease.take("tests", "") is None
        yield Place(
            open=lambda: CoordinatedLogs(tmp_path / "here", store.pieces, secrets),
            elsewhere=lambda: CoordinatedLogs(tmp_path / f"machine {next(machines)}", store.pieces, secrets),
            backup=lambda: rows_copied(database, "piece"),
        )
        store._database.close()


def files_copied(folder: Path) -> Callable[[], None]:
    """Copy a folder; return what puts the copy in its place."""
    copy = folder.with_name("backup")
    shutil.copytree(folder, copy)

    def put_back() -> None:
        shutil.rmtree(folder)
        copy.rename(folder)

    return put_back


def rows_copied(database: Database, *tables: str) -> Callable[[], None]:
    """Copy tables of the coordinator; return what puts the copies in their places."""
    for table in tables:
        database.execute(f"CREATE TABLE public.{table} AS TABLE kuvasz.{table}")

    def put_back() -> None:
        for table in tables:
            database.execute(f"DELETE FROM kuvasz.{table}")
            database.execute(f"INSERT INTO kuvasz.{table} TABLE public.{table}")

    return put_back


def append(log: TableLog, changes: list[Change], through: int, *, is_open: bool = False) -> None:
    assert log.append(changes, through, is_open=is_open, most_bytes=ROOM)


def test_a_log_is_found_again_by_its_id_alone(place: Place) -> None:
    log = place.create()
    assert (len(log.id), log.is_there, log.first_lsn, log.last_lsn) == (32, True, 0, 0)
    with pytest.raises(LogDamaged) as told:
        place.open().load(T, S, "f" * 32)
    assert str(told.value) == f"{log.place} is another log than the lake's table knows"
    found = place.load(log)
    assert (found.id, found.since, found.size) == (log.id, log.since, log.size)
    for target, source in (("shop.others", S), (T, "us")):
        with pytest.raises(LogDamaged, match="is gone"):
            place.open().load(target, source, log.id)


def test_what_a_log_has_that_is_not_in_the_lake_is_known_without_its_id(place: Place) -> None:
    assert place.open().unfinished_lsn(T, S) == 0, "there is none"
    log = place.create()
    assert place.open().unfinished_lsn(T, S) == 0, "nothing is in it"
    append(log, [Sender().segment([(1000, [insert(1)]), (1100, [insert(2)])])], 1108)
    assert (place.open().unfinished_lsn(T, S), log.is_finished) == (1100, False)
    log.finish()
    assert (place.open().unfinished_lsn(T, S), log.is_finished) == (0, True)
    append(log, [Sender().segment([(1200, [insert(3)])])], 1208)
    assert (place.open().unfinished_lsn(T, S), log.is_finished) == (1200, False)
    log.finish()
    again = place.load(log)
    assert (len(again.read(0, ROOM)), again.last_lsn) == (2, 1200)
    append(again, [Sender().segment([(1300, [insert(4)])])], 1308)
    assert place.open().unfinished_lsn(T, S) == 1300
    again.close()
    place.open().remove(T, S)
    assert place.open().unfinished_lsn(T, S) == 0


def test_a_new_log_is_in_place_of_the_old_one(place: Place) -> None:
    log, eu = place.create(), Sender()
    append(log, [eu.one(insert(1))], 1108)
    fresh = place.create()
    assert fresh.id != log.id
    assert fresh.read(0, ROOM) == []
    with pytest.raises(LogDamaged, match="is another log than"):
        place.load(log)


def test_what_is_removed_is_gone(place: Place) -> None:
    log = place.create()
    place.open().remove(T, S)
    assert not log.is_there
    with pytest.raises(LogDamaged) as told:
        place.load(log)
    assert re.sub("machine 0", "here", str(told.value)) == f"{log.place} is gone"
    place.open().remove(T, S)


@pytest.mark.parametrize("target", ["shop.items", "a/b.c", "ä" * 63 + "." + "ö" * 63, "shop.Items", "..", "a\nb"])
def test_tables_of_any_name_have_logs_of_their_own(place: Place, target: str) -> None:
    store = place.open()
    logs = {(name, source): store.create(name, source) for name in (target, target + " ") for source in ("eu", "us")}
    found = {key: place.open().load(*key, log.id) for key, log in logs.items()}
    assert {key: log.id for key, log in found.items()} == {key: log.id for key, log in logs.items()}
    assert len({log.id for log in logs.values()}) == 4


def test_what_is_appended_comes_back_in_order_also_in_the_next_process(place: Place) -> None:
    log, eu, part = place.create(), Sender(), Sender(relation=OTHER, start=1040)
    first = [eu.transactions([insert(1), insert(2)], [insert(3)]), part.one(insert(9))]
    second: list[Change] = [eu.truncation(), eu.one(insert(4))]
    append(log, first, 1208)
    append(log, second, 1408)
    ends = [group.end for group in log.read(0, ROOM)]
    found = log
    for _ in range(2):
        groups = found.read(0, ROOM)
        assert rows(groups) == [facts(change) for change in [*first, *second]]
        assert [(group.through, group.is_open, group.end) for group in groups] == [
            (1208, False, ends[0]),
            (1408, False, ends[1]),
        ]
        assert rows(found.read(ends[0], ROOM)) == [facts(change) for change in second]
        assert len(found.read(0, 1)) == 1
        assert found.read(ends[1], 1) == []
        assert (found.first_lsn, found.last_lsn) == (1100, 1400)
        found = place.load(found)


def test_what_comes_again_is_left_out(place: Place) -> None:
    log, eu = place.create(), Sender()
    first, second, truncation = eu.transactions([insert(1)], [insert(2)]), eu.one(insert(3)), eu.truncation()
    append(log, [first], 1208)
    append(log, [again(first), second], 1308)
    append(log, [again(second), truncation], 1408)
    append(log, [again(first), again(second), truncation], 1408)
    assert rows(log.read(0, ROOM)) == [facts(change) for change in (first, second, truncation)]


def test_a_segment_that_overlaps_what_is_there_is_cut(place: Place) -> None:
    log, eu = place.create(), Sender()
    both = eu.transactions([insert(1), insert(2)], [insert(3), insert(4)])
    append(log, [eu.segment([(1100, [insert(1), insert(2)])])], 1108)
    append(log, [both], 1208)
    _, second = log.read(0, ROOM)
    assert rows([second]) == [facts(dataclasses.replace(eu.segment([(1200, [insert(3), insert(4)])]),
        transactions=dataclasses.replace(second.changes[0].transactions)))]  # fmt: skip
    assert second.changes[0].transactions.row_end.tolist() == [2]


def test_parts_of_a_large_transaction_count_once_it_has_ended(place: Place) -> None:
    log, eu = place.create(), Sender()
    lsn = eu.commit_lsn()
    parts: list[Change] = [eu.part(lsn, insert(1)), eu.part(lsn, insert(2))]
    for part in parts:
        append(log, [part], 1000, is_open=True)
    assert log.read(0, ROOM) == []
    assert log.last_lsn == 0
    append(log, [], lsn + 8)
    groups = place.load(log).read(0, ROOM)
    assert rows(groups) == [facts(part) for part in parts]
    assert [(group.through, group.is_open) for group in groups] == [(1000, True), (1000, True), (lsn + 8, False)]
    assert log.last_lsn == lsn


def test_a_large_transaction_that_begins_again_replaces_its_parts(place: Place) -> None:
    log, eu = place.create(), Sender()
    whole, lsn = eu.one(insert(1)), eu.commit_lsn()
    part = dataclasses.replace(eu.part(lsn, insert(2)), relation=OTHER)
    append(log, [whole, part], 1108, is_open=True)
    for _ in range(2):
        log.abandon_open()
        assert rows(log.read(0, ROOM)) == [facts(whole)], "whole ones in the same delivery stay"
        log = place.load(log)
    append(log, [again(whole), again(part)], 1108, is_open=True)
    append(log, [eu.segment([(lsn, [insert(3)])])], lsn + 8)
    assert [change[1] for change in rows(place.load(log).read(0, ROOM))] == [whole.relation, OTHER, whole.relation]


def test_one_large_transaction_follows_another_in_one_delivery(place: Place) -> None:
    log, eu = place.create(), Sender()
    first, second = eu.commit_lsn(), eu.commit_lsn()
    append(log, [eu.part(first, insert(1))], 1000, is_open=True)
    append(log, [eu.part(second, insert(2))], first + 8, is_open=True)
    append(log, [eu.segment([(second, [insert(3)])])], second + 8)
    assert [group.is_open for group in log.read(0, ROOM)] == [True, False, True, False]
    assert log.last_lsn == second


def test_without_room_nothing_is_added_and_parts_are_gone(place: Place) -> None:
    log, eu = place.create(), Sender()
    whole, lsn = eu.one(insert(1)), eu.commit_lsn()
    append(log, [whole], 1108)
    size = log.size
    append(log, [eu.part(lsn, insert(2))], 1108, is_open=True)
    assert log.size > size
    assert not log.append([eu.segment([(lsn, [insert(3)])])], lsn + 8, is_open=False, most_bytes=size + 1)
    assert log.size == size
    assert rows(place.load(log).read(0, ROOM)) == [facts(whole)]


def test_an_older_copy_of_a_log_is_told_from_the_log(place: Place) -> None:
    """It agrees with itself, and what is not in it was confirmed to its source."""
    if place.backup is None:
        pytest.skip("nobody can put back what ends with its process")
    log, eu = place.create(), Sender()
    append(log, [eu.one(insert(1))], 1108)
    put_back = place.backup()
    append(log, [eu.one(insert(2)), eu.part(eu.commit_lsn(), insert(3))], 1208, is_open=True)
    same = place.load(log)
    assert (same.last_lsn, same.is_there) == (1200, True)
    same.close()
    put_back()
    for opened in (place.open, place.elsewhere or place.open):
        with pytest.raises(LogDamaged, match=r"is an older copy: it ends at 0/44C, and had changes up to 0/4B0$"):
            opened().load(T, S, log.id)
        with pytest.raises(LogDamaged, match="is an older copy"):
            opened().unfinished_lsn(T, S)
    fresh = place.create()
    assert place.load(fresh).last_lsn == 0, "another log is begun, whatever became of the one before"
    place.open().remove(T, S)
    assert place.open().unfinished_lsn(T, S) == 0


@pytest.mark.postgres
def test_a_coordinator_that_was_set_back_is_told_by_who_had_the_log_last(database: Database, tmp_path: Path) -> None:
    store = CoordinatorStore(lambda: database.url, "tests", tmp_path / "state", 30.0)
    assert store._lease.take("tests", "") is None
    here = CoordinatedLogs(tmp_path / "here", store.pieces)
    log, eu = here.create(T, S), Sender()
    append(log, [eu.one(insert(1))], 1108)
    put_back = rows_copied(database, "piece", "document")
    append(log, [eu.one(insert(2))], 1208)
    log.close()
    put_back()
    with pytest.raises(LogDamaged, match="is an older copy"):
        here.load(T, S, log.id)
    store._database.close()


@pytest.mark.postgres
def test_a_log_of_before_the_cluster_is_shared_from_then_on(database: Database, tmp_path: Path) -> None:
    before, eu = LogFolder(tmp_path / "here").create(T, S), Sender()
    append(before, [eu.one(insert(1))], 1108)
    before.close()
    store = CoordinatorStore(lambda: database.url, "tests", tmp_path / "state", 30.0)
    assert store._lease.take("tests", "") is None
    found = CoordinatedLogs(tmp_path / "here", store.pieces).load(T, S, before.id)
    append(found, [eu.one(insert(2))], 1208)
    found.close()
    again = CoordinatedLogs(tmp_path / "elsewhere", store.pieces).load(T, S, before.id)
    assert len(again.read(0, ROOM)) == 2
    store._database.close()


@pytest.mark.postgres
def test_what_a_process_has_left_of_a_log_is_not_taken_for_one_that_the_coordinator_has_lost(
    database: Database, tmp_path: Path
) -> None:
    """Another one went on with it: the changes behind what is left were confirmed, and are nowhere else."""
    store = CoordinatorStore(lambda: database.url, "tests", tmp_path / "state", 30.0)
    assert store._lease.take("tests", "") is None
    here, elsewhere = (CoordinatedLogs(tmp_path / name, store.pieces) for name in ("here", "elsewhere"))
    log, eu = here.create(T, S), Sender()
    append(log, [eu.one(insert(1))], 1108)
    log.close()
    other = elsewhere.load(T, S, log.id)
    append(other, [eu.one(insert(2))], 1208)
    other.close()
    database.execute("DELETE FROM kuvasz.piece")  # it was set back to a state of before
    for logs in (here, elsewhere):
        with pytest.raises(LogDamaged, match="is gone"):
            logs.load(T, S, log.id)
    store._database.close()


@pytest.mark.postgres
def test_a_coordinator_that_does_not_answer_has_lost_no_log(database: Database, tmp_path: Path) -> None:
    """Its table would let go of what was parked, or be taken for one that was set back."""
    urls = [database.url]
    store = CoordinatorStore(lambda: urls[-1], "tests", tmp_path / "state", 2.0)
    assert store._lease.take("tests", "") is None
    logs, eu = CoordinatedLogs(tmp_path / "here", store.pieces), Sender()
    log = logs.create(T, S)
    append(log, [eu.one(insert(1))], 1108)
    log.close()
    urls.append("postgresql://nobody@127.0.0.1:1/nowhere?connect_timeout=1")
    store._database.close()
    with pytest.raises(StateError):
        logs.load(T, S, log.id)
    with pytest.raises(StateError):
        logs.unfinished_lsn(T, S)
    urls.pop()
    store._database.close()
    assert logs.unfinished_lsn(T, S) == log.last_lsn
    logs.load(T, S, log.id).close()
    database.execute("UPDATE kuvasz.piece SET at = at + 1 WHERE at > 0")
    with pytest.raises(LogDamaged, match="a piece is missing at byte"):
        logs.load(T, S, log.id)
    database.execute("DELETE FROM kuvasz.piece WHERE at = 0")
    with pytest.raises(LogDamaged, match=r"\.copy\.log is gone$"):
        logs.load(T, S, log.id)
    store._database.close()


@pytest.mark.postgres
def test_a_log_of_before_the_cluster_is_brought_whole_or_not_at_all(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part would be taken for a log whose last group was being written as its process died."""
    monkeypatch.setattr(pieces, "_PIECE", 64)
    before, eu = LogFolder(tmp_path / "here").create(T, S), Sender()
    append(before, [eu.one(insert(1))], 1108)
    append(before, [eu.one(insert(2))], 1208)
    before.close()
    store = CoordinatorStore(lambda: database.url, "tests", tmp_path / "state", 30.0)
    assert store._lease.take("tests", "") is None
    database.execute(
        "ALTER TABLE kuvasz.piece ADD CONSTRAINT amid CHECK (at < 128)"
    )  # fails as a process that is killed amid it does: nothing follows
    with pytest.raises(StateError):
        CoordinatedLogs(tmp_path / "here", store.pieces).load(T, S, before.id)
    database.execute("ALTER TABLE kuvasz.piece DROP CONSTRAINT amid")
    found = CoordinatedLogs(tmp_path / "here", store.pieces).load(T, S, before.id)
    assert len(found.read(0, ROOM)) == 2
    found.close()
    store._database.close()
