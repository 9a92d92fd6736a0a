"""Indexes are kept in the store when enough is new, and taken from there by who has the table next."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kuvasz.config.model import ClusterConfig, Config
from kuvasz.errors import TableStuck
from kuvasz.index import seed
from kuvasz.lake.files.object_folder import kept_index
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
        self.config = Config.model_construct(cluster=ClusterConfig(indexes=str(folder / "store")))
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

    def keeper(self, world: World, least_rows: int = 2, look_s: float = 60.0) -> IndexUpkeep:
        @contextlib.contextmanager
        def having(table: LakeTable) -> Iterator[bool]:
            with table.lock:
                yield table is world.table

        tables = cast("Any", SimpleNamespace(all=lambda: [world.table], having=having))
        return IndexUpkeep(self.config, {}, tables, least_rows=least_rows, look_s=look_s)

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


def test_without_the_option_nothing_is_kept(tmp_path: Path) -> None:
    assert kept_index(Config.model_construct(cluster=ClusterConfig()), {}, "0b5e") is None


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
