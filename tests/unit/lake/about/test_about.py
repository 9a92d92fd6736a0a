"""The lake is told of itself beside its work: each snapshot is in the table of commits once, whatever happens."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kuvasz.lake.about import about as lake_about
from kuvasz.lake.about.about import LakeAbout
from kuvasz.lake.about.rows import WaitingRows
from kuvasz.ports import Receipt
from tests.support.changes import TARGET, Sender, delete, insert, update, work
from tests.support.local_lake import LocalWorld
from tests.support.waiting import wait_until

AT = datetime.datetime(2026, 11, 25, 12, tzinfo=datetime.UTC)
COMMITS, EVENTS = "_kuvasz.commits", "_kuvasz.events"


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
    world.lake.about._targets = list  # it dies without a word
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
    assert told == [COMMITS, EVENTS]
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


def test_it_is_written_by_the_clock(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_about, "INTERVAL_S", 0.01)
    about = LakeAbout("_kuvasz", 86400.0 * 30, list)
    about.start(world.lake._tables.about)
    about.tell("events", [{"happened_at": AT, "number": 1}])
    wait_until(lambda: EVENTS in world.catalog.stored and world.stored(EVENTS).now.files, "the event is there")
    about.stop()


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
