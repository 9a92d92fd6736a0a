"""The flood of one source takes its share of memory and of a mini-transaction, and keeps no other waiting."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.demo.postgres import EmbeddedPostgres
from tests.support.lake import MemoryPipeline, group
from tests.support.postgres import Database, create_database, drop_database
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgres

QUIET = ("one", "two", "three")
TRANSACTIONS, ROWS = 400, 20


@pytest.fixture
def databases(postgres18: EmbeddedPostgres) -> Iterator[Mapping[str | None, Database]]:
    with contextlib.ExitStack() as stack:
        found: dict[str | None, Database] = {}
        for sid in ("flood", *QUIET):
            found[sid] = create_database(postgres18)
            stack.callback(drop_database, found[sid])
            found[sid].execute("CREATE TABLE items (id int PRIMARY KEY, body text)")
        yield found


def config(folder: Path, databases: Mapping[str | None, Database]) -> Config:
    document = {
        "lake": {"warehouse": str(folder), "namespace": "shop"},
        "pipeline": {
            "state": str(folder / "state"), "commit_interval": "20ms", "workers": 1, "commit_bytes": "64kB",
            "transaction_spill_bytes": "64kB",
        },
        "server": {"address": None},
        "databases": group(databases, {"items": None}),
    }  # fmt: skip
    (folder / "map.yaml").write_text(json.dumps(document))
    return load(folder / "map.yaml", {}).config


def test_a_flood_that_fills_the_budget_lets_the_others_in(
    tmp_path: Path, databases: Mapping[str | None, Database]
) -> None:
    """While nothing can be committed, they are read, too; then they are in what is written next."""
    gate, commits = threading.Event(), []
    with MemoryPipeline(config(tmp_path, databases), SimpleNamespace()) as pipeline:
        pipeline.wait_streaming()
        commit = pipeline.lake.commit

        def gated(written: Any) -> Any:
            assert gate.wait(600)
            done = commit(written)
            commits.append({row[0] for row in pipeline.rows()})
            return done

        pipeline.lake.commit = gated  # type: ignore[method-assign]
        budget = pipeline.app.budget
        with databases["flood"].connect(autocommit=True) as session:
            for number in range(TRANSACTIONS):
                session.execute(
                    "INSERT INTO items SELECT i, repeat('x', 200) FROM generate_series(%s::int, %s) i",
                    [number * ROWS, number * ROWS + ROWS - 1],
                )
        wait_until(lambda: budget.is_full_for("shop_flood"), "the flood fills it")
        for sid in QUIET:
            databases[sid].execute("INSERT INTO items VALUES (1, 'y')")
        wait_until(
            lambda: {one.name for one in pipeline.app.view().sources if one.rows} >= {f"shop_{sid}" for sid in QUIET},
            lambda: f"the others are read: {pipeline.app.view().sources}",
        )
        assert budget.is_full_for("shop_flood")
        gate.set()
        wait_until(lambda: any({*QUIET} <= seen for seen in commits), "they come")
        # One was being committed, one was written, and they are in the next.
        assert next(number for number, seen in enumerate(commits) if {*QUIET} <= seen) <= 2
        wait_until(lambda: len(pipeline.rows()) == TRANSACTIONS * ROWS + len(QUIET), "all of it comes")
        assert budget.bytes == 0 or not pipeline.errors()
