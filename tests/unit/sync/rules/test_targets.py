from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.config import sources as config_sources
from kuvasz.config.load import load
from kuvasz.model import TableName
from kuvasz.ports import Feed, Target
from kuvasz.route.hashing import worker_of
from kuvasz.sync.rules import targets as targets_module
from kuvasz.sync.rules.targets import Targets, feed_of, narrowed, target_of, why_not_taken
from tests.support.changes import relation

MAP = """
lake: {namespace: shop}
databases:
- database: shop
  urls: [{url: postgresql:///eu, sid: eu}, {url: postgresql:///us, sid: us}]
  tables:
    items:
    sales.orders: {target: fact_orders}
- database: audit
  urls: [{url: postgresql:///audit}]
  tables: {events: }
"""


@pytest.fixture
def sources(tmp_path: Path) -> list[config_sources.Source]:
    file = tmp_path / "map.yaml"
    file.write_text(MAP)
    return config_sources.resolve(load(file, {}).config)


def test_a_relation_is_found_by_its_sources_map(sources: list[config_sources.Source]) -> None:
    targets = Targets(sources, 4)
    eu, us, audit = (source.name for source in sources)
    orders = relation(table=TableName(schema="sales", name="orders"))
    assert (targets.find(eu, relation()), targets.find(us, relation())) == (
        (("shop.items", eu),),
        (("shop.items", us),),
    )
    assert targets.find(eu, orders) == (("shop.fact_orders", eu),)
    assert targets.find(audit, relation()) == ()
    assert targets.find(eu, relation(table=TableName(schema="public", name="orders"))) == ()


def test_another_entry_takes_the_place_of_a_source(sources: list[config_sources.Source]) -> None:
    targets, (eu, us) = Targets(sources, 4), (source.name for source in sources[:2])
    targets.bind(eu, sources[0].tables[0], 9)
    away = relation(oid=9, table=TableName(schema="attic", name="away"))
    assert targets.find(eu, away) == (("shop.items", eu),)
    targets.replace(eu, dataclasses.replace(sources[0], tables=sources[0].tables[1:]))
    assert (targets.find(eu, away), targets.find(eu, relation())) == ((), ())
    assert targets.find(us, relation()) == (("shop.items", us),)
    targets.replace(us, None)
    targets.replace("unknown", None)
    assert (targets.find(us, relation()), targets.worker(us, relation())) == ((), None)


def test_a_member_is_known_by_its_oid(tmp_path: Path) -> None:
    file = tmp_path / "map.yaml"
    file.write_text(MAP.replace("items:", 'items: {partitions_regex: "items_.*"}'))
    sources = config_sources.resolve(load(file, {}).config)
    targets, eu = Targets(sources, 4), sources[0].name
    found = relation(oid=7, table=TableName(schema="public", name="items_1"))
    assert targets.find(eu, found) == (("shop.items", f"{eu}/7"),)
    renamed = dataclasses.replace(found, table=TableName(schema="public", name="items_2"))
    assert targets.find(eu, renamed) == (("shop.items", f"{eu}/7"),)
    assert targets.worker(eu, found) == worker_of("shop.items", 4)
    away = dataclasses.replace(found, table=TableName(schema="attic", name="away"))
    assert targets.find(eu, away) == ()
    spec = sources[0].tables[0].of_member(found.table, 7)
    targets.bind(eu, spec, 7)
    assert targets.find(eu, away) == (("shop.items", f"{eu}/7"),), "it may be back before anybody looks"
    targets.unbind(eu, "shop.others", "7")
    assert targets.worker(eu, away) == worker_of("shop.items", 4)
    targets.unbind(eu, "shop.items", "7")
    assert targets.find(eu, away) == ()
    assert target_of(spec).has_members
    assert feed_of(sources[0], spec) == Feed(target="shop.items", source=f"{eu}/7", sid="eu", table=found.table)


def test_a_tenants_table_is_known_by_both_and_has_the_tenants_sid(tmp_path: Path) -> None:
    file = tmp_path / "map.yaml"
    file.write_text("""
    databases:
    - {database: shop, urls: [{url: postgresql:///a, schemas: "tenant_(.+)"}], tables: {items: {target: shop.items}}}
    - {database: store, urls: [{url: postgresql:///b, sid: eu}], tables: {items: {target: shop.items}}}
    """)
    shop, store = config_sources.resolve(load(file, {}).config)
    targets = Targets((shop, store), 4)
    found = relation(oid=7, table=TableName(schema="tenant_acme", name="items"))
    assert targets.find("shop", found) == (("shop.items", "shop/7@acme"),)
    assert targets.find("shop", relation(oid=8, table=TableName(schema="public", name="items"))) == ()
    assert targets.find("shop", relation(oid=8, table=TableName(schema="tenant_acme", name="others"))) == ()
    spec = shop.tables[0].of_member(found.table, 7)
    assert feed_of(shop, spec) == Feed(target="shop.items", source="shop/7@acme", sid="acme", table=found.table)
    assert (target_of(spec).has_sid, target_of(spec).has_members) == (True, False)
    targets.bind("shop", spec, 7)
    renamed = dataclasses.replace(found, table=TableName(schema="tenant_new", name="items"))
    assert targets.find("shop", renamed) == (("shop.items", "shop/7@acme"),), "until somebody looks"
    assert targets.own("shop", "shop.items", "eu") == "store_eu"
    assert targets.own("shop", "shop.items", "acme") == "shop"
    assert targets.own("store_eu", "shop.items", "acme") == "shop"
    targets.unbind("shop", "shop.items", "7@new")
    assert targets.own("store_eu", "shop.items", "acme") == "shop"
    targets.unbind("shop", "shop.items", "7@acme")
    assert targets.own("store_eu", "shop.items", "acme") == "store_eu"
    assert targets.find("shop", renamed) == (("shop.items", "shop/7@new"),)
    targets.replace("store_eu", None)
    assert targets.own("shop", "shop.items", "eu") == "shop"


def test_a_table_is_known_by_its_oid_once_it_is_bound(sources: list[config_sources.Source]) -> None:
    targets, eu, us = Targets(sources, 4), sources[0].name, sources[1].name
    items = sources[0].tables[0]
    targets.bind(eu, items, 7)
    renamed = relation(oid=7, table=TableName(schema="public", name="things"))
    assert targets.find(eu, renamed) == (("shop.items", eu),)
    assert targets.worker(eu, renamed) == worker_of("shop.items", 4)
    another = relation(oid=8)
    assert targets.find(eu, another) == (), "it only has the name"
    assert targets.find(us, another) == (("shop.items", us),), "that of another source is not bound"
    targets.bind(eu, items, 8)
    assert targets.find(eu, another) == (("shop.items", eu),)
    assert targets.find(eu, renamed) == ()
    assert targets.find(eu, dataclasses.replace(another, oid=7)) == ()


def test_a_table_with_routes_feeds_each_of_them_under_whatever_name(tmp_path: Path) -> None:
    file = tmp_path / "map.yaml"
    file.write_text(MAP.replace("items:", 'items: {route: {by: kind, to: "of_{kind}", allow: [a, b], rest: other}}'))
    sources = config_sources.resolve(load(file, {}).config)
    targets, eu = Targets(sources, 4), sources[0].name
    every = (("shop.of_a", eu), ("shop.of_b", eu), ("shop.other", eu))
    assert targets.find(eu, relation()) == every
    workers = {targets.worker_of_target(target) for target, _ in every}
    assert workers == {targets.worker(eu, relation())}, "the reader gives each change to one worker"
    a, b, rest = sources[0].tables[:3]
    renamed = relation(oid=7, table=TableName(schema="public", name="things"))
    targets.bind(eu, a, 7)
    assert set(targets.find(eu, relation(oid=7))) == set(every), "those that nobody has looked at yet by its name"
    assert targets.find(eu, renamed) == (("shop.of_a", eu),)
    targets.claim(eu, b, 7)
    targets.bind(eu, rest, 7)
    assert set(targets.find(eu, renamed)) == set(every)
    targets.claim(eu, sources[0].tables[3], 7)
    assert set(targets.find(eu, renamed)) == set(every), "of another entry it is none"
    targets.bind(eu, a, 8)
    assert set(targets.find(eu, renamed)) == set(every[1:]), "one goes on with another table"
    targets.bind(eu, sources[0].tables[3], 7)
    assert targets.find(eu, renamed) == (("shop.fact_orders", eu),)


def test_all_sources_of_a_target_share_its_worker(sources: list[config_sources.Source]) -> None:
    targets = Targets(sources, 4)
    assert targets.worker(sources[0].name, relation()) == targets.worker(sources[1].name, relation())
    assert targets.worker(sources[0].name, relation()) == worker_of("shop.items", 4)
    assert targets.worker(sources[2].name, relation()) is None


def test_a_spec_becomes_target_and_feed(sources: list[config_sources.Source]) -> None:
    spec = next(spec for spec in sources[0].tables if spec.table.name == "orders")
    place = "table sales.orders of the map"
    assert target_of(spec) == Target(name="shop.fact_orders", has_sid=True, on_schema_change="agree", place=place)
    assert feed_of(sources[0], spec) == Feed(
        target="shop.fact_orders", source=sources[0].name, sid="eu", table=TableName(schema="sales", name="orders")
    )
    (events,) = sources[2].tables
    assert not target_of(events).has_sid


@pytest.mark.parametrize(
    ("options", "names", "why"),
    [
        ({"columns": ("id", "body")}, ["id", "body"], ""),
        ({"exclude": ("body",)}, ["id", "n"], ""),
        (
            {"columns": ("id", "boddy")},
            ["id"],
            "columns names 'boddy', which the table does not have: did you mean 'body'?",
        ),
        ({"exclude": ("x",)}, ["id", "n", "body"], "exclude names 'x', which the table does not have"),
        ({"exclude": ("id",)}, ["n", "body"], "exclude leaves out id, which identifies the rows"),
        ({"columns": ("n",)}, ["n"], "columns leaves out id, which identifies the rows"),
    ],
)
def test_columns_are_taken_or_left_out(
    sources: list[config_sources.Source], options: dict[str, tuple[str, ...]], names: list[str], why: str
) -> None:
    spec = sources[0].tables[0]
    spec = dataclasses.replace(spec, config=spec.config.model_copy(update=options))
    assert [column.name for column in narrowed(spec, relation()).columns] == names
    assert why_not_taken(spec, relation()) == why


def test_names_that_are_swapped_leave_no_table_without_its_rows() -> None:
    specs = {
        name: SimpleNamespace(
            identifier=f"shop.{name}",
            member="",
            member_of=lambda table, oid: "",
            route=None,
            is_beside=lambda _: False,
        )
        for name in "ab"
    }
    source: Any = SimpleNamespace(
        name="shop", tables=(), find_all=lambda table: [specs[table.name]] if table.name in specs else []
    )
    targets = Targets([source], 1)
    for name, oid in (("a", 1), ("b", 2), ("a", 2), ("b", 1)):
        targets.bind("shop", specs[name], oid)  # type: ignore[arg-type]
    for name, oid in (("a", 2), ("b", 1)):
        found = targets.find(
            "shop", dataclasses.replace(relation(), oid=oid, table=TableName(schema="public", name=name))
        )
        assert found == ((f"shop.{name}", "shop"),)


def test_of_two_targets_that_have_had_a_tables_rows_one_follows_it() -> None:
    specs = {
        name: SimpleNamespace(
            identifier=f"shop.{name}",
            member="",
            member_of=lambda table, oid: "",
            route=None,
            is_beside=lambda _: False,
        )
        for name in "ab"
    }
    source: Any = SimpleNamespace(
        name="shop", tables=(), find_all=lambda table: [specs[table.name]] if table.name in specs else []
    )
    targets = Targets([source], 1)

    def follower() -> str | None:
        table = TableName(schema="public", name="elsewhere")
        found = targets.find("shop", dataclasses.replace(relation(), oid=1, table=table))
        return found[0][0] if found else None

    for name in "ab":
        targets.claim("shop", specs[name], 1)  # type: ignore[arg-type]
    assert follower() == "shop.a"
    for name in "ba":  # each in its turn, as the map says
        targets.bind("shop", specs[name], 1)  # type: ignore[arg-type]
        assert follower() == f"shop.{name}"
    targets.claim("shop", specs["b"], 1)  # type: ignore[arg-type]
    assert follower() == "shop.a"


def test_targets_that_change_at_once_have_one_worker(tmp_path: Path) -> None:
    file = tmp_path / "map.yaml"
    file.write_text(MAP.replace("- database: shop", "- database: shop\n  consistency: group"))
    sources = config_sources.resolve(load(file, {}).config)
    targets, eu = Targets(sources, 64), sources[0].name
    orders = relation(table=TableName(schema="sales", name="orders"))
    assert targets.worker(eu, relation()) == targets.worker(eu, orders) == worker_of("shop", 64)
    assert {targets.worker_of_target(name) for name in ("shop.items", "shop.fact_orders")} == {worker_of("shop", 64)}
    assert targets.worker_of_target("shop.events") == worker_of("shop.events", 64)
    assert [target_of(spec).group for source in sources for spec in source.tables] == ["shop"] * 4 + [None]


def test_names_that_are_none_of_the_maps_are_not_kept_without_end(
    sources: list[config_sources.Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets_module, "_MOST_NAMES", 10)
    targets, (eu, *_) = Targets(sources, 4), (source.name for source in sources)
    for number in range(100):
        table = TableName(schema="public", name=f"staging_{number}")
        assert targets.find(eu, relation(table=table, oid=1000 + number)) == ()
    assert len(targets._of[eu]._specs) <= 10
    assert targets.find(eu, relation()) == (("shop.items", eu),)
