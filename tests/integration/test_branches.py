"""Tables that are written to a branch, and shown to readers of main by a publication, as two engines read them."""

from __future__ import annotations

import json
import logging

import pytest

from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.verbs import remote, verify
from kuvasz.verbs.lake import publish
from tests.support.branches import BranchedTable
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import assert_equal, source_rows
from tests.support.postgres import Database
from tests.support.served import ServedPipeline

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.usefixtures("soon_stopped")]

TYPES = ("clone", "history")


def served(lake: LakeFolder, databases: list[dict]) -> Config:
    lake.config(databases, lake={"branch": "staging"})
    file = lake.folder / "map.yaml"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"server": {"address": "127.0.0.1:0"}}))
    return load(file, {}).config


@pytest.fixture
def items(database: Database) -> Database:
    for name in TYPES:
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)")
        database.execute(f"INSERT INTO {name} SELECT i, 0 FROM generate_series(1, 20) i")
    return database


def change(database: Database, number: int) -> None:
    for name in TYPES:
        database.execute(f"UPDATE {name} SET n = %s WHERE id %% 4 = %s", (number, number % 4))
        database.execute(f"DELETE FROM {name} WHERE id = %s", (number,))
        database.execute(f"INSERT INTO {name} VALUES (%s, 0)", (100 + number,))


def ask(config: Config, **options: object) -> list[dict]:
    return publish.run(
        config, **{"table": None, "branch": None, "cut": None, "is_trial": False, "is_forced": False, **options}
    )


def test_branches_equal_their_sources_and_main_shows_them_when_they_are_published(
    items: Database, lake_folder: LakeFolder, caplog: pytest.LogCaptureFixture
) -> None:
    config = served(lake_folder, group({None: items}, {name: {"type": name} for name in TYPES}))
    tables = {name: BranchedTable(lake_folder, f"shop.{name}") for name in TYPES}
    clone = tables["clone"]
    with ServedPipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        change(items, 1)
        pipeline.wait_applied(items)
        first = source_rows(items.url, "clone")
        assert_equal(first, clone.rows("staging"))
        assert not any("main" in table.refs() for table in tables.values()), "they were never published"
        assert not clone.rows().rows
        with caplog.at_level(logging.INFO, "kuvasz"):
            told = ask(config, branch="staging")
        assert {(one["target"], one["before"], one["after"] is None) for one in told} == {
            (f"shop.{name}", None, False) for name in TYPES
        }
        assert sum(vars(record).get("event") == "published" for record in caplog.records) == len(TYPES)
        assert_equal(first, clone.rows())
        change(items, 4)
        pipeline.wait_applied(items)
        at_cut = source_rows(items.url, "clone")
        remote.cut(config, name="release", database=None, keep=None)
        change(items, 5)
        pipeline.wait_applied(items)
        told = ask(config, cut="release")
        assert all(one["after"] == tables[one["target"].removeprefix("shop.")].refs()["cut_release"] for one in told)
        assert_equal(at_cut, clone.rows())
        shown = {name: (table.refs()["main"], table.rows()) for name, table in tables.items()}
        change(items, 2)
        pipeline.wait_applied(items)
        pipeline.die()
        pipeline.error = None  # that of a failpoint
    with Pipeline(config, lake_folder) as pipeline:
        change(items, 3)
        pipeline.wait_streaming()
        pipeline.wait_applied(items)
        assert_equal(source_rows(items.url, "clone"), clone.rows("staging"))
        for name, (snapshot, rows) in shown.items():
            assert tables[name].refs()["main"] == snapshot
            assert_equal(rows, tables[name].rows())
    clone_id = clone.refs()["staging"]
    lake_folder.session.sql(f"DELETE FROM {lake_folder.catalog}.shop.clone.branch_staging WHERE id = 9")
    refused, done = ask(config, comparing=lambda *_: None, session=lake_folder.session)
    assert (refused["target"], done["after"]) == ("shop.clone", tables["history"].refs()["staging"])
    assert "it is not known to equal its sources: public.clone of shop: 1 keys differ" in refused["error"]
    verify.reports(config, table="clone", is_fixing=True, session=lake_folder.session)
    assert clone.refs()["main"] != clone.refs()["staging"] != clone_id
    (found,) = ask(config, table="shop.clo*", is_trial=True, session=lake_folder.session)
    assert (found["before"], found["after"]) == (clone.refs()["main"], clone.refs()["staging"])
    assert not publish.exit_code(ask(config, comparing=lambda *_: None, session=lake_folder.session))
    for table in tables.values():
        assert table.refs()["main"] == table.refs()["staging"]
    assert_equal(source_rows(items.url, "clone"), clone.rows())
