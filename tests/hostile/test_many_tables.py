"""A source that makes more tables than it may have is in error, and no other one is."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from kuvasz.config.load import load
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


def test_who_makes_tables_without_end_stops_himself(
    tmp_path: Path, postgres16: EmbeddedPostgres, postgres18: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "PATROL_S", 0.2)
    well, ill = create_database(postgres18), create_database(postgres16)
    try:
        create(well, "items")
        create(ill, "items")
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
        loaded = patterns.kept(load(tmp_path / "map.yaml", {}))
        with MemoryPipeline(loaded.config, SimpleNamespace()) as pipeline:
            pipeline.wait_streaming()
            create(ill, *(f"more_{number}" for number in range(20)))
            error = lambda: str(pipeline.app.sync("shop_ill").error or "")  # noqa: E731
            wait_until(lambda: "21 tables of it are like patterns" in error(), lambda: f"it is told: {error()}")
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
            wait_until(lambda: ("ill", 3) in pipeline.rows(), lambda: f"it goes on: {error()}", 60)
    finally:
        drop_database(well)
        drop_database(ill)
