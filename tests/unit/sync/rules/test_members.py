from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kuvasz.config import sources as config_sources
from kuvasz.config.load import load
from kuvasz.errors import SourceTooLarge
from kuvasz.model import TableName
from kuvasz.source.catalog.members import Candidate
from kuvasz.sync.rules import members

MAP = """
databases:
- database: shop
  urls: [{url: postgresql:///eu, sid: eu}]
  tables:
    customers:
    events: {partitions_regex: "events_.*"}
    events_old: {type: append}
    billing.logs: {partitions_regex: "log_[0-9]+"}
"""


def candidate(oid: int, name: str, *ancestors: int, schema: str = "public") -> Candidate:
    return Candidate(oid=oid, table=TableName(schema=schema, name=name), ancestors=ancestors)


@pytest.fixture
def source(tmp_path: Path) -> config_sources.Source:
    file = tmp_path / "map.yaml"
    file.write_text(MAP)
    return config_sources.resolve(load(file, {}).config)[0]


def tables(source: config_sources.Source) -> list[tuple[str, str, str]]:
    return [(str(spec.table), spec.identifier, source.name_of(spec)) for spec in source.tables]


def test_tables_take_the_place_of_their_collapse(source: config_sources.Source) -> None:
    there = [
        candidate(1, "events_1"), candidate(2, "events_old"), candidate(3, "events_2"), candidate(4, "customers"),
        candidate(5, "log_1", schema="billing"), candidate(6, "log_1"), candidate(7, "log_x", schema="billing"),
    ]  # fmt: skip
    assert tables(members.expanded(source, there)) == [
        ("public.customers", "kuvasz.customers", "shop_eu"),
        ("public.events_1", "kuvasz.events", "shop_eu/1"),
        ("public.events_2", "kuvasz.events", "shop_eu/3"),
        ("public.events_old", "kuvasz.events_old", "shop_eu"),
        ("billing.log_1", "kuvasz.logs", "shop_eu/5"),
    ]
    assert [name for name, _, _ in tables(members.expanded(source, []))] == ["public.customers", "public.events_old"]


def test_whoever_makes_tables_without_end_stops_himself(
    source: config_sources.Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would be in what is written with every commit to a target that others feed, too."""
    monkeypatch.setattr(members, "MOST_MEMBERS", 3)
    there = [candidate(number, f"events_{number}") for number in range(1, 4)]
    assert len(tables(members.expanded(source, there))) == 5
    with pytest.raises(SourceTooLarge, match=r"4 tables of it are kuvasz\.events, and at most 3 may be"):
        members.expanded(source, [*there, candidate(4, "events_4")])


def test_a_partition_comes_with_its_root_if_that_is_in_the_map(source: config_sources.Source) -> None:
    there = [
        candidate(1, "events_all"), candidate(2, "events_1", 1), candidate(3, "events_2", 9, 8),
        candidate(4, "customers"), candidate(5, "events_3", 4), candidate(8, "parents"),
    ]  # fmt: skip
    found = [name for _, target, name in tables(members.expanded(source, there)) if target == "kuvasz.events"]
    assert found == ["shop_eu/1", "shop_eu/3"]


def test_a_table_of_its_own_stays_that_whatever_it_is_called(source: config_sources.Source) -> None:
    there = [candidate(1, "events_1"), candidate(2, "events_2"), candidate(3, "events_3", 4)]
    found = [name for _, target, name in tables(members.expanded(source, there, {2, 4})) if target == "kuvasz.events"]
    assert found == ["shop_eu/1"]


def test_members_come_leave_and_are_renamed(source: config_sources.Source) -> None:
    before = members.expanded(source, [candidate(1, "events_1"), candidate(2, "events_2")])
    now = members.expanded(source, [candidate(3, "events_1"), candidate(2, "events_9")])
    seen = members.compare(before, now)
    assert [(spec.member, spec.table.name) for spec in seen.came] == [("3", "events_1")]
    assert [(spec.member, spec.table.name) for spec in seen.left] == [("1", "events_1")]
    assert [(old.table.name, spec.table.name) for old, spec in seen.renamed] == [("events_2", "events_9")]
    nothing = members.MemberChanges(came=(), left=(), renamed=())
    assert members.compare(now, now) == nothing
    plain = dataclasses.replace(source, tables=(source.tables[0],))
    assert members.compare(plain, plain) == nothing


def test_names_are_remembered() -> None:
    known = {"1": "public.events 1", "2": "public.events_2"}
    assert members.remembered(members.rendered(known)) == known
    assert members.remembered(()) == {}


def test_the_tables_of_each_schema_are_members_with_its_tenant(tmp_path: Path) -> None:
    file = tmp_path / "map.yaml"
    file.write_text("""
    databases:
    - {database: shop, urls: [{url: postgresql:///x, schemas: "(?:tenant|t)_(.*)"}], tables: {items: , people: }}
    """)
    source = config_sources.resolve(load(file, {}).config)[0]
    there = [
        candidate(1, "items", schema="tenant_a"), candidate(2, "people", schema="t_b"), candidate(3, "items"),
        candidate(4, "others", schema="tenant_a"), candidate(5, "items", schema="my_tenant_a"),
        candidate(6, "items", schema="tenant_"), candidate(7, "items", schema="t_A/@1"),
    ]  # fmt: skip
    before = members.expanded(source, there)
    assert tables(before) == [
        ("tenant_a.items", "kuvasz.items", "shop/1@a"),
        ("t_A/@1.items", "kuvasz.items", "shop/7@A/@1"),
        ("t_b.people", "kuvasz.people", "shop/2@b"),
    ]
    assert [(spec.oid, spec.tenant) for spec in before.tables] == [(1, "a"), (7, "A/@1"), (2, "b")]
    # Another name of the schema is another sid, and so another member.
    found = members.compare(before, members.expanded(source, [candidate(1, "items", schema="tenant_c"), *there[1:]]))
    assert [spec.member for spec in found.left] == ["1@a"]
    assert [spec.member for spec in found.came] == ["1@c"]
    assert not found.renamed
