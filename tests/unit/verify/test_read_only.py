"""A process that looks at the lake beside a running kuvasz, and mends what differs, without Spark."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.errors import ForeignChange, InternalError, SchemaError, TableError
from kuvasz.fold.difference import Difference
from kuvasz.lake.copies.repair import wanted_keys
from kuvasz.lake.executors.comparison_tasks import Fetched, pairs
from kuvasz.lake.files.data_file import remove
from kuvasz.lake.files.file_io import file_io
from kuvasz.lake.table.notes import ANCHOR_PROPERTY
from kuvasz.lake.table.table import LakeTable
from kuvasz.model import POSTGRES_EPOCH_US, TableType
from kuvasz.verify import read_only
from kuvasz.verify.read_only import ReadOnlyLake, look, mend
from tests.support.changes import ITEMS, TARGET, Lines, Sender, delete, feed, insert, target, update, work
from tests.support.local_lake import LocalWorld

US = 50_000


class Bench:
    """A running kuvasz with two sources, and a process beside it."""

    def __init__(self, world: LocalWorld, beside: ReadOnlyLake, kind: TableType = TableType.CLONE) -> None:
        self.world, self.beside, self.target = world, beside, target(table_type=kind)
        for source in ("eu", "us"):
            world.lake.prepare(self.target, feed(source), ITEMS)
            world.copy(source)
        rows = [insert(1, 1), insert(2, 2), insert(3, 3)]
        world.applied(work(Sender().one(*rows), Sender("us").one(insert(1, 7))))

    def table(self) -> LakeTable:
        found = self.beside.table(self.target)
        assert found is not None
        look(found)
        return found

    def compared(self, table: LakeTable, *rows: tuple) -> tuple[Difference, list[Fetched]]:
        requests: Any = [Lines(rows)]
        compare = self.beside.comparison(
            table, feed(), ITEMS, requests, lambda *_: None, at_us=US + POSTGRES_EPOCH_US
        )
        found = compare.difference()
        fetched = compare.fetch(wanted_keys(found), table)
        compare.close()
        return found, fetched


@pytest.fixture
def beside(local_world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReadOnlyLake]:
    monkeypatch.setattr(read_only, "Jobs", lambda _, **__: local_world.jobs)
    monkeypatch.setattr(read_only, "Catalog", lambda *_: local_world.catalog)
    session: Any = SimpleNamespace()
    with ReadOnlyLake(local_world.config, session) as found:
        yield found


@pytest.fixture
def bench(local_world: LocalWorld, beside: ReadOnlyLake) -> Bench:
    return Bench(local_world, beside)


ROWS = [(1, 1, "b"), (2, 20, "b"), (4, 4, "b")]


def test_a_table_is_seen_as_it_is_now(bench: Bench) -> None:
    table = bench.table()
    assert table.positions == bench.world.lake.positions(TARGET)
    assert table.index.snapshot_id == bench.world.stored().now.current
    numbers = {entry.path: entry.number for entry in table.index.files}
    bench.world.applied(work(Sender(start=5000).one(insert(9))))
    look(table)
    again = {entry.path: entry.number for entry in table.index.files}
    assert len(again) == len(numbers) + 1
    assert again.items() > numbers.items(), "numbers stay the same from one look to the next"


def test_a_table_that_the_lake_has_not_is_none(bench: Bench) -> None:
    assert bench.beside.table(target("shop.nowhere")) is None


def test_deletes_that_kuvasz_does_not_write_are_told(bench: Bench) -> None:
    table = bench.table()
    stored = bench.world.stored()
    (snapshot, *_) = [one for one in stored.now.snapshots if one.number == stored.now.current]
    files = tuple(dataclasses.replace(one, deletes=({"content": "equality-deletes"},)) for one in snapshot.files)
    stored._show(files, {})
    with pytest.raises(TableError, match="has deletes that kuvasz does not write"):
        look(table)


def test_what_differs_is_mended_in_one_commit_that_moves_no_source(bench: Bench) -> None:
    table = bench.table()
    found, fetched = bench.compared(table, *ROWS)
    before = bench.world.stored().now
    assert mend(table, feed(), found, fetched) == 3
    assert bench.world.rows() == {
        ("eu", 1): (1, "b"), ("eu", 2): (20, "b"), ("eu", 4): (4, "b"), ("us", 1): (7, "b"),
    }  # fmt: skip
    now = bench.world.stored().now
    anchor = now.properties[ANCHOR_PROPERTY]
    assert anchor != before.properties[ANCHOR_PROPERTY]
    others = {ANCHOR_PROPERTY: before.properties[ANCHOR_PROPERTY]}
    assert now.properties | others == before.properties, "the id of the last commit stays that of the running kuvasz"
    assert now.snapshots[-1].summary == {"kuvasz.mend": "3", ANCHOR_PROPERTY: anchor}
    bench.world.applied(work(Sender(start=5000).one(update(2, 21), delete(4))))
    assert bench.world.of("eu") == {1: (1, "b"), 2: (21, "b")}


def test_a_table_that_was_set_back_before_is_so_still_behind_what_is_mended(bench: Bench) -> None:
    stored = bench.world.stored()
    stored.now.properties[ANCHOR_PROPERTY] = "of a commit that was rolled back"
    table = bench.table()
    found, fetched = bench.compared(table, *ROWS)
    assert mend(table, feed(), found, fetched) == 3
    assert stored.now.properties[ANCHOR_PROPERTY] == "of a commit that was rolled back"
    assert stored.now.snapshots[-1].summary == {"kuvasz.mend": "3"}


def test_files_that_were_swept_away_meanwhile_are_not_committed(bench: Bench) -> None:
    table = bench.table()
    found, fetched = bench.compared(table, *ROWS)
    before = bench.world.rows()
    for file, _ in pairs(fetched):
        remove(file_io({}, file.path), [file.path])
    with pytest.raises(TableError, match="removed meanwhile"):
        mend(table, feed(), found, fetched)
    assert bench.world.rows() == before


def test_rows_that_are_not_wanted_any_more_stay_out(bench: Bench) -> None:
    table = bench.table()
    found, fetched = bench.compared(table, *ROWS)
    some = found.keep(found.keys.lo == found.keys.lo[0])
    mend(table, feed(), some, fetched)
    left, _ = bench.compared(bench.table(), *ROWS)
    assert set(left.keys.lo.tolist()) == set(found.keys.lo.tolist()) - set(some.keys.lo.tolist())


def test_a_table_that_changed_since_the_look_is_not_touched(bench: Bench) -> None:
    table = bench.table()
    found, fetched = bench.compared(table, *ROWS)
    bench.world.applied(work(Sender(start=5000).one(delete(1), delete(2), delete(3))))
    before = bench.world.rows()
    with pytest.raises(ForeignChange):
        mend(table, feed(), found, fetched)
    assert bench.world.rows() == before
    left = [name for name in bench.world.orphans() if "puffin" in name or "deletes" in name]
    assert left == []


def test_a_historys_versions_end_when_the_snapshot_was_taken(local_world: LocalWorld, beside: ReadOnlyLake) -> None:
    bench = Bench(local_world, beside, TableType.HISTORY)
    table = bench.table()
    found, fetched = bench.compared(table, *ROWS)
    versions = beside.table(bench.target)
    assert versions is not None
    at_us, seen = US + POSTGRES_EPOCH_US, table.index.snapshot_id
    beside.mend_versions(versions, feed(), found, fetched, at_us=at_us, snapshot_id=seen)
    assert [row for row in local_world.versions() if row[1] != 7] == [
        (1, 1, 11_000, None, False), (2, 2, 11_000, US, False), (2, 20, US, None, False),
        (3, 3, 11_000, US, True), (4, 4, US, None, False),
    ]  # fmt: skip
    local_world.applied(work(Sender(start=9000).one(update(2, 21))))
    (newest,) = [row for row in local_world.versions() if row[0] == 2 and row[3] is None]
    assert newest[1] == 21, "the stream goes on from what was mended"


def test_versions_are_not_mended_upon_another_snapshot(local_world: LocalWorld, beside: ReadOnlyLake) -> None:
    bench = Bench(local_world, beside, TableType.HISTORY)
    table = bench.table()
    found, fetched = bench.compared(table, *ROWS)
    versions = beside.table(bench.target)
    assert versions is not None
    local_world.applied(work(Sender(start=5000).one(insert(9))))
    before = local_world.versions()
    with pytest.raises(ForeignChange, match="it changed meanwhile"):
        beside.mend_versions(versions, feed(), found, fetched, at_us=1, snapshot_id=table.index.snapshot_id)
    assert local_world.versions() == before


def test_keys_are_never_read_beside_a_running_kuvasz(bench: Bench) -> None:
    fresh = bench.beside.table(bench.target)
    assert fresh is not None
    with pytest.raises(InternalError):
        fresh.index.read()


def test_source_and_lake_must_agree_on_columns(bench: Bench) -> None:
    narrower = dataclasses.replace(
        ITEMS, columns=(*ITEMS.columns, dataclasses.replace(ITEMS.columns[1], name="more"))
    )
    with pytest.raises(SchemaError):
        bench.beside.comparison(bench.table(), feed(), narrower, [], lambda *_: None)


def test_rows_of_nobody_are_counted_only_where_all_sources_are_known(bench: Bench) -> None:
    assert bench.beside.strays(bench.target, {"eu": "eu", "us": "us"}) == 0
    assert bench.beside.strays(bench.target, {"eu": "eu", "us": "elsewhere"}) == 1
    assert bench.beside.strays(bench.target, {"eu": "eu"}) == 0, "us was taken out of the map"
    assert bench.beside.strays(target("shop.nowhere"), {}) == 0


def test_nothing_of_the_running_one_is_touched(bench: Bench) -> None:
    state = bench.world.config.pipeline.state_folder

    def files() -> list[tuple[str, bytes]]:
        return sorted((str(file), file.read_bytes()) for file in Path(state).rglob("*") if file.is_file())

    before = files()
    bench.compared(bench.table(), *ROWS)
    assert files() == before
