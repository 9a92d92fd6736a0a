"""A source that makes more tables than it may have is in error, and no other one is."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kuvasz.admin.live_map import LiveMap
from kuvasz.config.load import Loaded, load
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.sync import watches
from kuvasz.verbs import check, plan
from kuvasz.verbs.maps import patterns
from tests.support.lake import MemoryPipeline
from tests.support.postgres import Database, create_database, drop_database
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgres

_MOST = 5


def create(database: Database, *tables: str) -> None:
    for table in tables:
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY); INSERT INTO {table} VALUES (1)")


@pytest.fixture
def well(postgres18: EmbeddedPostgres) -> Iterator[Database]:
    made = create_database(postgres18)
    create(made, "items")
    yield made
    drop_database(made)


@pytest.fixture
def ill(postgres16: EmbeddedPostgres) -> Iterator[Database]:
    made = create_database(postgres16)
    create(made, "items")
    yield made
    drop_database(made)


@pytest.fixture
def loaded(tmp_path: Path, well: Database, ill: Database, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    """A map that takes in all tables of both, looked for all the time."""
    monkeypatch.setattr(watches, "PATROL_S", 0.2)
    document = {
        "lake": {"warehouse": str(tmp_path), "namespace": "shop"},
        "pipeline": {"state": str(tmp_path / "state"), "commit_interval": "20ms"},
        "server": {"address": None},
        "databases": [{
            "database": "shop", "max_tables": _MOST, "tables": {"public.*": None},
            "urls": [{"url": well.url, "sid": "well"}, {"url": ill.url, "sid": "ill"}],
        }],
    }  # fmt: skip
    (tmp_path / "map.yaml").write_text(json.dumps(document))
    return patterns.kept(load(tmp_path / "map.yaml", {}))


def error_of(pipeline: MemoryPipeline) -> str:
    return str(pipeline.app.sync("shop_ill").error or "")


def test_who_makes_tables_without_end_stops_himself(loaded: Loaded, well: Database, ill: Database) -> None:
    with MemoryPipeline(loaded.config, SimpleNamespace()) as pipeline:
        pipeline.wait_streaming()
        create(ill, *(f"more_{number}" for number in range(20)))
        told = lambda: f"it is told: {error_of(pipeline)}"  # noqa: E731
        wait_until(lambda: "21 tables of it are like patterns" in error_of(pipeline), told)
        well.execute("INSERT INTO items VALUES (2)")
        wait_until(lambda: ("well", 2) in pipeline.rows(), lambda: f"others go on: {pipeline.errors()}")
        assert pipeline.app.sync("shop_well").error is None
        assert {spec.target for spec in pipeline.app.sync("shop_ill").mapped.tables} == {"items"}

        asked = patterns.asked(loaded).config
        (found,) = (one for one in check.findings(asked) if one.check == "pattern")
        assert (found.source, found.needed, found.is_blocking) == ("kuvasz_shop_ill", "5 tables", True)
        planned = {one.source: one.error for one in plan.plans(asked)}
        assert planned["shop_well"] is None
        assert "21 tables of it" in str(planned["shop_ill"])

        for number in range(20):
            ill.execute(f"DROP TABLE more_{number}")
        ill.execute("INSERT INTO items VALUES (3)")
        wait_until(lambda: ("ill", 3) in pipeline.rows(), lambda: f"it goes on: {error_of(pipeline)}", 60)


@contextlib.contextmanager
def following(pipeline: MemoryPipeline, loaded: Loaded) -> Iterator[None]:
    """Have the map be taken over whenever its patterns take in something else."""

    async def begin() -> asyncio.Task[None]:
        return asyncio.create_task(LiveMap(pipeline.app, loaded).run())

    task = pipeline.call(begin())

    async def end() -> None:
        task.cancel()

    try:
        yield
    finally:
        pipeline.call(end())


def test_who_makes_and_drops_tables_without_end_stops_himself(loaded: Loaded, well: Database, ill: Database) -> None:
    """The lake keeps each of them: he never has more than two, and would have as many there as he likes."""
    with MemoryPipeline(loaded.config, SimpleNamespace()) as pipeline, following(pipeline, loaded):
        pipeline.wait_streaming()
        reader = pipeline.app.sync("shop_well").reader

        def is_over(number: int) -> bool:
            followed = {target for source, target in pipeline.states() if source == "shop_ill"}
            return f"shop.more_{number}" in followed or "6 tables that are like patterns" in error_of(pipeline)

        for number in range(_MOST + 1):
            create(ill, f"more_{number}")
            wait_until(lambda: is_over(number), lambda: f"more_{number} is seen: {error_of(pipeline)}", 60)  # noqa: B023
            ill.execute(f"DROP TABLE more_{number}" if number < _MOST else "SELECT")
        assert "have come to it within a day, and at most 5 may" in error_of(pipeline)
        well.execute("INSERT INTO items VALUES (2)")
        wait_until(lambda: ("well", 2) in pipeline.rows(), lambda: f"others go on: {pipeline.errors()}")
        assert pipeline.app.sync("shop_well").reader is reader, "nobody has begun them again"
        ill.execute(f"DROP TABLE more_{_MOST}")
        ill.execute("INSERT INTO items VALUES (3)")
        wait_until(lambda: ("ill", 3) in pipeline.rows(), lambda: f"it goes on: {error_of(pipeline)}", 60)
