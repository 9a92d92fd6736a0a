"""A second lake of a log becomes the first one, with a real source and coordinator: the lakes alone are in memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kuvasz.config.load import Loaded, load
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.errors import ConfigError
from kuvasz.ports import Receipt
from kuvasz.state.store import log_groups, state_of
from tests.support.lake import group
from tests.support.postgres import Database, create_database, drop_database, needs
from tests.support.staged_pipeline import Lake, Reader, StagedPipeline
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgres

TABLES = ("items", "parts")


class OnceCopied(Lake):
    """A lake whose tables are copied once, at its beginning."""

    may_copy = True

    def copy(self, *given: Any, **named: Any) -> Receipt:
        assert self.may_copy, "nothing is copied again"
        return super().copy(*given, **named)


class World:
    """A source, a coordinator, and the maps of two lakes and of who reads."""

    def __init__(self, source: Database, coordinator: Database, folder: Path) -> None:
        self.source, self.coordinator, self.folder = source, coordinator, folder
        self.lakes = {name: OnceCopied() for name in ("green", "blue")}
        self.stores: list[Any] = []
        for table in TABLES:
            source.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, n int)")
            source.execute(f"INSERT INTO {table} SELECT i, 0 FROM generate_series(1, 50) i")

    def load(self, of: str, role: str, group_: str | None = None) -> Loaded:
        """Return what a process is started with; it has the lease."""
        cluster = {
            "coordinator": self.coordinator.url, "lease": "10m", "log": str(self.folder / "log"), "role": role,
            "log_interval": "20ms", "group": group_,
        }  # fmt: skip
        document = {
            "pipeline": {"state": str(self.folder / f"state-{of}"), "commit_interval": "20ms"},
            "server": {"address": None},
            "cluster": cluster,
            "lake": {"namespace": "shop"},
            "databases": group({None: self.source}, dict.fromkeys(TABLES)),
        }
        file = self.folder / f"{of}.yaml"
        file.write_text(json.dumps(document))
        loaded = load(file, {})
        store: Any = state_of(loaded.config)
        self.stores.append(store)
        store._lease.role = loaded.config.cluster.role
        assert store._lease.take("reads" if role == "read" else "applies", "") is None
        return loaded

    def begin(self, of: str, group_: str | None = None) -> StagedPipeline:
        """Return a process that applies to a lake, as the first one or as a group."""
        return StagedPipeline(self.load(of, "apply", group_).config, self.lakes[of])

    def end(self, pipeline: StagedPipeline, *, dies: bool) -> None:
        """Have a process be gone, with its lease."""
        if dies:
            pipeline.die()
        else:
            pipeline.stop()
        store: Any = state_of(pipeline.config)
        store._lease.give_back()

    def wait_equal(self) -> None:
        def are_equal() -> bool:
            return all(
                sorted(tuple(row.values()) for row in lake.rows(f"shop.{table}").to_pylist())
                == sorted(self.source.execute(f"SELECT * FROM {table}"))
                for table in TABLES
                for lake in self.lakes.values()
            )

        wait_until(are_equal, "both lakes have what the source has")


@pytest.fixture
def world(database: Database, postgres18: EmbeddedPostgres, tmp_path: Path) -> Iterator[World]:
    needs(database.server, 15, "a staged log")
    coordinator = create_database(postgres18)
    made = World(database, coordinator, tmp_path)
    yield made
    for store in made.stores:
        store._database.close()
    drop_database(coordinator)


def test_a_second_lake_becomes_the_first_one_while_its_sources_are_read(world: World) -> None:
    stop = threading.Event()

    def change() -> None:
        number = 50
        while not stop.wait(0.01):
            number += 1
            for table in TABLES:
                world.source.execute(f"UPDATE {table} SET n = n + 1 WHERE id % 3 = {number % 3}")
                world.source.execute(f"INSERT INTO {table} VALUES ({number}, 0)")

    changing = threading.Thread(target=change, daemon=True)
    first = world.begin("green")
    with first:
        reader = Reader(world.load("reader", "read"))
        first.wait_streaming()
        blue = world.begin("blue", "blue")
        with blue:
            blue.wait_streaming()
            changing.start()
            groups = log_groups(first.config)
            assert groups is not None
            with pytest.raises(ConfigError, match="group blue is in use"):
                groups.promote("blue", "green")
            world.lakes["blue"].is_away.set()  # it is behind
            ((before,),) = world.source.execute("SELECT max(id) FROM items")
            wait_until(
                lambda: before + 20 in {row["id"] for row in world.lakes["green"].rows("shop.items").to_pylist()},
                "the first one gets on",
            )
            for lake in world.lakes.values():
                lake.may_copy = False
            world.end(first, dies=True)
            world.end(blue, dies=True)
    world.lakes["blue"].is_away.clear()
    groups.promote("blue", "green")
    try:
        # And back again: what each lake lacks is told to it, whichever is the first one.
        for first_one, other in (("blue", "green"), ("green", "blue")):
            if first_one == "green":
                groups.promote("green", "blue")
            with world.begin(first_one) as one, world.begin(other, other) as two:
                for pipeline in (one, two):
                    pipeline.wait_streaming()
                ((now,),) = world.source.execute("SELECT max(id) FROM items")
                for lake in world.lakes.values():
                    wait_until(
                        lambda lake=lake, now=now: (
                            now + 5 in {row["id"] for row in lake.rows("shop.items").to_pylist()}
                        ),
                        "it gets on",
                    )
                assert [found.name for found in groups.all()] == [other]
                if first_one == "green":
                    stop.set()
                    changing.join()
                    world.wait_equal()
                    wait_until(lambda: not list((world.folder / "log").iterdir()), "no object is left")
                for pipeline in (one, two):
                    world.end(pipeline, dies=pipeline is two)
    finally:
        stop.set()
        changing.join()
        reader.stop()
    ((slots,),) = world.source.execute(
        "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    )  # fmt: skip
    assert slots == 1
