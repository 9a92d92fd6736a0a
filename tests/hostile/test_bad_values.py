"""A source whose bad value is tried again and again stops nobody else, and nothing of anybody is lost or doubled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kuvasz.config.load import load
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.state.tables import State
from kuvasz.sync.context import requests
from tests.support.lake import MemoryPipeline, group
from tests.support.postgres import Database, create_database, drop_database
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgres


@pytest.fixture
def sources(database: Database, postgres16: EmbeddedPostgres) -> Iterator[dict[str | None, Database]]:
    others = [create_database(postgres16) for _ in range(2)]
    made: dict[str | None, Database] = {"eu": database, "us": others[0], "ap": others[1]}
    for source in made.values():
        source.execute("CREATE TABLE items (id int PRIMARY KEY, day date, big text)")
        source.execute("ALTER TABLE items ALTER big SET STORAGE EXTERNAL")
    yield made
    for other in others:
        drop_database(other)


def begin(folder: Path, sources: dict[str | None, Database], table_type: str) -> MemoryPipeline:
    document = {
        "lake": {"warehouse": str(folder), "namespace": "shop"},
        "pipeline": {"state": str(folder / "state"), "commit_interval": "20ms"},
        "server": {"address": None},
        "databases": group(sources, {"items": {"type": table_type}}),
    }
    (folder / "map.yaml").write_text(json.dumps(document))
    return MemoryPipeline(load(folder / "map.yaml", {}).config, SimpleNamespace())  # type: ignore[arg-type]


def test_a_bad_value_that_is_tried_again_stops_nobody_else(
    tmp_path: Path, sources: dict[str | None, Database]
) -> None:
    with begin(tmp_path, sources, "append") as pipeline:
        pipeline.wait_streaming()

        def fill(key: int) -> None:
            for source in sources.values():
                source.execute(f"INSERT INTO items VALUES ({key}, '2024-02-29')")

        def ids(sid: str) -> list[int]:
            return sorted(row["id"] for row in pipeline.lake.rows("shop.items").to_pylist() if row["sid"] == sid)

        fill(1)
        wait_until(lambda: all(ids(sid) == [1] for sid in ("eu", "us", "ap")), "all stream")
        sources["us"].execute("INSERT INTO items VALUES (66, 'infinity')")
        for attempt in range(2, 5):
            pipeline.wait_state("shop_us", "shop.items", State.ERROR)
            before = pipeline.app.states.get("shop.items", "shop_us").error
            fill(attempt)
            wait_until(lambda: all(ids(sid)[-1] == attempt for sid in ("eu", "ap")), "the others go on")  # noqa: B023
            pipeline.tell("retry", "shop.items", "shop_us")
            wait_until(
                lambda: pipeline.app.states.get("shop.items", "shop_us").error not in {None, before},  # noqa: B023
                "it has failed again",
            )
        assert (ids("eu"), ids("us"), ids("ap")) == ([1, 2, 3, 4], [1], [1, 2, 3, 4])
        sources["us"].execute("DELETE FROM items WHERE id = 66")
        pipeline.tell("resync", "shop.items", "shop_us")
        pipeline.wait_streaming()
        fill(5)
        wait_until(lambda: all(ids(sid) == [1, 2, 3, 4, 5] for sid in ("eu", "us", "ap")), "each row once")


def test_a_row_without_its_earlier_version_stops_the_others_once(
    tmp_path: Path, sources: dict[str | None, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found in the middle of a commit, which the others make again; nobody but a person takes it up again."""
    monkeypatch.setattr(requests, "_FIRST_RETRY_S", 0.2)
    with begin(tmp_path, sources, "clone") as pipeline:
        pipeline.wait_streaming()
        for source in sources.values():
            source.execute("INSERT INTO items VALUES (1, '2024-02-29', repeat('x', 20000))")
        wait_until(lambda: len(pipeline.lake.rows("shop.items").to_pylist()) == 3, "all stream")
        rows = pipeline.lake._tables["shop.items"].rows._rows
        for key in [key for key, row in rows.items() if row.sid == "us"]:
            del rows[key]
        sources["us"].execute("UPDATE items SET day = '2024-03-01'")
        pipeline.wait_state("shop_us", "shop.items", State.ERROR)
        begun = pipeline.app.states.get("shop.items", "shop_us")
        for day in range(1, 4):
            for name in ("eu", "ap"):
                sources[name].execute(f"UPDATE items SET day = '2024-04-0{day}'")
            wait_until(
                lambda: [
                    str(row["day"]) for row in pipeline.lake.rows("shop.items").to_pylist() if row["sid"] != "us"
                ] == [f"2024-04-0{day}"] * 2,  # noqa: B023
                "the others go on",
            )  # fmt: skip
        now = pipeline.app.states.get("shop.items", "shop_us")
        assert now.error is begun.error
        assert now.retry_at is None
