"""Rows that do not fit their table are left out of it and written down, and all others go on."""

from __future__ import annotations

import collections
import json
from typing import Any

import pytest

from kuvasz.state.tables import State
from kuvasz.verbs import verify
from kuvasz.verbs.lake import rejects as verb
from tests.support import oracle
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.postgres import Database

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

TYPES: dict[str, dict[str, Any]] = {
    "items": {"mask": {"body": "redact"}, "exclude": ["hidden"]},
    "versions": {"type": "history"},
    "added": {"type": "append"},
    "changes": {"type": "changelog"},
    "bag": {},
}


def rejects(lake: LakeFolder) -> list[dict[str, Any]]:
    table = oracle.open_catalog(lake.pyiceberg, catalog=lake.catalog).load_table("_kuvasz.rejects")
    return table.scan().to_arrow().sort_by([("lsn", "ascending"), ("ordinal", "ascending")]).to_pylist()


def ids(pipeline: Pipeline, table: str, column: int = 0) -> list[int]:
    return sorted(row[column] for row in pipeline.rows(table))


def test_what_does_not_fit_is_written_down_and_all_else_goes_on(database: Database, lake_folder: LakeFolder) -> None:
    for name in TYPES:
        key = "" if name == "bag" else "PRIMARY KEY"
        database.execute(f"CREATE TABLE {name} (id int {key}, at timestamp, body text, hidden text)")
        database.execute(f"INSERT INTO {name} VALUES (1, 'today', 'x', 'h'), (2, 'infinity', 'y', 'h')")
    database.execute("ALTER TABLE bag REPLICA IDENTITY FULL")
    tables = {name: options | {"on_bad_value": "reject"} for name, options in TYPES.items()}
    config = lake_folder.config(group({"eu": database}, tables), lake={"about": "_kuvasz"})
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        for name in TYPES:
            database.execute(f"INSERT INTO {name} VALUES (3, 'today', 'z', 'h'), (4, '-infinity', 'z', 'h')")
            database.execute(f"UPDATE {name} SET at = 'infinity' WHERE id = 1")
            database.execute(f"UPDATE {name} SET at = 'today' WHERE id = 2")
        pipeline.wait_applied(database)  # what is replaced before that is written down for no clone
        for name in TYPES:
            database.execute(f"DELETE FROM {name} WHERE id = 4")
        pipeline.wait_applied(database)
        assert set(pipeline.states().values()) == {State.STREAMING}
        counted = {one.target: one.rejected for one in pipeline.app.states.snapshot()}
    assert ids(pipeline, "items") == ids(pipeline, "bag") == [2, 3]
    assert ids(pipeline, "added") == [1, 2, 3]
    assert ids(pipeline, "changes") == [1, 2, 3, 4]
    assert ids(pipeline, "versions") == [1, 2, 3]
    found = collections.defaultdict(list)
    for row in rejects(lake_folder):
        found[row["target"]].append(row)
    assert {target: len(some) for target, some in found.items()} == counted
    for name in TYPES:
        told = [(row["operation"], json.loads(row["raw_row"])["id"], row["raw"]) for row in found[f"shop.{name}"]]
        assert told[:3] == [("R", "2", "infinity"), ("I", "4", "-infinity"), ("U", "1", "infinity")], name
    items = found["shop.items"][0]
    assert json.loads(items["raw_row"]) == {"id": "2", "at": "infinity", "body": "***"}
    assert (items["key"], items["column_name"], items["source"]) == ('{"id": "2"}', "at", "shop_eu")
    assert items["reason"] == "is outside the years 0001 to 9999"
    reports = {report.target: report for report in verify.reports(config, session=lake_folder.session)}
    # Of a changelog nothing says that the change of key 1 was rejected, but what was rejected.
    assert {target: (one.error, one.differences) for target, one in reports.items()} == {
        target: ("", int(target == "shop.changes")) for target in found
    }
    assert {target: one.rejected for target, one in reports.items()} == dict.fromkeys(found, 1)
    told = verb.rows(config, table="items")
    assert len(told) == counted["shop.items"]
    (newest,) = verb.rows(config, table="items", limit=1)
    assert (newest in told, newest["rejected_at"]) == (True, told[-1]["rejected_at"])
    mended = {name: options | {"out_of_range": "null"} for name, options in tables.items()}
    config = lake_folder.config(group({"eu": database}, mended), lake={"about": "_kuvasz"})
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE items SET body = 'later' WHERE id = 1")
        database.execute("DELETE FROM items WHERE id = 3")
        pipeline.wait_applied(database)
        for target in ("shop.items", "shop.bag", "shop.versions"):
            assert (target, "shop_eu") in verb.tables(config)
            (report,) = verify.reports(
                config, table=target, sid="shop_eu", is_fixing=True, session=lake_folder.session
            )
            assert (report.left, report.error) == (0, "")
    assert sorted((row[0], row[1] is None) for row in pipeline.rows("items")) == [(1, True), (2, False)]
    assert ids(pipeline, "bag") == [1, 2, 3]
