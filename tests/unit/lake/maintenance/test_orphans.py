"""Files that nobody knows of are found and removed, and no others."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kuvasz.errors import LakeError
from kuvasz.lake.copies.resumption import WrittenFiles
from kuvasz.lake.files.data_file import DataFile
from kuvasz.lake.maintenance import orphans
from kuvasz.lake.maintenance.orphans import Busy, Orphans, held
from kuvasz.state.copies.ledger_file import LedgerFile
from tests.support.changes import TARGET, Sender, delete, insert, work
from tests.support.local_lake import LocalWorld

HOUR_S = 3600.0


class Bench:
    """A table with a live file, one that only an older snapshot knows, and one with deletes."""

    def __init__(self, world: LocalWorld) -> None:
        self.world = world
        world.prepare("eu", "us")
        eu = Sender()
        world.applied(work(eu.one(insert(1), insert(2))), work())
        world.applied(work(eu.one(delete(1))))
        self.table = world.loaded()
        self.data = Path(world.stored().location.removeprefix("file://"), "data")
        self.remembers = world.config.pipeline.state_folder / "looked" / "orphans.json"
        self.known = sorted(file.name for file in self.data.iterdir())

    def leave(self, name: str, age_s: float = 2 * HOUR_S) -> Path:
        file = self.data / name
        file.write_text("left behind")
        self.age(file, age_s)
        return file

    def age(self, file: Path, age_s: float) -> None:
        at = time.time() - age_s
        os.utime(file, (at, at))

    def orphans(self) -> Orphans:
        return Orphans(self.world.catalog, HOUR_S, self.remembers)  # type: ignore[arg-type]


@pytest.fixture
def bench(local_world: LocalWorld) -> Bench:
    return Bench(local_world)


def test_an_old_file_of_ours_that_no_snapshot_knows_is_removed(bench: Bench) -> None:
    left = bench.leave("kvsz-left.parquet")
    for known in bench.known:
        bench.age(bench.data / known, 2 * HOUR_S)
    assert bench.orphans().remove(bench.table, HOUR_S) == [f"{bench.table.definition.location}/data/{left.name}"]
    assert sorted(file.name for file in bench.data.iterdir()) == bench.known


@pytest.mark.parametrize(("name", "age_s"), [("kvsz-young.parquet", HOUR_S / 2), ("part-of-another.parquet", 1e6)])
def test_what_is_young_or_someone_elses_stays(bench: Bench, name: str, age_s: float) -> None:
    left = bench.leave(name, age_s)
    assert bench.orphans().remove(bench.table, HOUR_S) == []
    assert left.exists()


def test_where_another_table_has_its_files_all_stay(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """It was renamed away, or is of another catalog over the same warehouse."""
    left = bench.leave("kvsz-left.parquet")
    theirs = bench.data.parent / "metadata" / "00003-theirs.metadata.json"
    theirs.parent.mkdir()
    theirs.write_text('{"format-version": 2, "table-uuid": "another"}')
    assert bench.orphans().remove(bench.table, HOUR_S) == []
    assert left.exists()
    (told,) = [record for record in caplog.records if getattr(record, "event", "") == "orphans_left"]
    assert (told.table, told.files, told.file) == (TARGET, 1, f"file://{theirs}")
    bench.age(theirs, 2 * HOUR_S)
    assert len(bench.orphans().remove(bench.table, HOUR_S)) == 1, "nobody has written it for long"


def test_what_this_process_is_about_to_commit_stays(bench: Bench) -> None:
    eu = Sender(start=5000)
    bench.world.applied(work(eu.part(eu.commit_lsn(), insert(8)), open_sources=["eu"]))
    bench.world.lake.write([work(Sender("us").one(insert(9)))])
    unknown = bench.world.orphans()
    assert len(unknown) == 2
    for name in unknown:
        bench.age(bench.data / name, 1e6)
    assert bench.orphans().remove(bench.table, HOUR_S) == []
    assert bench.world.orphans() == unknown


def test_what_is_finished_of_a_copy_that_was_cut_off_stays(bench: Bench) -> None:
    left, other = bench.leave("kvsz-left.parquet"), bench.leave("kvsz-other.parquet")
    made = WrittenFiles(files=(DataFile(path=f"file://{left}", rows=1, size=1, json="{}"),), rejected={})
    ledger = LedgerFile(bench.world.config.pipeline.state_folder, TARGET, "eu")
    ledger.begin({}, {0: made.render()})
    maintenance = bench.world.lake.maintenance
    maintenance.start()
    assert maintenance.maintainer is not None
    removed = maintenance.maintainer._orphans.remove(bench.table, HOUR_S)
    assert [path.rpartition("/")[2] for path in removed] == [other.name]
    ledger.remove()
    removed = maintenance.maintainer._orphans.remove(bench.table, HOUR_S)
    assert [path.rpartition("/")[2] for path in removed] == [left.name]


def test_while_a_copy_is_on_its_way_nothing_can_be_said(bench: Bench) -> None:
    left = bench.leave("kvsz-left.parquet")
    bench.table.commits.copies = 1
    looked = bench.orphans()
    assert looked.remove(bench.table, HOUR_S) == []
    looked.visit(bench.table)
    assert left.exists()
    bench.table.commits.copies = 0
    looked.visit(bench.table)
    assert not left.exists(), "the day was not over for that"


def test_a_table_is_looked_at_once_a_day_whoever_runs(bench: Bench) -> None:
    bench.orphans().visit(bench.table)
    left = bench.leave("kvsz-left.parquet")
    bench.orphans().visit(bench.table)
    assert left.exists()
    bench.remembers.write_text(f'{{"{bench.table.definition.uuid}": {time.time() - 90_000}}}')
    bench.orphans().visit(bench.table)
    assert not left.exists()


@pytest.mark.parametrize("text", ["", "{", "[1]", "{}"])
def test_a_memory_that_is_lost_costs_another_look(bench: Bench, text: str) -> None:
    bench.remembers.parent.mkdir(parents=True)
    bench.remembers.write_text(text)
    left = bench.leave("kvsz-left.parquet")
    bench.orphans().visit(bench.table)
    assert not left.exists()


def test_a_catalog_that_does_not_answer_removes_nothing(bench: Bench) -> None:
    left = bench.leave("kvsz-left.parquet")
    bench.world.catalog.is_down = True
    with pytest.raises(LakeError):
        bench.orphans().remove(bench.table, HOUR_S)
    bench.world.catalog.is_down = False
    assert left.exists()


def test_a_lock_that_the_stream_keeps_is_not_waited_for_for_ever(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphans, "_LOCK_S", 0.01)
    monkeypatch.setattr(bench.table.lock, "acquire", lambda timeout: timeout > 0.01)
    with pytest.raises(Busy) as caught, held(bench.table):
        pass
    assert caught.value.message == f"table {TARGET}: its stream did not get a commit through within 0.01 s"
