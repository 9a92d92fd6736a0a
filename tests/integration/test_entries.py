"""kuvasz-streamer's endpoints of a running kuvasz, asked as its front end does."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest

from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.state.tables import State
from tests.support.lake import LakeFolder, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.served import ServedPipeline
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


def served(lake_folder: LakeFolder, database: Database, tables: dict) -> Config:
    """Return a configuration with a server, whose map verbs find."""
    lake_folder.config(group({"eu": database}, tables))
    file = lake_folder.folder / "map.yaml"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"server": {"address": "127.0.0.1:0"}}))
    return load(file, {}).config


def ask(
    pipeline: ServedPipeline, lake_folder: LakeFolder, path: str, body: dict | None = None, method: str | None = None
) -> tuple[int, Any]:
    token = json.loads((lake_folder.folder / "state" / "server.json").read_text())["token"]
    status, text = pipeline.get(path, body, token, method)
    return status, json.loads(text)


def test_the_entries_of_a_running_map_and_all_that_its_source_has(
    database: Database, lake_folder: LakeFolder
) -> None:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, name text)")
    database.execute("CREATE TABLE bare (n numeric)")
    database.execute("CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    database.execute("CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)")
    database.execute("CREATE TABLE log_1 (id int PRIMARY KEY)")
    database.execute("CREATE TABLE log_2 (id int PRIMARY KEY)")
    database.execute("CREATE VIEW shown AS SELECT * FROM items")
    tables = {"items": {"type": "history", "target": "goods"}, "log": {"partitions_regex": "log_.*"}}
    with ServedPipeline(served(lake_folder, database, tables), lake_folder) as pipeline:
        pipeline.wait_state("shop_eu", "shop.goods", State.STREAMING)
        status, (url,) = ask(pipeline, lake_folder, "/api/url")
        assert (status, url["id"], url["db_name"], url["sid"], url["up"], url["error"]) == (
            200, 1, "shop", "eu", True, "",
        )  # fmt: skip
        status, found = ask(pipeline, lake_folder, "/api/map")
        assert status == 200
        by_name = {one["name"]: one for one in found}
        assert by_name.keys() == {"items", "log", "bare", "parts"}, "members are one, a view is none"
        items = by_name["items"]
        assert (items["type"], items["target"], items["replicated"], items["present"]) == (
            "history", "goods", True, True,
        )  # fmt: skip
        assert items["source_columns"] == {
            "id": {"name": "id", "column_type": "int4", "data_type_oid": 23, "primary_key": True},
            "name": {"name": "name", "column_type": "text", "data_type_oid": 25, "primary_key": False},
        }
        assert sorted(by_name["log"]["partitions"]) == ["log_1", "log_2"]
        assert (by_name["parts"]["partitions"], by_name["parts"]["replicated"]) == (["parts_1"], False)
        assert ask(pipeline, lake_folder, f"/api/map/{by_name['bare']['id']}") == (200, by_name["bare"])

        database.execute("CREATE TABLE later (id int PRIMARY KEY)")
        assert ask(pipeline, lake_folder, "/api/map")[1] == found, "it is asked once"
        assert ask(pipeline, lake_folder, "/api/map/refresh", {}) == (200, None)
        assert {one["name"] for one in ask(pipeline, lake_folder, "/api/map")[1]} == by_name.keys() | {"later"}
    numbers = {one["name"]: one["id"] for one in found}
    tables = {"bare": {"type": "append"}, "items": {"type": "history", "target": "goods"}}
    with ServedPipeline(served(lake_folder, database, tables), lake_folder) as pipeline:
        after = {one["name"]: one["id"] for one in ask(pipeline, lake_folder, "/api/map")[1]}
        assert {name: after[name] for name in ("items", "bare", "parts")} == {
            name: numbers[name] for name in ("items", "bare", "parts")
        }, "they stay over a restart with another map"
        assert [(one["id"], one["name"]) for one in ask(pipeline, lake_folder, "/api/tbl")[1]] == [
            (3, "bare"), (1, "items"),
        ]  # fmt: skip
        assert ask(pipeline, lake_folder, "/api/tbl/2")[0] == 404, "the number of one that left is nobody's"


def test_a_map_that_is_empty_grows_by_requests_and_shrinks_again(database: Database, lake_folder: LakeFolder) -> None:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, name text)")
    database.execute("INSERT INTO items VALUES (1, 'one')")
    database.execute("CREATE TABLE later (id int PRIMARY KEY)")
    lake_folder.config(group({"eu": database}, {"items": None}))
    file = lake_folder.folder / "map.yaml"
    more = {"server": {"address": "127.0.0.1:0"}, "map": {"writable": True, "drop_removed": True}, "databases": []}
    file.write_text(json.dumps(json.loads(file.read_text()) | more))
    loaded = load(file, {})
    pipeline = ServedPipeline(loaded.config, lake_folder)
    pipeline.loaded = loaded
    with pipeline:
        say = functools.partial(ask, pipeline, lake_folder)
        wait_until(lambda: say("/readyz") == (200, {"ok": True}), "kuvasz runs, though it has nothing to do")
        assert say("/api/db", {"name": "shop"}) == (200, {"id": 1, "name": "shop"})
        assert say("/api/url", {"db_id": 1, "sid": "eu", "url": database.url})[0] == 200
        found = {one["name"]: one["id"] for one in say("/api/map")[1]}
        status, shown = say(f"/api/map/{found['items']}/create?target=goods", {})
        assert (status, shown["target"], shown["present"], shown["replicated"]) == (200, "goods", True, False)
        assert say(f"/api/map/{found['items']}/create?target=goods", {})[0] == 409, "it is there"
        status, shown = say(f"/api/map/{found['items']}/clone?target=goods", {})
        assert (status, shown["target"], shown["replicated"]) == (200, "goods", True)
        pipeline.wait_state("shop_eu", "shop.goods", State.STREAMING)
        database.execute("INSERT INTO items VALUES (2, 'two')")
        pipeline.wait_applied(database)
        status, (plan,) = say("/api/plan")
        assert (status, plan["source"], plan["is_due"], plan["error"]) == (200, "shop_eu", False, None)
        status, found = say("/api/check")
        assert (status, [one for one in found if not one["ok"] and one["severity"] == "required"]) == (200, [])
        status, moment = say("/api/asof?time=2100-01-01&table=goods")
        assert status == 200, moment
        pipeline.assert_equal("goods", source_rows(database.url, "items", sid="eu"), key=("sid", "id"))
        table = {"db_id": 1, "name": "later", "type": "append", "target": "later"}
        assert say("/api/tbl", table)[0] == 200
        pipeline.wait_state("shop_eu", "shop.later", State.STREAMING)
        assert say("/api/url/restart", {}) == (200, None)
        wait_until(lambda: not pipeline.app.is_changing, "all sources are begun again")
        pipeline.wait_state("shop_eu", "shop.goods", State.STREAMING)
        for number in (1, 2):
            assert say(f"/api/tbl/{number}", method="DELETE") == (200, None)
        wait_until(lambda: not pipeline.app.is_changing, "the last table is gone")
        assert (
            database.execute("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()") == []
        )
        assert [say(f"/api/{path}", method="DELETE")[0] for path in ("url/1", "db/1")] == [200, 200]
    assert load(file, {}).config.databases == ()


@pytest.mark.slow  # a second Spark
def test_a_comparison_is_a_process_of_its_own(database: Database, lake_folder: LakeFolder) -> None:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, name text)")
    database.execute("INSERT INTO items VALUES (1, 'one')")
    lake_folder.config(group({"eu": database}, {"items": None}))
    file = lake_folder.folder / "map.yaml"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"server": {"address": "127.0.0.1:0"}}))
    pipeline = ServedPipeline(load(file, {}).config, lake_folder)
    pipeline.loaded = load(file, {})
    with pipeline:
        pipeline.wait_state("shop_eu", "shop.items", State.STREAMING)
        pipeline.wait_applied(database)
        token = json.loads((lake_folder.folder / "state" / "server.json").read_text())["token"]
        status, text = pipeline.get("/api/verify", {"table": "items"}, token, timeout_s=300)
        assert status == 200, text
        found = json.loads(text)
        assert (found["exit_code"], [one["lake_rows"] for one in found["reports"]]) == (0, [1]), found
        status, text = pipeline.get("/api/verify", {"table": "nobody"}, token, timeout_s=300)
        assert (status, "the map has no" in json.loads(text)["error"]) == (409, True), text
