"""Indexes are kept in the store when enough is new, and taken from there by who has the table next."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kuvasz.config.model import ClusterConfig, Config, LakeConfig
from kuvasz.errors import TableStuck
from kuvasz.index import kept, seed
from kuvasz.lake.files.object_folder import ObjectFolder, kept_index
from kuvasz.lake.iceberg import index_keeper
from kuvasz.lake.iceberg.index_keeper import IndexUpkeep
from kuvasz.lake.table.notes import SET_BACK_PROPERTY
from kuvasz.lake.table.table import LakeTable
from tests.support.lake_table import World
from tests.support.waiting import wait_until

SECRET = bytes(range(32))


class Cluster:
    """Machines that share a store, and a table that one after another has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        cluster = ClusterConfig(coordinator="postgresql:///c", indexes=str(folder / "store"))
        self.config = Config.model_construct(cluster=cluster, lake=LakeConfig())
        self.first = self.machine("first")

    def machine(self, name: str, after: World | None = None) -> World:
        """Return a machine, which has the table as another one left it in the lake."""
        (self.folder / name).mkdir()
        seed.replace(self.folder / name, SECRET)
        world = World(self.folder / name, kept=kept_index(self.config, {}, "0b5e"))
        if after is not None:
            world.iceberg, world.keys = after.iceberg, after.keys
            world.start()
        return world

    def keeper(self, *worlds: World, **options: Any) -> IndexUpkeep:
        @contextlib.contextmanager
        def having(table: LakeTable) -> Iterator[bool]:
            with table.lock:
                yield any(table is world.table for world in worlds)

        tables = cast("Any", SimpleNamespace(all=lambda: [world.table for world in worlds], having=having))
        return IndexUpkeep(self.config, {}, tables, **{"least_rows": 2, "look_s": 60.0, **options})

    def objects(self) -> int:
        return sum(1 for file in (self.folder / "store").rglob("*") if file.is_file())


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def fill(world: World, path: str, *numbers: int) -> None:
    """Have a file more, known to the index, in a snapshot of its own."""
    world.add(path, *numbers)
    snapshots = world.iceberg.snapshots
    snapshots.sequence += 1
    snapshots.current_id = snapshots.sequence
    snapshots.goes_on_from = lambda *_: True
    world.table.index.catch_up() if world.table.index.is_open else world.table.index.read()


def test_who_takes_a_table_over_reads_what_is_new_alone(cluster: Cluster) -> None:
    first, keeper = cluster.first, cluster.keeper(cluster.first)
    assert not keeper.keep(first.table), "nobody has opened it"
    fill(first, "a", 1, 2)
    assert keeper.keep(first.table)
    fill(first, "b", 3)
    assert not keeper.keep(first.table), "too little is new"
    before = first.places(1, 2, 3)
    second = cluster.machine("second", first)
    assert second.table.index.places
    assert second.read == ["b"]
    assert second.places(1, 2, 3) == before
    # It knows what is kept, and goes on from there.
    keeper = cluster.keeper(second)
    assert not keeper.keep(second.table)
    fill(second, "c", 4, 5)
    assert keeper.keep(second.table)
    third = cluster.machine("third", second)
    assert third.places(1, 2, 3, 4, 5) == second.places(1, 2, 3, 4, 5)
    assert third.read == []


def test_so_great_a_part_has_to_be_new(cluster: Cluster) -> None:
    first, keeper = cluster.first, cluster.keeper(cluster.first)
    fill(first, "a", *range(100))
    assert keeper.keep(first.table)
    fill(first, "b", *range(100, 105))
    assert not keeper.keep(first.table), "less than one in sixteen"
    fill(first, "c", *range(105, 110))
    assert keeper.keep(first.table)


def test_what_is_here_and_newer_stays(cluster: Cluster) -> None:
    first = cluster.first
    fill(first, "a", 1, 2)
    assert cluster.keeper(first).keep(first.table)
    fill(first, "b", 3, 4)
    first.table.close()
    first.read.clear()
    first.start()
    assert first.table.index.places
    assert first.read == []


@pytest.mark.parametrize("why", ["seed", "set back", "damaged"])
def test_what_is_not_to_be_believed_is_read_from_the_table(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, why: str
) -> None:
    first = cluster.first
    fill(first, "a", 1, 2)
    assert cluster.keeper(first).keep(first.table)
    second = cluster.machine("second", first)
    if why == "seed":
        seed.replace(second.folder, bytes(32))
        second.start()
    elif why == "set back":
        second.iceberg.properties = {**second.iceberg.properties, SET_BACK_PROPERTY: "one"}
    else:
        (run,) = (cluster.folder / "store").rglob("*.run")
        run.write_bytes(run.read_bytes()[:-1])
    assert second.table.index.places
    assert second.read == ["a"]
    assert ("cannot be brought from the store" in caplog.text) == (why == "damaged")


def test_a_store_that_is_away_is_tried_again(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    first, keeper = cluster.first, cluster.keeper(cluster.first)
    fill(first, "a", 1, 2)
    (cluster.folder / "store").write_bytes(b"no folder")
    assert not keeper.keep(first.table)
    assert "could not be kept in the store" in caplog.text
    second = cluster.machine("second", first)
    assert second.table.index.places, "it is read"
    (cluster.folder / "store").unlink()
    assert keeper.keep(first.table)


def test_a_table_whose_commit_hangs_keeps_nobody(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    first, keeper = cluster.first, cluster.keeper(cluster.first)
    fill(first, "a", 1, 2)

    def stuck(_: object) -> None:
        raise TableStuck("it hangs", hint="wait")

    monkeypatch.setattr(type(first.table.lock), "__enter__", stuck)
    assert not keeper.keep(first.table)


def test_a_thread_looks_at_all_tables(cluster: Cluster) -> None:
    keeper = cluster.keeper(cluster.first, look_s=0.01)
    fill(cluster.first, "a", 1, 2)
    keeper.start()
    wait_until(lambda: cluster.objects() == 2, "it is kept")
    keeper.stop()


def test_one_process_keeps_nothing() -> None:
    assert kept_index(Config.model_construct(cluster=ClusterConfig(), lake=LakeConfig()), {}, "0b5e") is None


def test_who_hands_a_table_over_keeps_all_that_is_new(cluster: Cluster) -> None:
    first = cluster.first
    keeper = cluster.keeper(first, least_rows=4)
    fill(first, "a", *range(100))
    assert keeper.keep(first.table)
    fill(first, "b", 100)
    assert not keeper.keep(first.table), "that is too little for now"
    keeper.hand_over([first.table])
    assert first.table.index.is_open, "its holder may go on"
    second = cluster.machine("second", first)
    assert second.table.index.places
    assert second.read == []
    assert second.places(0, 100) == first.places(0, 100)
    before = {file: file.stat().st_mtime_ns for file in (cluster.folder / "store").rglob("*.index")}
    cluster.keeper(second, least_rows=4).hand_over([second.table])
    assert before == {file: file.stat().st_mtime_ns for file in (cluster.folder / "store").rglob("*.index")}


def test_an_orderly_end_hands_all_tables_over(cluster: Cluster) -> None:
    fill(cluster.first, "a", 1, 2)
    cluster.keeper(cluster.first).stop()
    assert cluster.objects() == 2


def test_a_small_table_is_not_looked_for_in_the_store(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, keeper = cluster.first, cluster.keeper(cluster.first, least_rows=3)
    fill(first, "a", 1, 2)
    keeper.hand_over([first.table])
    assert not keeper.keep(first.table)

    def asked(_: object) -> None:
        raise OSError("it is asked")

    monkeypatch.setattr(ObjectFolder, "names", asked)
    for rows, is_asked in ((kept.LEAST_ROWS - 1, False), (kept.LEAST_ROWS, True)):
        first.start()
        first.iceberg.snapshots.rows = rows
        assert first.table.index.places
        assert ("cannot be brought" in caplog.text) == is_asked


def test_what_takes_too_long_is_given_up_and_nothing_of_it_is_believed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, go_on = cluster.first, threading.Event()
    fill(first, "a", 1, 2)
    upload = ObjectFolder.upload

    def slow(store: ObjectFolder, *arguments: Any) -> None:
        go_on.wait(60)
        upload(store, *arguments)

    monkeypatch.setattr(ObjectFolder, "upload", slow)
    keeper = cluster.keeper(first, patience_s=0.01)
    keeper.stop()
    go_on.set()
    turn = keeper._turns.setdefault("0b5e", threading.Lock())
    wait_until(lambda: turn.acquire(blocking=False), "the copy has ended, however far it was")
    assert not list((cluster.folder / "store").rglob("*.index")), "a run, or nothing, and no manifest"
    assert "could not be kept" not in caplog.text, "nobody has to do anything about it"
    second = cluster.machine("second", first)
    assert second.table.index.places
    assert second.read == ["a"]


def test_a_store_that_refuses_is_left_alone_for_longer_each_time(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_keeper, "_FIRST_PAUSE_S", 3600.0)
    fill(cluster.first, "a", 1, 2)
    tries = []

    def refused(_: object) -> None:
        tries.append(1)
        raise OSError("no")

    monkeypatch.setattr(ObjectFolder, "names", refused)
    keeper = cluster.keeper(cluster.first, look_s=0.001)
    looks = iter(range(20))
    monkeypatch.setattr(keeper._stop, "wait", lambda _: next(looks, None) is None)
    keeper._run()
    assert tries == [1]


def test_what_nobody_can_read_any_more_is_kept_anew(cluster: Cluster) -> None:
    first = cluster.first
    fill(first, "a", 1, 2)
    assert cluster.keeper(first).keep(first.table)
    assert not cluster.keeper(first).keep(first.table), "it is there"
    seed.replace(first.folder, bytes(32))  # the coordinator was replaced
    first.start()
    assert first.table.index.places
    assert cluster.keeper(first).keep(first.table)
    assert cluster.objects() == 2
