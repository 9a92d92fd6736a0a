"""Rows of a table about the lake are in it with its properties, and go by whole days."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest

from kuvasz.errors import ForeignChange, LakeError, TableGone
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


def write(writer: AboutWriter, rows: list[dict], properties: dict[str, str], now: datetime.datetime) -> None:
    with writer.held() as table:
        writer.write(table, rows, properties, now)


def numbers(world: LocalWorld) -> list[int]:
    return sorted(world.table(NAME).column("number").to_pylist())


def test_rows_and_properties_come_in_one_commit(world: LocalWorld, writer: AboutWriter) -> None:
    write(
        writer,
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
        write(writer, [{"happened_at": NOW - age * DAY, "number": age}], {}, NOW - age * DAY)
    assert numbers(world) == [0, 3]
    write(writer, [{"happened_at": NOW, "number": 7}], {}, NOW + DAY)
    assert numbers(world) == [0, 7]


def test_rows_of_two_days_are_two_files(world: LocalWorld, writer: AboutWriter) -> None:
    write(writer, [{"happened_at": NOW, "number": 1}, {"happened_at": NOW - DAY, "number": 2}], {}, NOW)
    assert sorted(file.data["partition"] for file in world.stored(NAME).now.files) == [["2026-11-24"], ["2026-11-25"]]


def test_a_commit_that_fails_leaves_nothing_and_is_made_again(world: LocalWorld, writer: AboutWriter) -> None:
    write(writer, [{"happened_at": NOW, "number": 1}], {}, NOW)

    def refuse() -> None:
        raise LakeError("the store is full")

    world.stored(NAME).before_commit.append(refuse)
    with pytest.raises(LakeError, match="full"):
        write(writer, [{"happened_at": NOW, "number": 2}], {}, NOW)
    write(writer, [{"happened_at": NOW, "number": 2}], {}, NOW)
    assert numbers(world) == [1, 2]


def test_a_lost_answer_is_looked_up(world: LocalWorld, writer: AboutWriter) -> None:
    write(writer, [{"happened_at": NOW, "number": 1}], {}, NOW)

    def lose() -> None:
        raise LakeError("no answer")

    world.stored(NAME).after_commit.append(lose)
    write(writer, [{"happened_at": NOW, "number": 2}], {}, NOW)
    assert numbers(world) == [1, 2]


def test_who_writes_after_another_process_goes_on_behind_it(world: LocalWorld, writer: AboutWriter) -> None:
    write(writer, [{"happened_at": NOW, "number": 1}], {}, NOW)
    other = AboutWriter(ABOUT, world.lake._tables.about, 86400.0)
    write(other, [{"happened_at": NOW, "number": 2}], {}, NOW)
    write(writer, [{"happened_at": NOW, "number": 3}], {}, NOW)
    assert numbers(world) == [1, 2, 3]
    writer.close()
    other.close()


def test_who_writes_between_a_look_and_a_commit_refuses_it(world: LocalWorld, writer: AboutWriter) -> None:
    write(writer, [{"happened_at": NOW, "number": 1}], {}, NOW)
    stored = world.stored(NAME)
    with writer.held() as table:
        stored.before_commit.append(stored.exchange_files)
        with pytest.raises(ForeignChange):
            writer.write(table, [{"happened_at": NOW, "number": 2}], {}, NOW + 9 * DAY)
    write(writer, [{"happened_at": NOW, "number": 3}], {}, NOW)
    assert numbers(world) == [1, 3]


def test_a_table_that_someone_dropped_is_made_anew(world: LocalWorld, writer: AboutWriter) -> None:
    write(writer, [{"happened_at": NOW, "number": 1}], {}, NOW)
    world.catalog.drop(NAME)
    with pytest.raises(TableGone):
        write(writer, [{"happened_at": NOW, "number": 2}], {}, NOW)
    write(writer, [{"happened_at": NOW, "number": 2}], {}, NOW)
    assert numbers(world) == [2]


def test_who_wrote_nothing_has_nothing_to_close(writer: AboutWriter) -> None:
    writer.close()
    assert writer.loaded is None
