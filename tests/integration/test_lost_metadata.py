"""The metadata file of one table is gone from the warehouse while the catalog still names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.state.tables import State
from kuvasz.sync.context import requests
from tests.support import oracle
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.postgres import Database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

TABLES = ("items", "others")


def metadata_file(lake: LakeFolder, name: str) -> Path:
    table = oracle.open_table(lake.pyiceberg, f"shop.{name}", catalog=lake.catalog)
    return Path(table.metadata_location.removeprefix("file:"))


@pytest.fixture
def filled(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setattr(requests, "_FIRST_RETRY_S", 0.3)
    for name in TABLES:
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)")
        database.execute(f"INSERT INTO {name} SELECT i, 0 FROM generate_series(1, 20) i")
    return database


def change(database: Database) -> None:
    for name in TABLES:
        database.execute(f"UPDATE {name} SET n = n + 1 WHERE id % 2 = 0")
        database.execute(f"DELETE FROM {name} WHERE id = (SELECT min(id) FROM {name})")


@pytest.mark.parametrize("lost", [TABLES[:1], TABLES], ids=["one", "all"])
def test_who_lost_it_waits_for_it_and_the_others_go_on(
    filled: Database, lake_folder: LakeFolder, lost: tuple[str, ...]
) -> None:
    config = lake_folder.config(group({None: filled}, dict.fromkeys(TABLES)))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
    files = [metadata_file(lake_folder, name) for name in lost]
    for file in files:
        file.rename(file.with_suffix(".away"))
    change(filled)
    with Pipeline(config, lake_folder) as pipeline:
        if len(lost) == 1:
            pipeline.wait_state("shop", "shop.items", State.ERROR)
            pipeline.wait_state("shop", "shop.others", State.STREAMING)
            change(filled)
            expected = sorted(filled.execute("SELECT id, n FROM others"))
            wait_until(lambda: sorted(pipeline.rows("others")) == expected, "the other one follows")
    with Pipeline(config, lake_folder) as pipeline:
        wait_until(lambda: any("drop it from the catalog" in error for error in pipeline.errors()), "it is told")
        change(filled)
        for file in files:
            file.with_suffix(".away").rename(file)
        pipeline.wait_streaming()
        pipeline.wait_applied(filled)
        for name in TABLES:
            pipeline.assert_equal(name, oracle.source_rows(filled.url, name))
