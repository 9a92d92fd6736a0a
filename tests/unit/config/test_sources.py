from __future__ import annotations

import json
from pathlib import Path

import pytest

from kuvasz.config import sources
from kuvasz.config.load import load
from kuvasz.config.model import Config, OnSlotLost, RouteConfig
from kuvasz.model import TableName, TableType
from tests.support.maps import loaded

MAP = """\
lake: {namespace: lake}
databases:
- database: Shop-1
  on_slot_lost: resync
  urls:
  - {url: "postgresql://eu/shop", sid: eu}
  - {url: "postgresql://us/shop", sid: us}
  tables:
    customers:
    billing.prices: {type: history, target: finance.prices}
    '"odd.name"':
    events: {partitions_regex: "events_.*"}
    events_old: {type: append}
    catch_all: {partitions_regex: "e.*"}
- database: crm
  urls:
  - {url: "postgresql://crm/crm"}
  tables:
    leads:
- database: erp
  urls:
  - {url: "postgresql://erp/erp", sid: erp}
  tables:
    customers:
    parts:
"""


@pytest.fixture
def plan(tmp_path: Path) -> tuple[sources.Source, ...]:
    return sources.resolve(loaded(tmp_path, MAP).config)


def test_sources_are_named_after_database_and_sid(plan: tuple[sources.Source, ...]) -> None:
    assert [(s.name, s.object_name, s.database, s.sid) for s in plan] == [
        ("shop_1_eu", "kuvasz_shop_1_eu", "Shop-1", "eu"),
        ("shop_1_us", "kuvasz_shop_1_us", "Shop-1", "us"),
        ("crm", "kuvasz_crm", "crm", None),
        ("erp_erp", "kuvasz_erp_erp", "erp", "erp"),
    ]
    assert plan[1].url.get() == "postgresql://us/shop"
    assert [s.on_slot_lost for s in plan] == [
        OnSlotLost.RESYNC,
        OnSlotLost.RESYNC,
        OnSlotLost.STOP,
        OnSlotLost.STOP,
    ]


def test_tables_have_their_targets(plan: tuple[sources.Source, ...]) -> None:
    assert [(str(spec.table), spec.identifier, spec.config.type) for spec in plan[0].tables] == [
        ("public.customers", "lake.customers", TableType.CLONE),
        ("billing.prices", "finance.prices", TableType.HISTORY),
        ("public.odd.name", "lake.odd_name", TableType.CLONE),
        ("public.events", "lake.events", TableType.CLONE),
        ("public.events_old", "lake.events_old", TableType.APPEND),
        ("public.catch_all", "lake.catch_all", TableType.CLONE),
    ]


def test_a_target_has_a_sid_if_any_of_its_sources_has_one(plan: tuple[sources.Source, ...]) -> None:
    has_sid = {spec.identifier: spec.has_sid for source in plan for spec in source.tables}
    assert {name for name, has in has_sid.items() if not has} == {"lake.leads"}


@pytest.mark.parametrize(
    ("table", "target"),
    [
        ("events", "lake.events"), ("events_2024", "lake.events"), ("events_old", "lake.events_old"),
        ("elsewhere", "lake.catch_all"), ("orders", None), ("my_events_1", None),
    ],
)  # fmt: skip
def test_a_table_belongs_to_its_own_entry_then_to_the_first_regex(
    plan: tuple[sources.Source, ...], table: str, target: str | None
) -> None:
    spec = plan[0].find(TableName(schema="public", name=table))
    assert (spec.identifier if spec else None) == target


def test_a_regex_looks_at_its_own_schema_only(plan: tuple[sources.Source, ...]) -> None:
    assert plan[0].find(TableName(schema="other", name="events_2024")) is None


def test_targets_know_what_feeds_them(tmp_path: Path) -> None:
    targets = {target.identifier: target for target in sources.targets(loaded(tmp_path, MAP).config)}
    assert [feed.source.name for feed in targets["lake.customers"].feeds] == ["shop_1_eu", "shop_1_us", "erp_erp"]
    assert [feed.source.name for feed in targets["lake.leads"].feeds] == ["crm"]
    assert (targets["finance.prices"].namespace, targets["finance.prices"].name) == ("finance", "prices")
    assert targets["finance.prices"].config.type is TableType.HISTORY
    assert targets["lake.leads"].has_sid is False


def test_a_plan_shows_no_password(tmp_path: Path) -> None:
    text = MAP.replace("postgresql://eu/", "postgresql://u:geheim@eu/")
    plan = sources.resolve(loaded(tmp_path, text).config)
    assert "geheim" not in repr(plan)
    assert plan[0].url.get() == "postgresql://u:geheim@eu/shop"


def test_nothing_is_read_of_a_group_without_tables(tmp_path: Path) -> None:
    text = "map: {writable: true}\ndatabases: [{database: a, urls: [{url: 'postgresql:///a'}], tables: {}}]"
    assert sources.resolve(loaded(tmp_path, text).config) == ()


def test_a_table_that_is_not_enabled_is_none_of_the_sources(tmp_path: Path) -> None:
    (source,) = resolved(tmp_path, {"items": {"enabled": False}, "others": None})
    assert [str(spec.table) for spec in source.tables] == ["public.others"]
    assert resolved(tmp_path, {"items": {"enabled": False}}) == ()


def resolved(tmp_path: Path, tables: dict) -> tuple[sources.Source, ...]:
    file = tmp_path / "map.yaml"
    file.write_text(json.dumps([{"database": "shop", "urls": [{"url": "postgresql:///shop"}], "tables": tables}]))
    return sources.resolve(load(file, {}).config)


def test_a_table_with_routes_is_an_entry_for_each_target(tmp_path: Path) -> None:
    file = tmp_path / "map.yaml"
    file.write_text("""
    - database: shop
      urls: [{url: postgresql:///a}]
      tables:
        items: {filter: n > 0, route: {by: kind, to: "x.of_{kind}", allow: [a.b, 7, true], rest: y.others}}
        orders: {route: {by: lower(kind), to: "of_{value}", allow: [a], rest: others}}
    """)
    (source,) = sources.resolve(load(file, {}).config)
    items = [spec for spec in source.tables if spec.table.name == "items"]
    assert [(spec.identifier, spec.config.filter) for spec in items] == [
        ("x.of_a_b", "(n > 0) AND (kind = 'a.b')"),
        ("x.of_7", "(n > 0) AND (kind = 7)"),
        ("x.of_true", "(n > 0) AND (kind = true)"),
        ("y.others", "(n > 0) AND (kind IS NULL OR kind NOT IN ('a.b', 7, true))"),
    ]
    orders = source.find_all(TableName(schema="public", name="orders"))
    assert [(spec.identifier, spec.config.filter) for spec in orders] == [
        ("kuvasz.of_a", "(lower(kind)) = 'a'"),
        ("kuvasz.others", "(lower(kind)) IS NULL OR (lower(kind)) NOT IN ('a')"),
    ]
    assert source.find(TableName(schema="public", name="items")) == items[0]
    assert len({spec.routed_by for spec in items}) == 1
    assert items[0].is_beside(items[1])
    assert not items[0].is_beside(orders[0])
    assert not items[0].is_beside(items[0])


def test_what_has_no_target_is_refused_by_the_first_one() -> None:
    route = RouteConfig(by="kind", to="of_{kind}", allow=("a", 7))
    refused = "raise_error(concat(coalesce(CAST(kind AS STRING), 'NULL'), ' has no target: `route` neither allows it"
    first = f"WHEN kind IN ('a', 7) THEN kind = 'a' ELSE {refused} nor has a `rest`')) END"
    assert route.entries(None) == (("of_a", f"CASE {first}"), ("of_7", "kind = 7"))
    assert route.entries("n > 0") == (
        ("of_a", f"CASE WHEN NOT coalesce(n > 0, false) THEN false {first}"), ("of_7", "(n > 0) AND (kind = 7)"),
    )  # fmt: skip
    assert RouteConfig(by="kind", to="of_{kind}", allow=()).entries(None) == ()


def test_settings_of_spark_count_for_tables_with_expressions(tmp_path: Path) -> None:
    text = """
databases:
- {database: shop, urls: [{url: "postgresql://eu/shop"}], tables: {a: {filter: "n > 1"}, b: {set: {n: n}}, c: }}
spark: {conf: %s}
"""

    def dialects(conf: dict[str, object]) -> list[str]:
        (source,) = sources.resolve(loaded(tmp_path, text % json.dumps(conf)).config)
        return [spec.dialect for spec in source.tables]

    assert dialects({}) == ["", "", ""]
    same = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": True, "spark.sql.shuffle.partitions": 4}
    assert dialects(same) == ["", "", ""]
    one, other, none = dialects(same | {"spark.sql.ansi.enabled": False})
    assert one == other == '{"spark.sql.ansi.enabled": "false"}'
    assert none == "", "nothing of it is Spark's to evaluate"


def test_a_branch_is_that_of_the_table_else_of_the_lake() -> None:
    tables = {"items": None, "others": {"branch": "audit"}, "plain": {"branch": "main"}}
    group = {"database": "shop", "urls": [{"url": "postgresql://eu/shop"}], "tables": tables}
    maps = [Config.model_validate({"lake": lake, "databases": [group]}) for lake in ({}, {"branch": "staging"})]
    found = [[spec.branch for spec in sources.resolve(one)[0].tables] for one in maps]
    assert found == [["main", "audit", "main"], ["staging", "audit", "main"]]
