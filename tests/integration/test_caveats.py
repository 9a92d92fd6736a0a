"""What tables may lack in the lake is told before a start, by the start and while it runs."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.config.load import load
from kuvasz.sync import watches
from kuvasz.verbs import check, plan
from tests.support.lake import MemoryPipeline, group
from tests.support.postgres import Database
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgres

TABLES: dict[str, dict[str, Any] | None] = {
    "parent": None,
    "child_2": None,
    "tree": {"partitions_regex": "twig_[0-9]+"},
    "twice": {"key": ["id"]},
    "once": {"key": ["id", "v"]},
}
SETUP = """
CREATE TABLE parent (id int PRIMARY KEY, n int);
CREATE TABLE child_1 (PRIMARY KEY (id)) INHERITS (parent);
CREATE TABLE child_2 (PRIMARY KEY (id)) INHERITS (parent);
CREATE TABLE tree (id int PRIMARY KEY, n int);
CREATE TABLE twig_1 (PRIMARY KEY (id)) INHERITS (tree);
CREATE TABLE twice (id int, v int);
CREATE TABLE once (id int NOT NULL UNIQUE, v int);
ALTER TABLE twice REPLICA IDENTITY FULL;
ALTER TABLE once REPLICA IDENTITY FULL;
INSERT INTO parent VALUES (1, 1);
INSERT INTO child_1 VALUES (2, 2);
INSERT INTO child_2 VALUES (3, 3);
INSERT INTO tree VALUES (1, 1);
INSERT INTO twig_1 VALUES (2, 2);
"""


def test_what_tables_may_lack_is_told(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watches, "PATROL_S", 0.5)
    database.execute(SETUP)
    file = tmp_path / "map.yaml"
    file.write_text(
        json.dumps(
            {"lake": {"namespace": "shop"}, "server": {"address": None}}
            | {"databases": group({"eu": database}, TABLES)}
        )
    )
    config = load(file, {}).config
    found = [(str(one.table), one.check, one.is_blocking) for one in check.findings(config) if not one.ok]
    assert [one for one in found if one[1] in {"inheritance", "unique_key"}] == [
        ("public.parent", "inheritance", False), ("public.twice", "unique_key", False),
    ]  # fmt: skip
    (planned,) = plan.plans(config)
    assert {table.table: len(table.warnings) for table in planned.tables if table.warnings} == {
        "public.parent": 1, "public.twice": 1,
    }  # fmt: skip

    def told(event: str) -> list[str]:
        return [one.__dict__["found"] for one in caplog.records if one.__dict__.get("event") == event]

    with caplog.at_level(logging.WARNING), MemoryPipeline(config, SimpleNamespace()) as pipeline:
        pipeline.wait_streaming()
        assert told("children_unmapped") == ["the rows of public.child_1, which inherit from it, are not replicated"]
        assert len(told("key_not_unique")) == 1
        database.execute("CREATE TABLE child_3 (PRIMARY KEY (id)) INHERITS (child_1)")
        database.execute("INSERT INTO twig_1 VALUES (3, 3)")
        wait_until(lambda: len(told("children_unmapped")) == 2, "the patrol tells of it")
        assert "public.child_1, public.child_3" in told("children_unmapped")[1]
        pipeline.wait_applied(database)
        assert [len(pipeline.rows(table)) for table in ("parent", "child_2", "tree")] == [1, 1, 3]
        assert len(told("key_not_unique")) == 1, "once"
        for statement in (
            "UPDATE parent SET n = 9",
            "ALTER TABLE parent ADD more int",
            "INSERT INTO parent VALUES (8)",
        ):
            database.execute(statement)  # of its children, too, but for the INSERT
        pipeline.wait_applied(database)
        assert [sorted(row[2] or 0 for row in pipeline.rows(table)) for table in ("parent", "child_2")] == [
            [0, 9],
            [9],
        ]
        database.execute("TRUNCATE parent")
        pipeline.wait_applied(database)
        assert [len(pipeline.rows(table)) for table in ("parent", "child_2", "tree")] == [0, 0, 3]
