"""The lake is told of itself beside its work: each snapshot is in the table of commits once, whatever happens."""

from __future__ import annotations

import dataclasses
import datetime
import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kuvasz.errors import LakeError
from kuvasz.lake.about import about as lake_about
from kuvasz.lake.about.about import LakeAbout
from kuvasz.lake.about.rows import WaitingRows
from kuvasz.lake.executors import refused_rows
from kuvasz.model import SourcePosition, TableType
from kuvasz.ports import Failure, Receipt
from tests.support.changes import (
    ITEMS,
    SAME,
    TARGET,
    Lines,
    Sender,
    delete,
    feed,
    insert,
    target,
    update,
    work,
)
from tests.support.local_lake import LocalWorld
from tests.support.waiting import wait_until

AT = datetime.datetime(2026, 11, 25, 12, tzinfo=datetime.UTC)
COMMITS, EVENTS, REJECTS = "_kuvasz.commits", "_kuvasz.events", "_kuvasz.rejects"
BAD = "99999999999"  #: no int


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    made = LocalWorld(tmp_path, about="_kuvasz")
    yield made
    made.lake.close()


def commits(world: LocalWorld) -> list[dict[str, Any]]:
    rows = world.table(COMMITS).to_pylist()
    return sorted(rows, key=lambda row: row["sequence"])


def test_every_commit_is_told_once_with_what_it_brought(world: LocalWorld) -> None:
    world.prepare("eu")
    eu = Sender()
    (receipt,) = world.applied(work(eu.one(insert(1), insert(2))))
    world.lake.about.committed(receipt)
    world.applied(work(eu.one(update(1), delete(2))))
    world.lake.about.flush()
    world.lake.about.flush()
    first, second = commits(world)
    assert (first["inserts"], first["updates"], first["deletes"]) == (2, 0, 0)
    assert (second["inserts"], second["updates"], second["deletes"]) == (0, 1, 1)
    assert {row["kind"] for row in (first, second)} == {"stream"}
    assert [source for source, _ in first["positions"]] == ["eu"]
    assert (first["committing_seconds"], second["committing_seconds"]) == (receipt.seconds, None)
    assert (first["interval_seconds"] is None, second["interval_seconds"] is None) == (True, False)
    assert len(world.stored(COMMITS).now.snapshots) == 1, "nothing came since"


def test_a_copy_is_one_that_brought_its_rows(world: LocalWorld) -> None:
    world.prepare("eu")
    world.copy("eu", *((key, 1, "x") for key in range(3)))
    world.lake.about.flush()
    (row,) = commits(world)
    assert (row["kind"], row["inserts"], row["target"]) == ("copy", 3, TARGET)


def test_a_transaction_in_parts_is_counted_where_it_shows_and_once(world: LocalWorld) -> None:
    world.prepare("eu")
    eu = Sender()
    lsn = eu.commit_lsn()
    world.applied(work(eu.part(lsn, insert(1), insert(2)), open_sources=["eu"]))
    world.lake.about.flush()
    assert commits(world) == [], "nothing shows yet"
    world.applied(work(eu.part(lsn, insert(1), insert(2)), open_sources=["eu"], abandoned=["eu"]))
    world.applied(work(eu.segment([(lsn, [insert(3), update(1)])])))
    world.lake.about.flush()
    (row,) = commits(world)
    assert (row["inserts"], row["updates"], row["added_rows"]) == (3, 1, 0)


def test_who_died_before_a_row_was_written_is_made_up_for_by_the_next(world: LocalWorld) -> None:
    world.prepare("eu")
    eu = Sender()
    world.applied(work(eu.one(insert(1))))
    world.lake.about.flush()
    world.applied(work(eu.one(insert(2))))
    catalog = world.catalog
    world.lake.about._stop.set()
    world.lake.about._targets = {}  # it dies without a word
    world.begin(catalog)
    world.prepare("eu")
    world.applied(work(eu.one(insert(3))))
    world.lake.about.flush()
    assert [row["snapshot_id"] for row in commits(world)] == [one.number for one in world.stored().now.snapshots]
    assert sum(row["inserts"] for row in commits(world)) == 3


def test_a_catalog_that_is_down_costs_no_row_and_is_told_once(
    world: LocalWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.prepare("eu")
    world.applied(work(Sender().one(insert(1))))
    world.lake.about.tell("events", [{"happened_at": AT, "number": 1}])
    world.catalog.is_down = True
    with caplog.at_level(logging.INFO):
        world.lake.about.flush()
        world.lake.about.flush()
    told = [record.__dict__["table"] for record in caplog.records if record.__dict__.get("event") == "about_failed"]
    assert told == [COMMITS, EVENTS, "_kuvasz.sources", REJECTS, "_kuvasz.cuts"]
    world.catalog.is_down = False
    world.lake.about.tell("events", [{"happened_at": AT, "number": 2}])
    world.lake.about.flush()
    assert len(commits(world)) == 1
    assert world.table(EVENTS).column("number").to_pylist() == [1, 2]


def test_what_finds_no_room_is_told(world: LocalWorld, caplog: pytest.LogCaptureFixture) -> None:
    world.lake.about._waiting = WaitingRows(most=1)
    world.lake.about.tell("events", [{"happened_at": AT, "number": n} for n in range(3)])
    with caplog.at_level(logging.INFO):
        world.lake.about.flush()
    (record,) = [record for record in caplog.records if record.__dict__.get("event") == "about_lost"]
    assert (record.__dict__["table"], record.__dict__["rows"]) == (EVENTS, 2)


def test_what_waits_is_written_at_the_end(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, about="_kuvasz")
    world.lake.about.tell("events", [{"happened_at": AT, "number": 1}])
    world.lake.close()
    assert world.table(EVENTS).num_rows == 1


def test_what_somebody_waits_for_is_written_at_once(world: LocalWorld) -> None:
    world.lake.about.tell("cuts", [{"made_at": AT, "cut": "a"}])
    world.lake.about.tell("events", [{"happened_at": AT, "number": 1}])
    world.lake.about.write("cuts")
    assert world.table("_kuvasz.cuts")["cut"].to_pylist() == ["a"]
    assert EVENTS not in world.catalog.stored


def test_it_is_written_by_the_clock(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_about, "INTERVAL_S", 0.01)
    about = LakeAbout("_kuvasz", 86400.0 * 30, {})
    about.start(world.lake._tables.about)
    about.tell("events", [{"happened_at": AT, "number": 1}])
    wait_until(lambda: EVENTS in world.catalog.stored and world.stored(EVENTS).now.files, "the event is there")
    about.stop()


def test_what_is_not_lost_by_waiting_is_written_every_third_time(world: LocalWorld) -> None:
    about = world.lake.about
    for number in (1, 2, 3):
        about.tell("events", [{"happened_at": AT, "number": number, "severity": "info"}])
        about.tell("sources", [{"seen_at": AT, "source": f"eu{number}"}])
        about._flush(number)
        for table in (EVENTS, "_kuvasz.sources"):
            assert (table in world.catalog.stored) is (number == 3)
    assert world.table(EVENTS).num_rows == 3
    assert sorted(world.table("_kuvasz.sources").column("source").to_pylist()) == ["eu1", "eu2", "eu3"]


@pytest.mark.parametrize("severity", ["warning", "error"])
def test_what_somebody_may_have_to_act_upon_does_not_wait(world: LocalWorld, severity: str) -> None:
    about = world.lake.about
    about.tell("events", [{"happened_at": AT, "number": 1, "severity": "info"}])
    about.tell("events", [{"happened_at": AT, "number": 2, "severity": severity}])
    about._flush(1)
    assert world.table(EVENTS).num_rows == 2


def test_its_tables_are_maintained_and_nobody_s_targets(world: LocalWorld) -> None:
    world.prepare("eu")
    world.applied(work(Sender().one(insert(1))))
    for number in range(9):
        world.lake.about.tell("events", [{"happened_at": AT, "number": number}])
        world.lake.about.flush()
    maintainer = world.lake.maintenance.maintainer
    assert maintainer is not None
    maintainer.look()
    assert len(world.stored(EVENTS).now.files) < 9
    assert sorted(world.table(EVENTS).column("number").to_pylist()) == list(range(9))
    assert world.lake.maintenance.upkeep().keys() == {TARGET}
    assert world.lake._tables.loaded.keys() == {TARGET}
    assert [target for target, _ in world.lake.unmapped({"eu": ()})] == [TARGET]


def test_without_a_namespace_nothing_is_kept_and_snapshots_are_as_they_were(local_world: LocalWorld) -> None:
    about = local_world.lake.about
    assert about.namespace is None
    local_world.prepare("eu")
    local_world.applied(work(Sender().one(insert(1))))
    about.tell("events", [{"happened_at": AT}])
    about.committed(Receipt(target=TARGET, positions={}, rows=0, snapshot_id=1))
    about.flush()
    assert local_world.catalog.stored.keys() == {TARGET}
    assert "kuvasz.made" not in local_world.stored().now.snapshots[-1].summary
    assert about.tables() == []


def prepare_rejecting(world: LocalWorld, source: str = "eu", table_type: TableType = TableType.CLONE) -> None:
    wanted = dataclasses.replace(target(table_type=table_type), rejects=True)
    world.lake.prepare(wanted, feed(source), ITEMS)


def rejected(world: LocalWorld) -> list[tuple[Any, ...]]:
    found = world.table(REJECTS).sort_by([("lsn", "ascending"), ("ordinal", "ascending")]).to_pylist()
    return [(row["operation"], row["lsn"], row["ordinal"], row["key"]) for row in found]


def test_what_does_not_fit_is_written_down_before_a_position_passes_it(world: LocalWorld) -> None:
    prepare_rejecting(world)
    receipt = world.copy("eu", (1, 1, "x"), (2, BAD, "y"))
    assert (receipt.rejected, world.of("eu")) == ({"eu": 1}, {1: (1, "x")})
    before, seen = world.position("eu"), []
    eu = Sender()
    world.stored(REJECTS).before_commit.append(lambda: seen.append(world.position("eu")))
    (receipt,) = world.applied(work(eu.one(insert(3), update(1, BAD)), eu.one(insert(4, BAD))))
    assert (seen, receipt.rejected, world.of("eu")) == ([before], {"eu": 2}, {3: (0, "b")})
    assert rejected(world)[1:] == [("U", 1100, 1, '{"id": "1"}'), ("I", 1200, 0, '{"id": "4"}')]


def test_much_that_does_not_fit_is_written_down_in_portions_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused_rows, "PORTION_BYTES", 1)
    world = LocalWorld(tmp_path, about="_kuvasz")
    prepare_rejecting(world)
    world.copy("eu", (9, BAD, "y"))
    seen: list[int] = []

    def refuse() -> None:
        seen.append(len(rejected(world)))
        raise LakeError("the catalog is away", hint="wait")

    world.stored(REJECTS).before_commit += [lambda: None, refuse]
    eu = Sender()
    (receipt,) = world.applied(work(*(eu.one(insert(number, BAD, (1 << 20) * "x")) for number in range(3))))
    assert (receipt.rejected, seen) == ({"eu": 3}, [3]), "the copy's and two are there, and not written again"
    assert [one[3] for one in rejected(world)[1:]] == [f'{{"id": "{number}"}}' for number in range(3)]
    world.lake.close()


def test_what_a_repair_meets_is_written_down_or_its_files_are_nobody_s(world: LocalWorld) -> None:
    prepare_rejecting(world)
    world.copy("eu", (1, 1, "x"), (2, BAD, "y"))
    lines = Lines([(1, 2, "x"), (3, BAD, "z")])
    world.stored(REJECTS).before_commit.append(lambda: Path("gone").read_bytes())
    at = SourcePosition(lsn=9000)
    with pytest.raises(LakeError, match="rows that do not fit cannot be kept"):
        world.lake.repair(feed(), ITEMS, [lines], at)
    assert world.orphans() == []
    receipt = world.lake.repair(feed(), ITEMS, [lines], at)
    assert (receipt.rejected, world.of("eu")) == ({"eu": 1}, {1: (2, "x")})
    assert rejected(world)[-1][:2] == ("R", 9000)


def test_a_position_waits_for_what_cannot_be_written_down(world: LocalWorld) -> None:
    prepare_rejecting(world)
    world.copy("eu", (1, BAD, "x"))
    before = world.position("eu")
    seen: list[int] = []

    def refuse() -> None:
        seen.append(world.position("eu"))
        raise LakeError("the catalog is away", hint="wait")

    world.stored(REJECTS).before_commit += [refuse, refuse]
    eu = Sender()
    (receipt,) = world.applied(work(eu.one(insert(2, BAD), insert(3))))
    assert (seen, receipt.rejected, world.of("eu")) == ([before, before], {"eu": 1}, {3: (0, "b")})


def test_after_a_kill_what_does_not_fit_may_be_there_twice_by_one_key(world: LocalWorld) -> None:
    prepare_rejecting(world)
    world.copy("eu", (1, 1, "x"))
    left: dict[str, Any] = {}
    world.stored().before_commit.append(lambda: left.update((one.name, one.now) for one in stored()))

    def stored() -> list[Any]:
        return list(world.catalog.stored.values())

    world.applied(work(Sender().one(insert(2, BAD), insert(3))))
    for one in stored():
        one.now = left[one.name]
    assert (rejected(world), world.of("eu")) == ([("I", 1100, 0, '{"id": "2"}')], {1: (1, "x")})
    shutil.rmtree(world.config.pipeline.state_folder)  # it has noted what came after
    world.begin(world.catalog)
    prepare_rejecting(world)
    world.applied(work(Sender().one(insert(2, BAD), insert(3))))
    assert (rejected(world), world.of("eu")) == (2 * [("I", 1100, 0, '{"id": "2"}')], {1: (1, "x"), 3: (0, "b")})


def test_a_large_transaction_in_parts_numbers_what_does_not_fit(world: LocalWorld) -> None:
    prepare_rejecting(world)
    world.copy("eu")
    eu = Sender()
    lsn = eu.commit_lsn()
    world.applied(work(eu.part(lsn, insert(1), insert(2, BAD)), open_sources=["eu"]))
    world.applied(work(eu.segment([(lsn, [insert(3, BAD), insert(4)])])))
    assert [one[1:3] for one in rejected(world)] == [(lsn, 1), (lsn, 2)]
    assert sorted(world.of("eu")) == [1, 4]


def test_small_sources_share_a_file_and_each_has_its_own_rejects(world: LocalWorld) -> None:
    for source in ("eu", "us"):
        prepare_rejecting(world, source)
        world.copy(source)
    (receipt,) = world.applied(work(Sender("eu").one(insert(1, BAD), insert(2)), Sender("us").one(insert(1))))
    assert (receipt.rejected, world.files()) == ({"eu": 1}, 1)
    assert sorted(world.rows()) == [("eu", 2), ("us", 1)]


@pytest.mark.parametrize("table_type", [TableType.APPEND, TableType.CHANGELOG, TableType.HISTORY])
def test_where_rows_stay_no_value_is_taken_from_before_a_rejected_row(
    world: LocalWorld, table_type: TableType
) -> None:
    """The newest version in the lake may be older than one that was rejected, which nobody could tell."""
    prepare_rejecting(world, table_type=table_type)
    world.copy("eu", (1, 1, "old"))
    eu = Sender()
    world.applied(work(eu.one(update(1, BAD, "new"))))
    (failure,) = world.apply(work(eu.one(update(1, 2, SAME))))
    assert isinstance(failure, Failure)
    assert "a row before it may have been rejected" in failure.error.message


def test_the_rows_that_a_repair_leaves_out_are_written_down(world: LocalWorld) -> None:
    prepare_rejecting(world)
    world.copy("eu", (1, 1, "x"))
    at = SourcePosition(lsn=2000, system_id="7001")
    rows = Lines(((1, BAD, "x"), (2, 1, "y")))
    receipt = world.lake.repair(feed("eu"), ITEMS, [rows], at)
    assert (receipt.rejected, world.of("eu")) == ({"eu": 1}, {2: (1, "y")})
    assert [one[:2] for one in rejected(world)] == [("R", 2000)]


def test_what_a_clone_lacks_because_it_was_rejected_takes_later_rows_with_it(world: LocalWorld) -> None:
    """Those that leave a value out, until one has it; rows of the same chunk that find theirs stay."""
    for source in ("eu", "us"):
        prepare_rejecting(world, source)
        world.copy(source, (1, 1, "one"), (2, 2, "two"))
    eu, us = Sender("eu"), Sender("us")
    world.applied(work(eu.one(update(1, BAD, "new"))))
    (receipt,) = world.applied(work(eu.one(update(1, 5, SAME), update(2, 6, SAME)), us.one(update(1, 7, SAME))))
    assert receipt.rejected == {"eu": 1}
    assert (world.of("eu"), world.of("us")) == ({2: (6, "two")}, {1: (7, "one"), 2: (2, "two")})
    world.applied(work(eu.one(update(1, 8, SAME))))
    assert rejected(world)[1:] == [("U", 1200, 0, '{"id": "1"}'), ("U", 1300, 0, '{"id": "1"}')]
    last = max(world.table(REJECTS).to_pylist(), key=lambda row: row["lsn"])
    assert json.loads(last["raw_row"]) == {"id": "1", "n": "8"}
    assert (last["source"], last["table_name"]) == ("eu", "public.items")
    world.applied(work(eu.one(update(1, 9, "whole")), eu.one(update(1, 10, SAME))))
    assert world.of("eu") == {1: (10, "whole"), 2: (6, "two")}


def test_a_value_of_before_a_rejected_row_of_the_same_commit_is_not_taken(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, about="_kuvasz")
    prepare_rejecting(world)
    world.copy("eu", (1, 1, "old"), (2, 1, "old"))
    eu = Sender()
    filler = [insert(number, 1, "x" * 100_000) for number in range(100, 115)]  # the next is another chunk's
    first, second = eu.one(update(1, BAD, "new"), *filler), eu.one(update(1, 2, SAME), update(2, 3, SAME))
    (receipt,) = world.applied(work(first, second))
    assert receipt.rejected == {"eu": 2}
    assert {key: row for key, row in world.of("eu").items() if key < 100} == {2: (3, "old")}
    world.lake.close()
