"""Rows of a table about the lake are in it with its properties, and go by whole days."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest

from kuvasz.errors import LakeError, TableGone
from kuvasz.lake.about.tables import EVENTS, TABLES
from kuvasz.lake.about.writer import AboutWriter
from tests.support.local_lake import LocalWorld

(ABOUT,) = [table for table in TABLES if table.name == EVENTS]
NAME = f"_kuvasz.{EVENTS}"
DAY = datetime.timedelta(days=1)
NOW = datetime.datetime(2026, 11, 25, 12, tzinfo=datetime.UTC)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    made = LocalWorld(tmp_path, about="_kuvasz")
    yield made
    made.lake.close()


@pytest.fixture
def writer(world: LocalWorld) -> AboutWriter:
    return AboutWriter(ABOUT, world.lake._tables.about, 3 * 86400.0)


def numbers(world: LocalWorld) -> list[int]:
    return sorted(world.table(NAME).column("number").to_pylist())


def test_rows_and_properties_come_in_one_commit(world: LocalWorld, writer: AboutWriter) -> None:
    writer.write(
        [{"happened_at": NOW, "number": 1}, {"happened_at": NOW, "number": 2, "no such column": 3}],
        {"kuvasz.seen.a": "1"},
        NOW,
    )
    (snapshot,) = world.stored(NAME).now.snapshots
    assert world.stored(NAME).now.properties["kuvasz.seen.a"] == "1"
    assert "kuvasz.seen.a" not in snapshot.summary, "of a thousand targets that would be much"
    assert len(snapshot.files) == 1
    assert numbers(world) == [1, 2]
    assert world.stored(NAME).now.properties["format-version"] == "2"


def test_days_that_are_too_old_go_as_files(world: LocalWorld, writer: AboutWriter) -> None:
    for age in (5, 4, 3, 0):
        writer.write([{"happened_at": NOW - age * DAY, "number": age}], {}, NOW - age * DAY)
    assert numbers(world) == [0, 3]
    writer.write([{"happened_at": NOW, "number": 7}], {}, NOW + DAY)
    assert numbers(world) == [0, 7]


def test_rows_of_two_days_are_two_files(world: LocalWorld, writer: AboutWriter) -> None:
    writer.write([{"happened_at": NOW, "number": 1}, {"happened_at": NOW - DAY, "number": 2}], {}, NOW)
    assert sorted(file.data["partition"] for file in world.stored(NAME).now.files) == [["2026-11-24"], ["2026-11-25"]]


def test_a_commit_that_fails_leaves_nothing_and_is_made_again(world: LocalWorld, writer: AboutWriter) -> None:
    writer.write([{"happened_at": NOW, "number": 1}], {}, NOW)

    def refuse() -> None:
        raise LakeError("the store is full")

    world.stored(NAME).before_commit.append(refuse)
    with pytest.raises(LakeError, match="full"):
        writer.write([{"happened_at": NOW, "number": 2}], {}, NOW)
    writer.write([{"happened_at": NOW, "number": 2}], {}, NOW)
    assert numbers(world) == [1, 2]


def test_a_lost_answer_is_looked_up(world: LocalWorld, writer: AboutWriter) -> None:
    writer.write([{"happened_at": NOW, "number": 1}], {}, NOW)

    def lose() -> None:
        raise LakeError("no answer")

    world.stored(NAME).after_commit.append(lose)
    writer.write([{"happened_at": NOW, "number": 2}], {}, NOW)
    assert numbers(world) == [1, 2]


def test_who_writes_after_another_process_goes_on_behind_it(world: LocalWorld, writer: AboutWriter) -> None:
    writer.write([{"happened_at": NOW, "number": 1}], {}, NOW)
    other = AboutWriter(ABOUT, world.lake._tables.about, 86400.0)
    other.write([{"happened_at": NOW, "number": 2}], {}, NOW)
    writer.write([{"happened_at": NOW, "number": 3}], {}, NOW)
    assert numbers(world) == [1, 2, 3]
    writer.close()
    other.close()


def test_a_table_that_someone_dropped_is_made_anew(world: LocalWorld, writer: AboutWriter) -> None:
    writer.write([{"happened_at": NOW, "number": 1}], {}, NOW)
    world.catalog.drop(NAME)
    with pytest.raises(TableGone):
        writer.write([{"happened_at": NOW, "number": 2}], {}, NOW)
    writer.write([{"happened_at": NOW, "number": 2}], {}, NOW)
    assert numbers(world) == [2]


def test_who_wrote_nothing_has_nothing_to_close(writer: AboutWriter) -> None:
    writer.close()
    assert writer.loaded is None
