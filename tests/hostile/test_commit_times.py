"""A source says when its transactions committed: whoever owns it may have it say any time.

`pg_replication_origin_xact_setup` does. That is a time of its own rows: it stops no table, changes nothing of what is
shown of others, and can be shown itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kuvasz.admin import views
from kuvasz.admin.observer import Observer
from kuvasz.config.load import load
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.state.tables import State
from tests.support.lake import MemoryPipeline, group
from tests.support.postgres import Database, create_database, drop_database
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgres


@pytest.fixture
def sources(postgres18: EmbeddedPostgres) -> Iterator[dict[str | None, Database]]:
    made: dict[str | None, Database] = {sid: create_database(postgres18) for sid in ("eu", "us", "ap")}
    for source in made.values():
        source.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
    yield made
    for source in made.values():
        drop_database(source)


def at(database: Database, origin: str, when: str, *statements: str) -> None:
    """Commit a transaction that says that it was committed at a time."""
    with database.connect() as session:
        session.execute("SELECT pg_replication_origin_create(%s)", [origin])
        session.commit()
        session.execute("SELECT pg_replication_origin_session_setup(%s)", [origin])
        session.execute("SELECT pg_replication_origin_xact_setup('0/1', %s)", [when])
        for statement in statements:
            session.execute(statement)
        session.commit()
        session.execute("SELECT pg_replication_origin_session_reset()")
        session.execute("SELECT pg_replication_origin_drop(%s)", [origin])
        session.commit()


@pytest.mark.parametrize("kind", [pytest.param("clone", marks=pytest.mark.slow), "changelog"])
@pytest.mark.parametrize("when", ["infinity", "-infinity", "294276-12-31", "4713-01-01 BC"])
def test_any_time_of_a_commit_is_its_own_rows_alone(
    tmp_path: Path, sources: dict[str | None, Database], kind: str, when: str
) -> None:
    document = {
        "lake": {"warehouse": str(tmp_path), "namespace": "shop"},
        "pipeline": {"state": str(tmp_path / "state"), "commit_interval": "500ms", "workers": 1},
        "server": {"address": None},
        "databases": group(sources, {"items": {"type": kind}}),
    }
    (tmp_path / "map.yaml").write_text(json.dumps(document))
    with MemoryPipeline(load(tmp_path / "map.yaml", {}).config, SimpleNamespace()) as pipeline:

        def shown() -> dict[str, str | None]:
            observer = Observer(pipeline.app)
            try:
                found = views.status(observer.snapshot())["sources"]
            finally:
                observer.close()
            return {source["source"]: source["tables"][0]["newest_change_at"] for source in found}

        def ids(sid: str) -> set[int]:
            return {row["id"] for row in pipeline.lake.rows("shop.items").to_pylist() if row["sid"] == sid}

        pipeline.wait_streaming()
        for source in sources.values():
            source.execute("INSERT INTO items VALUES (1, 1)")
        wait_until(lambda: all(ids(sid) >= {1} for sid in ("eu", "us", "ap")), "all stream")
        changes = ("UPDATE items SET n = 2", "INSERT INTO items VALUES (2, 2)", "DELETE FROM items WHERE id = 1")
        at(sources["us"], f"{tmp_path.name}a", when, *changes)
        at(sources["us"], f"{tmp_path.name}b", when, "TRUNCATE items")
        at(sources["us"], f"{tmp_path.name}c", when, "INSERT INTO items VALUES (3, 3)")
        for sid in ("eu", "ap"):
            sources[sid].execute("INSERT INTO items VALUES (4, 4)")
        wait_until(lambda: ids("us") >= {3}, lambda: f"it goes on: {pipeline.errors()}")
        others = lambda: all(ids(sid) >= {1, 4} for sid in ("eu", "ap"))  # noqa: E731
        wait_until(others, lambda: f"so do the others: {pipeline.errors()}")
        pipeline.wait_applied(*sources.values())
        assert set(pipeline.states().values()) == {State.STREAMING}
        newest = shown()
        assert newest["shop_us"]
        assert all(str(newest[f"shop_{sid}"]).startswith("20") for sid in ("eu", "ap")), newest
