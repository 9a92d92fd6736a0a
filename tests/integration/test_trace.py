"""The life of rows of real sources, told from the lake without Spark: of all table types, whatever befell them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kuvasz.config import sources as config_sources
from kuvasz.lake.maintenance import run_once
from kuvasz.state.tables import State
from kuvasz.sync.rules.targets import target_of
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.postgres import Database, create_database, drop_database
from tests.support.verb_runs import Run, verb_runs
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

TABLES = {
    "items": {"mask": {"mail": "hmac"}, "exclude": ["secret"], "on_schema_change": "evolve"},
    "prices": {"type": "history"},
    "log": {"type": "changelog"},
    "kept": {"type": "append"},
    "soft": {"deletes": "soft"},
    "bag": None,
}


@pytest.fixture
def kuvasz(lake_folder: LakeFolder, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the verb on the test's map; returns exit code and the only table of its JSON."""
    verb = verb_runs(lake_folder, capsys)

    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        code, found = verb("trace", *arguments)
        (table,) = found["tables"]
        return code, table

    return run


def whats(row: dict[str, Any]) -> list[str]:
    return [event["what"] for event in row["events"]]


class Lives:
    """Tables of each type in which a row came, changed, changed its key and went, with all that befell them between.

    Args:
        lake: The lake.
        eu: A source.
        us: Another one, which has a row with the same key.
    """

    def __init__(self, lake: LakeFolder, eu: Database, us: Database) -> None:
        self._lake, self._eu, self._us = lake, eu, us
        for one in (eu, us):
            one.execute("CREATE TABLE items (a int, b char(3), n int, mail text, secret text, PRIMARY KEY (a, b))")
            for name in ("prices", "log", "kept", "soft"):
                one.execute(f"CREATE TABLE {name} (a int PRIMARY KEY, n int)")
            one.execute("CREATE TABLE bag (a int, n int)")
            one.execute("ALTER TABLE bag REPLICA IDENTITY FULL")
        eu.execute("INSERT INTO items SELECT i, 'x', 0, 'me@' || i, 's' FROM generate_series(1, 200) i")
        tables = group({"eu": eu, "us": us}, TABLES)
        self._config = lake.config(tables, mask_secret="0123456789abcdef", lake={"about": "_kuvasz"})

    def run(self) -> None:
        with Pipeline(self._config, self._lake) as pipeline:
            pipeline.wait_streaming()
            self._us.execute("INSERT INTO items VALUES (7, 'x', 100, 'you', 's')")
            pipeline.wait_applied(self._us)
            for name in ("prices", "log", "kept", "soft", "bag"):
                self._eu.execute(f"INSERT INTO {name} SELECT i, 0 FROM generate_series(3, 9) i")
            pipeline.wait_applied(self._eu)
            self._all(pipeline, "UPDATE {} SET n = 1 WHERE a = 7")
            self._eu.execute("ALTER TABLE items ADD extra text")
            self._eu.execute("ALTER TABLE items RENAME n TO m")
            self._eu.execute("UPDATE items SET extra = 'more' WHERE a = 7")
            pipeline.wait_applied(self._eu)
        specs = config_sources.resolve(self._config)[0].tables
        run_once.maintain(self._config, list(map(target_of, specs)), full=True, session=self._lake.session)
        with Pipeline(self._config, self._lake) as pipeline:
            pipeline.wait_streaming()
            self._all(pipeline, "UPDATE {} SET a = 8000 WHERE a = 7")

    def _all(self, pipeline: Pipeline, statement: str) -> None:
        for name in TABLES:
            self._eu.execute(statement.format(name))
        pipeline.wait_applied(self._eu)


@pytest.mark.parametrize("format_version", [3, pytest.param(2, marks=pytest.mark.slow)])
def test_rows_are_traced_through_changes_compaction_columns_keys_and_a_restart(
    database: Database, postgres18: Any, lake_folder: LakeFolder, kuvasz: Run, format_version: int
) -> None:
    lake_folder.format_version = format_version
    other = create_database(postgres18)
    try:
        Lives(lake_folder, database, other).run()
        check_clone(kuvasz)
        check_other_types(kuvasz)
    finally:
        drop_database(other)


def check_clone(kuvasz: Run) -> None:
    code, found = kuvasz("--table", "items", "--key", "7", "--key", "x", "--at-source")
    eu, us = found["rows"]
    assert (code, eu["sid"], us["sid"], found["key"]) == (0, "eu", "us", {"a": "7", "b": "x  "})
    assert [(event["what"], event["by"], event["changed"]) for event in eu["events"]] == [
        ("came", "copy", []), ("changed", "stream", ["m"]), ("changed", "stream", ["extra"]),
        ("moved", "maintenance", []), ("went", "stream", []),
    ]  # fmt: skip
    assert (eu["now"], us["now"][0]["values"]["m"], us["events"][0]["what"]) == ([], 100, "came")
    assert "me@7" not in json.dumps(found)
    assert "secret" not in json.dumps(found["rows"])
    (change,) = eu["events"][1]["sources"]
    assert (change["source"], change["is_only"]) == ("shop_eu", True)
    assert change["newest"]["xid"] > 0
    at = {one["source"]: (one["rows"], one["hidden"]) for one in found["at_source"]}
    assert at == {"shop_eu": ([], ["mail"]), "shop_us": ([{"a": "7", "b": "x  ", "n": "100"}], ["mail"])}

    code, found = kuvasz("--table", "shop.items", "--key", "b=x", "--key", "a=8000", "--sid", "eu")
    assert (code, [whats(row) for row in found["rows"]], found["at_source"]) == (0, [["came"]], None)
    assert found["files_read"] < found["files_known"], "bounds leave files out"


def check_other_types(kuvasz: Run) -> None:
    _, found = kuvasz("--table", "prices", "--key", "7")
    (row,) = found["rows"]
    assert [one["values"]["n"] for one in sorted(row["now"], key=lambda one: one["values"]["kvsz_start"])] == [0, 1]
    assert not any(one["values"]["kvsz_end"].startswith("9999") for one in row["now"])
    assert [event["changed"] for event in row["events"] if event["what"] == "changed"] == [
        ["kvsz_end"], ["kvsz_end", "kvsz_deleted"]
    ]  # fmt: skip
    _, found = kuvasz("--table", "log", "--key", "7")
    assert sorted(one["values"]["_op"] for one in found["rows"][0]["now"]) == ["I", "U"]
    _, found = kuvasz("--table", "log", "--key", "8000")
    assert found["rows"][0]["now"][0]["values"]["_old_key"] == [["a", "7"]]
    _, found = kuvasz("--table", "kept", "--key", "7")
    assert whats(found["rows"][0]).count("came") == 2
    assert sorted(one["values"]["n"] for one in found["rows"][0]["now"]) == [0, 1]
    _, found = kuvasz("--table", "soft", "--key", "7")
    events = [event for event in found["rows"][0]["events"] if event["what"] != "moved"]
    assert [event["what"] for event in events] == ["came", "changed", "changed"]
    assert [event["changed"] for event in events[1:]] == [["n"], ["_deleted_at"]], "it stays, deleted"
    _, found = kuvasz("--table", "bag", "--key", "a=7", "--sid", "eu")
    first, *others, last = (what for what in whats(found["rows"][0]) if what != "moved")
    assert (first, sorted(others), last) == ("came", ["came", "went"], "went")
    assert kuvasz("--table", "prices", "--key", "4711")[0] == 1


@pytest.mark.slow
def test_members_are_told_apart_and_what_was_expired_is_said(
    database: Database, lake_folder: LakeFolder, kuvasz: Run
) -> None:
    for name in ("ev_1", "ev_2"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)")
        database.execute(f"INSERT INTO {name} VALUES (1, 0)")
    config = lake_folder.config(group({None: database}, {"ev": {"partitions_regex": "ev_[0-9]"}}))
    with Pipeline(config, lake_folder) as pipeline:
        wait_until(lambda: [*pipeline.states().values()] == [State.STREAMING] * 2, "both members stream")
        database.execute("UPDATE ev_2 SET n = 5")
        pipeline.wait_applied(database)
        lake_folder.session.sql(
            f"CALL {lake_folder.catalog}.system.expire_snapshots(table => 'shop.ev',"
            " older_than => TIMESTAMP '2999-01-01 00:00:00', retain_last => 1)"
        )
        code, found = kuvasz("--table", "ev", "--key", "1", "--at-source")
        assert (code, found["is_whole"]) == (0, False)
        assert sorted(row["now"][0]["values"]["n"] for row in found["rows"]) == [0, 5]
        assert {row["member"] is None for row in found["rows"]} == {False}
        assert sorted(rows["rows"][0]["n"] for rows in found["at_source"]) == ["0", "5"]
        assert all(whats(row) == ["there"] for row in found["rows"])
