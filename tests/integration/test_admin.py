"""A running kuvasz seen and steered from outside, and the verbs that look at sources: all of it real."""

from __future__ import annotations

import contextlib
import json
import socket
import stat
import threading
from collections.abc import Iterator

import pytest
import uvloop

from kuvasz import cli
from kuvasz.admin.server import serve
from kuvasz.app import App
from kuvasz.config.model import Config
from kuvasz.errors import ConfigError
from kuvasz.source import slots
from kuvasz.state.store import state_of
from kuvasz.state.tables import State
from tests.support import oracle
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.postgres import Database, create_database, drop_database
from tests.support.served import ServedPipeline
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, n int, price numeric, at interval)"


@pytest.fixture
def config_of(lake_folder: LakeFolder):
    """Makes configurations with a server on a port of its own, and leaves the map where verbs can read it."""

    def make(database: Database, tables: dict, address: str = "127.0.0.1:0") -> Config:
        from kuvasz.config.load import load

        lake_folder.config(group({"eu": database}, tables))
        file = lake_folder.folder / "map.yaml"
        document = json.loads(file.read_text()) | {"server": {"address": address}}
        file.write_text(json.dumps(document))
        return load(file, {}).config

    return make


@pytest.fixture
def kuvasz(lake_folder: LakeFolder, capsys: pytest.CaptureFixture[str]):
    """Runs a verb on the test's map; returns exit code, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main([*arguments, "--config", str(lake_folder.folder / "map.yaml")])
        captured = capsys.readouterr()
        return int(end.value.code or 0), captured.out, captured.err

    return run


@contextlib.contextmanager
def running(config: Config, folder: LakeFolder) -> Iterator[ServedPipeline]:
    with ServedPipeline(config, folder) as pipeline:
        yield pipeline


def test_a_running_kuvasz_shows_what_it_does(database: Database, lake_folder: LakeFolder, config_of, kuvasz) -> None:
    database.execute(ITEMS)
    database.execute("INSERT INTO items SELECT i, 1 FROM generate_series(1, 500) i")
    file = lake_folder.folder / "state" / "server.json"
    with running(config_of(database, {"items": None}), lake_folder) as pipeline:
        wait_until(lambda: pipeline.get("/readyz")[0] == 200, "it is ready")
        assert pipeline.get("/livez") == (200, '{"ok": true}')
        database.execute("UPDATE items SET n = 2 WHERE id <= 30")
        database.execute("DELETE FROM items WHERE id > 490")
        pipeline.wait_applied(database)
        wait_until(lambda: pipeline.status()["lag_seconds"] == 0.0, "nothing is missing")
        wait_until(lambda: pipeline.status()["slot"], "the slot was asked for")
        source = pipeline.status()
        (table,) = source["tables"]
        assert (source["source"], source["state"], source["error"]) == ("shop_eu", "streaming", None)
        assert (table["table"], table["target"], table["state"]) == ("public.items", "shop.items", "streaming")
        assert (table["rows"], table["copied_rows"], table["copy_progress"]) == (40, 500, 1.0)
        assert source["slot"]["status"] == "reserved"

        metrics = pipeline.metrics()
        labels = ("shop.items",)
        by_op = {op: rows for (op, *_), rows in metrics["kuvasz_rows_total"].items()}
        assert by_op == {"insert": 0.0, "update": 30.0, "delete": 10.0}
        assert metrics["kuvasz_lag_seconds"] == {("shop_eu",): 0.0}
        assert metrics["kuvasz_copy_progress_ratio"] == {labels: 1.0}
        assert metrics["kuvasz_table_state"]["streaming", "shop.items"] == 1.0
        assert sum(metrics["kuvasz_table_state"].values()) == 1.0
        assert metrics["kuvasz_commit_duration_seconds_count"][()] >= 1.0
        assert metrics["kuvasz_commit_conflicts_total"] == {(): 0.0}
        ((now,),) = database.execute("SELECT extract(epoch FROM now())::float8")
        assert now - 60 < metrics["kuvasz_freshness_timestamp_seconds"]["shop_eu",] <= now + 1
        assert now - 60 < metrics["kuvasz_last_wire_message_timestamp_seconds"]["shop_eu",] <= now + 1
        assert metrics["kuvasz_slot_retained_bytes"]["shop_eu",] >= 0.0

        code, out, _ = kuvasz("status", "--json")
        assert (code, json.loads(out)["sources"][0]["tables"][0]["state"]) == (0, "streaming")
        code, out, _ = kuvasz("status")
        assert code == 0
        assert "shop_eu streaming 0.0 s behind" in out
        assert "40 changes" in out
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not file.exists()


def test_a_table_in_error_is_tried_again_with_the_token_alone(
    database: Database, lake_folder: LakeFolder, config_of, kuvasz
) -> None:
    database.execute(ITEMS)
    database.execute("CREATE TABLE bare (n int)")
    database.execute("INSERT INTO bare VALUES (1), (2)")
    with running(config_of(database, {"items": None, "bare": None}), lake_folder) as pipeline:
        pipeline.wait_state("shop_eu", "shop.items", State.STREAMING)
        wait_until(lambda: pipeline.get("/readyz")[0] == 200, "an error that is shown is settled")
        bare = next(table for table in pipeline.status()["tables"] if table["target"] == "shop.bare")
        assert bare["state"] == "error"
        assert bare["error"]["hint"].startswith("ALTER TABLE")

        body = {"table": "bare"}
        token = json.loads((lake_folder.folder / "state" / "server.json").read_text())["token"]
        assert pipeline.get("/api/retry", body)[0] == 401
        assert pipeline.get("/api/retry", body, token="wrong")[0] == 401
        assert pipeline.get("/api/retry", {"table": "nobody"}, token=token)[0] == 404
        assert pipeline.get("/api/retry", {"table": "items"}, token=token)[0] == 409
        assert pipeline.get("/api/retry", {}, token=token)[0] == 400
        assert pipeline.get("/api/retry")[0] == 405
        assert pipeline.get("/nothing")[0] == 404
        assert kuvasz("retry", "--table", "items") == (
            1, "", "error: table 'items' is not in error\nhint: see `kuvasz status`\n",
        )  # fmt: skip

        database.execute("ALTER TABLE bare ADD PRIMARY KEY (n)")
        assert kuvasz("retry", "--table", "bare") == (
            0,
            "tried again: shop.bare of shop_eu; see `kuvasz status`\n",
            "",
        )
        pipeline.wait_streaming()
        database.execute("INSERT INTO bare VALUES (3)")
        database.execute("INSERT INTO items VALUES (1)")
        pipeline.wait_applied(database)
        pipeline.assert_equal("bare", oracle.source_rows(database.url, "bare", sid="eu"), key=("n",))
        pipeline.assert_equal("items", oracle.source_rows(database.url, "items", sid="eu"))


def test_an_address_in_use_is_refused_before_anything_starts(database: Database, config_of) -> None:
    database.execute(ITEMS)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        config = config_of(database, {"items": None}, address)

        async def start() -> None:
            async with serve(App(config), state_of(config)):
                pytest.fail("it listens")

        with pytest.raises(ConfigError) as refused:
            uvloop.run(start())
    assert str(refused.value) == (
        f"server.address: cannot listen on {address}: address already in use\n"
        "hint: another kuvasz may run already; choose another address, or `null` for none"
    )


def test_streaming_means_that_the_backlog_is_in_the_lake(database: Database, lake_folder: LakeFolder) -> None:
    database.execute(ITEMS)
    config = lake_folder.config(group({"eu": database}, {"items": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
    for part in range(10):
        database.execute(f"INSERT INTO items SELECT i + {part * 1000} FROM generate_series(1, 1000) i")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        rows = oracle.lake_rows_pyiceberg(lake_folder.pyiceberg, "shop.items", catalog=lake_folder.catalog)
    oracle.assert_equal(oracle.source_rows(database.url, "items", sid="eu"), rows, key=("id",))


def test_a_source_that_never_rests_gets_to_streaming(database: Database, lake_folder: LakeFolder) -> None:
    database.execute(ITEMS)
    stop = threading.Event()

    def write() -> None:
        with database.connect(autocommit=True) as session:
            while not stop.wait(0.002):
                session.execute("INSERT INTO items SELECT coalesce(max(id), 0) + 1 FROM items")

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        with Pipeline(lake_folder.config(group({"eu": database}, {"items": None})), lake_folder) as pipeline:
            pipeline.wait_streaming()
    finally:
        stop.set()
        writer.join()


def test_rows_are_counted_for_the_source_they_came_from(
    database: Database, lake_folder: LakeFolder, postgres16
) -> None:
    second = create_database(postgres16)
    try:
        for source in (database, second):
            source.execute(ITEMS)
        config = lake_folder.config(group({"eu": database, "us": second}, {"items": None}), commit_interval="2s")
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_streaming()
            for _ in range(3):
                database.execute("INSERT INTO items SELECT i FROM generate_series(1, 20) i")
                second.execute("INSERT INTO items SELECT i FROM generate_series(1, 5) i")
                database.execute("DELETE FROM items")
                second.execute("DELETE FROM items")
            pipeline.wait_applied(database, second)
            rows = {state.source: state.rows for state in pipeline.app.states.snapshot()}
        assert rows == {"shop_eu": 120, "shop_us": 30}
    finally:
        drop_database(second)


def test_check_plan_and_cleanup_from_nothing_to_nothing(
    database: Database, lake_folder: LakeFolder, config_of, kuvasz
) -> None:
    database.execute(ITEMS)
    database.execute("INSERT INTO items SELECT i, 1 FROM generate_series(1, 500) i")
    database.execute("ANALYZE items")
    config = config_of(database, {"items": None})

    code, out, _ = kuvasz("check", "--json")
    findings = json.loads(out)
    assert (code, [finding for finding in findings if not finding["ok"] and finding["severity"] == "required"]) == (
        0,
        [],
    )
    assert {"catalog", "warehouse", "wal_level", "publication"} <= {finding["check"] for finding in findings}

    before = state_now(database, lake_folder)
    code, out, _ = kuvasz("plan", "--json")
    (plan,) = json.loads(out)
    (table,) = plan["tables"]
    assert code == 4
    assert plan["statements"] == [
        'CREATE PUBLICATION "kuvasz_shop_eu" FOR TABLE ONLY "public"."items" WITH (publish = \'insert, update,'
        " delete, truncate', publish_via_partition_root = true);"
    ]
    assert (plan["is_new_slot"], table["action"], table["is_new_target"]) == (True, "copy", True)
    assert (table["bytes"] > 0, table["rows"]) == (True, 500)
    columns = {column["name"]: column for column in table["columns"]}
    assert (columns["sid"]["iceberg"], columns["sid"]["is_key"]) == ("string", True)
    assert (columns["price"]["postgresql"], columns["price"]["iceberg"]) == ("numeric", "string")
    assert "decimal(p,s)" in columns["price"]["note"]
    code, out, _ = kuvasz("plan")
    assert code == 4
    assert "  create the replication slot kuvasz_shop_eu\n" in out
    assert "  copy public.items into shop.items (to be made): " in out
    assert state_now(database, lake_folder) == before

    with running(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        code, out, _ = kuvasz("cleanup", "--yes")
        assert code == 1
        assert "shop_eu: slot kuvasz_shop_eu: left\n" in out
    code, out, _ = kuvasz("plan")
    assert (code, "nothing to change: the stream goes on" in out) == (0, True)
    database.execute("ALTER TABLE items ADD COLUMN more text")
    code, out, _ = kuvasz("plan")
    assert (code, "  add to shop.items: more\n" in out) == (4, True)

    code, out, _ = kuvasz("cleanup", "--yes")
    assert code == 0
    assert out.startswith(
        "shop_eu: slot kuvasz_shop_eu: dropped\nshop_eu: publication kuvasz_shop_eu: dropped\nleft as they are:\n"
        "  the lake's tables, with the positions in them: shop.items\n"
    )
    assert database.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name = 'kuvasz_shop_eu'") == []
    assert database.execute("SELECT 1 FROM pg_publication") == []
    code, out, _ = kuvasz("cleanup", "--yes")
    assert (code, out.count("was not there")) == (0, 2)
    code, out, _ = kuvasz("plan")
    assert (code, "slot kuvasz_shop_eu is gone, but the lake has rows of it" in out) == (5, True)


def state_now(database: Database, folder: LakeFolder) -> tuple:
    """Everything that plan might change."""
    files = sorted(str(path) for path in folder.folder.rglob("*"))
    return database.execute("SELECT pubname FROM pg_publication"), files, with_slot(database)


def with_slot(database: Database) -> bool:
    with database.connect(autocommit=True) as connection:
        return slots.exists(connection, "kuvasz_shop_eu")


def test_check_fails_with_the_sql_that_mends(database: Database, config_of, kuvasz) -> None:
    database.execute("CREATE TABLE items (n int)")
    config_of(database, {"items": None})
    code, out, _ = kuvasz("check")
    assert code == 3
    assert 'ALTER TABLE "public"."items" REPLICA IDENTITY FULL;' in out
    code, out, _ = kuvasz("plan")
    assert "error: table public.items: " in out
