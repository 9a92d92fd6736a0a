"""What docs/about-the-lake.md says of the tables about the lake is so, and its questions are answered."""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from kuvasz.lake.about import about as lake_about
from kuvasz.lake.about.tables import TABLES
from kuvasz.lake.iceberg.lake import IcebergLake
from kuvasz.state.store import state_of
from kuvasz.state.tables import State
from tests.support import oracle
from tests.support.lake import LakeFolder, group
from tests.support.postgres import Database
from tests.support.served import ServedPipeline
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

PAGE = (Path(__file__).parents[2] / "docs" / "about-the-lake.md").read_text("utf-8")
QUESTIONS = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
TARGET = "shop.items"


def about(lake: LakeFolder, table: str) -> pa.Table:
    """One of the tables, as PyIceberg reads it; empty if it is not there yet."""
    catalog = oracle.open_catalog(lake.pyiceberg, catalog=lake.catalog)
    name = f"_kuvasz.{table}"
    return catalog.load_table(name).scan().to_arrow() if catalog.table_exists(name) else pa.table({})


def rows(lake: LakeFolder, table: str) -> list[dict[str, Any]]:
    return about(lake, table).to_pylist()


def events(lake: LakeFolder, name: str) -> list[dict[str, Any]]:
    return [row for row in rows(lake, "events") if row["event"] == name]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_the_page_lists_the_columns(table: Any) -> None:
    text = PAGE[PAGE.index(f"### `{table.name}`") :]
    listed = re.findall(r"^\| `(\w+)` \| (\w+) \|", text.partition("\n### ")[0].partition("\n## ")[0], re.MULTILINE)
    assert listed == [(name, kind.value) for name, kind in table.columns.items()]


#: What the questions call, and Trino has as Spark and DuckDB do (its documentation, "Functions and operators").
TRINO = {"avg", "count", "date_trunc", "max", "max_by", "over", "row_number", "sum"}


@pytest.mark.parametrize("question", QUESTIONS)
def test_where_trino_wants_something_else_the_page_says_so(question: str) -> None:
    called = set(re.findall(r"\b(\w+) ?\(", question.lower())) - {"from", "in", "group", "and"}
    others = sorted(called - TRINO) + ["["] * ("[" in question)
    behind = PAGE[PAGE.index(question) + len(question) :].partition("```sql")[0]
    assert bool(others) == ("In Trino" in behind), others
    assert len(QUESTIONS) > 10


def test_a_lake_that_is_loaded_paused_and_changed_says_so(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_about, "INTERVAL_S", 0.5)
    database.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
    database.execute("INSERT INTO items SELECT i, 1 FROM generate_series(1, 500) i")
    config = lake_folder.config(group({"eu": database}, {"items": None}), lake={"about": "_kuvasz"})
    server = config.server.model_copy(update={"address": "127.0.0.1:0"})
    with ServedPipeline(config.model_copy(update={"server": server}), lake_folder) as pipeline:
        pipeline.wait_streaming()
        token = json.loads((lake_folder.folder / "state" / "server.json").read_text())["token"]
        database.execute("INSERT INTO items SELECT i, 1 FROM generate_series(501, 520) i")
        database.execute("UPDATE items SET n = 2 WHERE id <= 10")
        database.execute("DELETE FROM items WHERE id <= 3")
        pipeline.wait_applied(database)
        for verb, state in (("pause", State.PAUSED), ("resume", State.STREAMING)):
            assert pipeline.get(f"/api/{verb}", {"table": "items", "by": "anna"}, token)[0] == 202
            pipeline.wait_state("shop_eu", TARGET, state)
        database.execute("ALTER TABLE items ADD COLUMN extra text")
        database.execute("INSERT INTO items VALUES (1000, 1, 'x')")
        pipeline.wait_applied(database)
        wait_until(lambda: events(lake_folder, "schema_changed"), "the schema's change is told")
        _compare_with_status(pipeline, lake_folder)
    assert pipeline.exit_code == 0
    told = rows(lake_folder, "commits")
    (target,) = [oracle.open_table(lake_folder.pyiceberg, TARGET, catalog=lake_folder.catalog)]
    assert sorted(row["snapshot_id"] for row in told) == sorted(one.snapshot_id for one in target.metadata.snapshots)
    sums = {name: sum(row[name] or 0 for row in told) for name in ("inserts", "updates", "deletes")}
    assert sums == {"inserts": 500 + 20 + 1, "updates": 10, "deletes": 3}
    assert [json.loads(row["fields"]) for verb in ("pause", "resume") for row in events(lake_folder, verb)] == [
        {"by": "anna"}, {"by": "anna"},
    ]  # fmt: skip
    audited = [json.loads(row["fields"]) for row in events(lake_folder, "audit")]
    assert [(one["by"], one["person"], one["what"], one["target"], one["result"]) for one in audited] == [
        ("local", "anna", f"POST /api/{verb}", "table 'items'", "done") for verb in ("pause", "resume")
    ]
    numbers = sorted(row["number"] for row in rows(lake_folder, "events"))
    assert numbers == list(range(1, len(numbers) + 1)), "none is missing, none is there twice"
    _ask(lake_folder)


def _compare_with_status(pipeline: ServedPipeline, lake: LakeFolder) -> None:
    """The last row of `sources` is what the status says, once nothing moves any more."""

    def agrees() -> bool:
        (shown,) = pipeline.status()["tables"]
        found = sorted(rows(lake, "sources"), key=lambda row: row["seen_at"])
        if not found:
            return False
        last = found[-1]
        assert last["bytes_applied"] >= 10 * last["rows_applied"]
        return (last["source"], last["source_sid"], last["target"], last["table_name"]) == (
            "shop_eu", "eu", TARGET, "public.items",
        ) and (last["state"], last["lsn"], last["rows_applied"], last["error"]) == (
            shown["state"], shown["durable_lsn"], shown["rows"], None,
        )  # fmt: skip

    wait_until(agrees, lambda: f"{pipeline.status()} is {rows(lake, 'sources')[-3:]}")


def _ask(lake: LakeFolder) -> None:
    """Each question of the page has one answer in both engines."""
    assert len(QUESTIONS) >= 5
    with duckdb.connect() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        duck.execute("CREATE SCHEMA _kuvasz")
        for table in TABLES:
            duck.register("found", about(lake, table.name))
            duck.execute(f"CREATE TABLE _kuvasz.{table.name} AS SELECT * FROM found")
            duck.unregister("found")
        counts = []
        for question in QUESTIONS:
            found = duck.execute(question).fetchall()
            spark = lake.session.sql(question.replace("_kuvasz.", f"{lake.catalog}._kuvasz.")).collect()
            assert len(spark) == len(found), question
            counts.append(len(found))
        view = "SELECT source, target, state, nth FROM current_sources"
        assert [tuple(row) for row in lake.session.sql(view).collect()] == duck.execute(view).fetchall()
    assert counts[:2] == [0, 1], "a view, and one source's table"
    assert max(counts) > 1


def test_days_that_are_too_old_go_also_after_a_restart(lake_folder: LakeFolder) -> None:
    """Which day a file is of is then read off the table."""
    map_ = [{"database": "shop", "urls": [{"url": "postgresql:///none"}], "tables": {"items": None}}]
    config = lake_folder.config(map_, lake={"about": "_kuvasz"})
    now = datetime.datetime.now(datetime.UTC)
    for age in (40, 20, 0):
        lake = IcebergLake(config, state_of(config).witness, lake_folder.session)
        lake.open()
        lake.about.tell("events", [{"happened_at": now - datetime.timedelta(days=age), "number": age}])
        lake.close()
    assert sorted(row["number"] for row in rows(lake_folder, "events")) == [0, 20]


def test_a_table_of_an_earlier_version_gets_the_columns_that_it_lacks(
    lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    map_ = [{"database": "shop", "urls": [{"url": "postgresql:///none"}], "tables": {"items": None}}]
    config = lake_folder.config(map_, lake={"about": "_kuvasz"})
    now = datetime.datetime.now(datetime.UTC)
    earlier = tuple(
        dataclasses.replace(one, columns={name: kind for name, kind in one.columns.items() if name != "verified_at"})
        for one in TABLES
    )
    for tables, source in ((earlier, "then"), (TABLES, "now"), (TABLES, "later")):
        monkeypatch.setattr(lake_about, "TABLES", tables)
        lake = IcebergLake(config, state_of(config).witness, lake_folder.session)
        lake.open()
        lake.about.tell("sources", [{"seen_at": now, "source": source, "verified_at": now}])
        lake.close()
    found = {row["source"]: row["verified_at"] for row in rows(lake_folder, "sources")}
    assert found == {"then": None, "now": now, "later": now}


def test_without_the_option_there_is_no_such_table(database: Database, lake_folder: LakeFolder) -> None:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
    config = lake_folder.config(group({"eu": database}, {"items": None}))
    server = config.server.model_copy(update={"address": "127.0.0.1:0"})
    with ServedPipeline(config.model_copy(update={"server": server}), lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("INSERT INTO items VALUES (1, 1)")
        pipeline.wait_applied(database)
    catalog = oracle.open_catalog(lake_folder.pyiceberg, catalog=lake_folder.catalog)
    assert [name for (name,) in catalog.list_namespaces()] == ["shop"]
    (snapshot,) = catalog.load_table(TARGET).metadata.snapshots
    assert snapshot.summary is not None
    assert "kuvasz.made" not in snapshot.summary.additional_properties
