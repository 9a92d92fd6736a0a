from __future__ import annotations

from pathlib import Path
from typing import Any

from kuvasz.admin.sources import source_records
from kuvasz.admin.sources.mapped_url import SourceSelection
from tests.support.maps import loaded

MAP = """
lake: {namespace: lake}
databases:
- {database: shop, urls: [
     {url: "postgresql://repl:pw@a/x", sid: a, replication_url: "postgresql://slots:pw@"},
     {url: "postgresql://b/x", sid: b}],
   tables: {items: }}
- {database: crm, urls: [{url: "postgresql://c/x", schemas: "t_(.+)"}], tables: {people: {target: a.people}}}
"""


def table(name: str, state: str, tenant: str | None = None) -> dict[str, Any]:
    return {"table": name, "target": "lake.x", "state": state, "tenant": tenant}


def source(name: str, *tables: dict[str, Any]) -> dict[str, Any]:
    slot = {"retained_bytes": 7}
    return {"source": name, "state": "streaming", "error": None, "lag_seconds": 0.5, "slot": slot, "tables": tables}


STATUS = {
    "sources": [
        source("shop_a", table("public.items", "streaming")),
        source("crm", table("t_x.people", "streaming", "x"), table("t_y.people", "paused", "y")),
    ],
    "released": [{"source": "shop_old", "retained_bytes": 9}],
}


def test_a_source_is_shown_as_the_map_and_the_running_kuvasz_know_it(tmp_path: Path) -> None:
    config = loaded(tmp_path, MAP).config
    first, second, crm, left = source_records.records(config, STATUS, SourceSelection())
    assert first == {
        "source": "shop_a", "database": "shop", "sid": "a", "url": "postgresql://repl:***@a/x",
        "replication_url": "postgresql://slots:***@", "schemas": None,
        "slot": "kuvasz_shop_a", "state": "streaming", "error": None, "lag_seconds": 0.5, "retained_bytes": 7,
        "tables": 1, "states": {"streaming": 1}, "tenants": [],
    }  # fmt: skip
    assert (second["state"], second["tables"], second["states"]) == (None, 1, {}), "it is not begun yet"
    assert crm["tenants"] == [
        {"sid": "x", "tables": 1, "states": {"streaming": 1}}, {"sid": "y", "tables": 1, "states": {"paused": 1}},
    ]  # fmt: skip
    assert (left["source"], left["state"], left["retained_bytes"]) == ("shop_old", source_records.LEFT, 9)


def test_a_tenant_that_is_meant_is_shown_alone(tmp_path: Path) -> None:
    config = loaded(tmp_path, MAP).config
    (crm,) = source_records.records(config, STATUS, SourceSelection(sid="y"))
    assert [one["sid"] for one in crm["tenants"]] == ["y"]
    assert [one["table"] for one in source_records.with_tables(crm, config, STATUS)["table_list"]] == ["t_y.people"]
    (crm,) = source_records.records(config, STATUS, SourceSelection(sid="crm"))
    assert [one["sid"] for one in crm["tenants"]] == ["x", "y"]
    assert len(source_records.with_tables(crm, config, STATUS)["table_list"]) == 2


def test_what_nobody_follows_is_shown_by_the_map(tmp_path: Path) -> None:
    config = loaded(tmp_path, MAP).config
    (crm,) = source_records.records(config, None, SourceSelection(database="crm"), {"crm": {"x": 1, "z": 2}})
    assert (crm["state"], crm["tenants"]) == (
        None, [{"sid": "x", "tables": 1, "states": {}}, {"sid": "z", "tables": 2, "states": {}}],
    )  # fmt: skip
    assert source_records.with_tables(crm, config, None)["table_list"] == [
        {"table": "people", "target": "a.people", "state": None}
    ]
