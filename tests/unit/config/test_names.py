from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.config import names
from kuvasz.model import TableName


@pytest.mark.parametrize(
    ("text", "schema", "name"),
    [
        ("orders", "public", "orders"),
        ("billing.prices", "billing", "prices"),
        ("Order Items", "public", "Order Items"),
        ('"a.b".c', "a.b", "c"),
        ('"a.b"', "public", "a.b"),
        ('x."say ""hi"""', "x", 'say "hi"'),
        ('5"disk', "public", '5"disk'),
        ("2024", "public", "2024"),
        ("Ünïcode.таблица", "Ünïcode", "таблица"),
    ],
)
def test_a_table_is_named_as_postgresql_has_it(text: str, schema: str, name: str) -> None:
    assert names.parse_table(text) == TableName(schema=schema, name=name)


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", '"a', '""', "a\0b"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a name: a dot separates schema and table, double quotes protect"):
        names.parse_table(text)


def test_text_after_a_closing_quote_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^is not a name: 'b' follows the closing double quote$"):
        names.parse_table('"a"b')


def test_three_parts_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^has 3 parts, not a schema and a name: put a name that has a dot in double"
    ):
        names.parse_table("db.schema.table")


part = st.text(st.characters(exclude_characters="\0"), min_size=1)


@settings(deadline=None)  # a busy machine is no fault of ours
@given(part, part)
def test_what_a_table_renders_to_is_read_back(schema: str, name: str) -> None:
    table = TableName(schema=schema, name=name)
    assert names.parse_table(names.render_table(table)) == table


@pytest.mark.parametrize(
    ("database", "sid", "name"),
    [
        ("shop", "eu", "kuvasz_shop_eu"),
        ("shop", None, "kuvasz_shop"),
        ("Shop-1", "EU.west", "kuvasz_shop_1_eu_west"),
    ],
)
def test_an_object_is_called_after_database_and_sid(database: str, sid: str | None, name: str) -> None:
    assert names.object_name(database, sid) == name
    assert names.source_name(database, sid) == name.removeprefix("kuvasz_")


def test_long_names_are_told_apart_by_a_hash() -> None:
    # Pinned: a name that changed with a version would orphan the slot.
    assert names.object_name("d" * 60, "one") == "kuvasz_" + "d" * 45 + "_f93663511b"
    assert names.object_name("d" * 60, "one") != names.object_name("d" * 60, "two")


@settings(deadline=None)  # a busy machine is no fault of ours
@given(st.text(min_size=1), st.none() | st.text(min_size=1))
def test_every_object_name_is_one_that_a_slot_may_have(database: str, sid: str | None) -> None:
    assert re.fullmatch(r"kuvasz_[a-z0-9_]{1,56}", names.object_name(database, sid))


def test_a_table_is_called_as_the_lake_or_its_source_has_it() -> None:
    assert names.called("shop.items", "public.goods") == {"shop.items", "items", "public.goods", "goods"}
    assert names.called("shop.items", TableName(schema="crm", name="goods")) == {"shop.items", "items", "crm.goods"}


def test_a_table_that_is_missing_under_a_pattern_is_told_that_names_are_literal() -> None:
    told = "create it, or take it out of the map"
    assert names.missing(names.parse_table("items")) == told
    assert names.missing(names.parse_table("*")) == (
        f"{told}: a pattern has `*` alone, outside quotes; `partitions_regex` has several tables go into one target"
    )


def test_a_tenants_table_is_a_member_with_the_tenant_behind_its_oid() -> None:
    for tenant in ("acme", "7", "a/b@c"):
        member = names.tenant_member(16401, tenant)
        name = names.member_name("shop", member)
        assert (names.source_of(name), names.member_of(name)) == ("shop", member)
        assert (names.oid_of(member), names.tenant_of(member)) == (16401, tenant)
        assert names.feeder_of(name) == "shop/*"
    assert (names.oid_of("16401"), names.tenant_of("16401"), names.oid_of("")) == (16401, None, 0)


def test_members_of_a_source_are_fed_by_its_collapses() -> None:
    assert [names.feeder_of(name) for name in ("shop_eu", "shop_eu/16401", "shop_eu/*")] == [
        "shop_eu", "shop_eu/*", "shop_eu/*",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("items", {"public.items"}),
        ("i*", {"public.items", "public.i.*"}),
        ("*", {"public.items", "public.i.*", "public.Items", "public.a\nb"}),
        ("*.items", {"public.items", "x.items"}),
        ("x.*", {"x.items"}),
        ("*.*", {"public.items", "public.i.*", "public.Items", "public.a\nb", "x.items"}),
        ('"i.*"', {"public.i.*"}),
        ("*b", {"public.a\nb"}),
        ("i.tems", set()),
        ("item", set()),
    ],
)
def test_a_star_of_a_pattern_is_any_text_and_all_else_is_itself(pattern: str, meant: set[str]) -> None:
    tables = [TableName(schema="public", name=name) for name in ("items", "i.*", "Items", "a\nb")]
    tables.append(TableName(schema="x", name="items"))
    wanted = names.parse_table(pattern)
    assert {str(table) for table in tables if names.matches(wanted, table)} == meant


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ("file:///lake/./wh//items/", "file:///lake/wh/items"),
        ("file:/lake/wh/items/", "file:///lake/wh/items"),
        ("/lake/wh/../items", "file:///lake/items"),
        ("file://host/items/", "file://host/items"),
        ("s3a://lake/items/", "s3://lake/items"),
        ("s3://lake/a/../items", "s3://lake/a/../items"),
        ("abfs://c@a/items", "abfss://c@a/items"),
        ("lake", "lake"),
    ],
)
def test_one_place_has_one_text(location: str, place: str) -> None:
    assert names.one_place(location) == place
