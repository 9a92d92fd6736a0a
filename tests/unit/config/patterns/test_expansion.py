from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kuvasz.config import check, load, names, sources
from kuvasz.config.model import Config
from kuvasz.config.patterns import expansion
from kuvasz.config.patterns.found_tables import LeftOut, SeenTable

EU, US = "shop_eu", "shop_us"
PLAIN: Mapping[str, Any] = {"public.*": None}

#: Makes of binary digits names that differ in case alone.
CASES = str.maketrans("01", "aA")


def config(tables: Mapping[str, Any], *more: Mapping[str, Any]) -> Config:
    urls = [{"url": f"postgresql://repl@{sid}/shop", "sid": sid} for sid in ("eu", "us")]
    document = {"databases": [{"database": "shop", "urls": urls, "tables": dict(tables)}, *more]}
    return load.of_text(json.dumps(document), {}, Path())


def seen(*tables: str, keyless: Sequence[str] = ()) -> tuple[SeenTable, ...]:
    return tuple(SeenTable(table=names.parse_table(one), has_key=one not in keyless) for one in (*tables, *keyless))


def mapped(found: Config) -> dict[str, dict[str, str]]:
    """Source -> table -> target."""
    return {
        source.name: {str(spec.table): spec.identifier for spec in source.tables} for source in sources.resolve(found)
    }


def left_out(found: Config) -> list[tuple[str, str, str]]:
    groups = [group.found for group in found.databases if group.found is not None]
    return [(one.source, one.table, one.pattern) for group in groups for one in group.left_out]


def test_each_source_has_the_tables_that_it_has() -> None:
    found = expansion.expanded(config(PLAIN), {EU: seen("items", "orders", "other.x"), US: seen("items")})
    items = {"public.items": "kuvasz.items"}
    assert mapped(found) == {EU: items | {"public.orders": "kuvasz.orders"}, US: items}
    assert [source.patterns for source in sources.resolve(found)] == [(sources.Pattern(key="public.*"),)] * 2
    (target, _) = sources.targets(found)
    assert (target.has_sid, len(target.feeds)) == (True, 2)


def test_of_a_source_that_was_never_seen_nothing_is_known_and_it_is_a_source_all_the_same() -> None:
    raw = config(PLAIN)
    assert mapped(raw) == mapped(expansion.expanded(raw, {})) == {EU: {}, US: {}}
    assert mapped(expansion.expanded(raw, {US: seen("items")}))[EU] == {}


def test_what_was_known_before_is_not_added_to() -> None:
    first = expansion.expanded(config(PLAIN), {EU: seen("items"), US: ()})
    assert mapped(expansion.expanded(first, {EU: seen("orders"), US: ()})) == {
        EU: {"public.orders": "kuvasz.orders"}, US: {}
    }  # fmt: skip
    assert first == expansion.expanded(config(PLAIN), {EU: seen("items"), US: ()})
    assert first != expansion.expanded(config(PLAIN), {EU: seen("orders"), US: ()})


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ({"shop.ord*": None}, {"shop.orders"}),
        ({"*.orders": {"target": "{schema}_{table}"}}, {"public.orders", "shop.orders"}),
        ({"*": None}, {"public.items", "public.orders", "public.a*"}),
        ({"*": {"except": ["o*"]}}, {"public.items", "public.a*"}),
        ({"*.*": {"except": ["shop.*", "items"]}}, {"public.orders", "public.a*"}),
        ({"*": None, "items": {"enabled": False}}, {"public.orders", "public.a*"}),
        ({"*": {"enabled": False}}, set()),
        ({"*": {"except": ['"a*"', '"i*"']}}, {"public.items", "public.orders"}),
        ({'"sh*".*': None}, set()),
        ({'"a*"': None}, {"public.a*"}),  # a name, which all sources have to have
        ({"one": {"partitions_regex": "ord.*"}, "o*": None}, {"public.one"}),
    ],
)
def test_a_pattern_takes_in_what_is_like_it(tables: Mapping[str, Any], expected: set[str]) -> None:
    there = seen("items", "orders", '"a*"', "shop.orders")
    assert set(mapped(expansion.expanded(config(tables), {EU: there})).get(EU, {})) == expected


def test_the_first_pattern_takes_a_table_in_and_an_entry_of_its_own_beats_all() -> None:
    tables = {
        "*.*": {"type": "append", "except": ["ord*"]}, "orders": {"type": "history"}, "*": {"target": "old_{table}"},
    }  # fmt: skip
    found = expansion.expanded(config(tables), {EU: seen("orders", "items", "orders_2")})
    (eu, _) = sources.resolve(found)
    assert {str(spec.table): (spec.target, spec.config.type.value) for spec in eu.tables} == {
        "public.orders": ("orders", "history"),
        "public.items": ("items", "append"),
        "public.orders_2": ("old_orders_2", "clone"),
    }


def test_targets_are_named_after_tables() -> None:
    found = config({"*.*": {"target": "raw.{schema}_{table}"}})
    there = seen("items", "shop.items", '"a.b"."c""d"')
    assert mapped(expansion.expanded(found, {EU: there}))[EU] == {
        "public.items": "raw.public_items", "shop.items": "raw.shop_items", 'a.b.c"d': "raw.a_b_c_d",
    }  # fmt: skip


def test_tables_that_nothing_tells_the_rows_apart_of_are_left_out() -> None:
    there = {EU: seen("items", keyless=["log"]), US: seen("items", "log")}
    found = expansion.expanded(config(PLAIN), there)
    assert set(mapped(found)[EU]) == {"public.items"}
    assert set(mapped(found)[US]) == {"public.items", "public.log"}
    assert left_out(found) == [(EU, "log", "public.*")]
    for said in ({"type": "append"}, {"type": "changelog"}, {"key": ["id"]}):
        assert not left_out(expansion.expanded(config({"public.*": said}), there))


def test_of_two_tables_of_one_target_the_first_keeps_it() -> None:
    everywhere = config({"*.*": None})
    found = expansion.expanded(everywhere, {EU: seen("items", "shop.items", "shop.Items"), US: seen("shop.items")})
    assert mapped(found) == {EU: {"public.items": "kuvasz.items"}, US: {}}
    assert sorted(left_out(found)) == [
        (EU, "shop.Items", "*.*"), (EU, "shop.items", "*.*"), (US, "shop.items", "*.*")
    ]  # fmt: skip
    (one, *_) = [one for group in found.databases if group.found for one in group.found.left_out]
    assert isinstance(one, LeftOut)
    assert "the target kuvasz.items" in one.why or "differs from" in one.why
    assert one.hint == 'give the pattern `target: "{schema}_{table}"`, or the table an entry of its own'


def test_a_table_of_public_keeps_its_target_from_those_of_another_source_that_were_there_with_it() -> None:
    """Whoever owns the first source of the map could take all names that the others have in `public`."""
    everywhere = config({"*.*": None})
    found = expansion.expanded(everywhere, {EU: seen("mine.items"), US: seen("items")})
    assert mapped(found) == {EU: {}, US: {"public.items": "kuvasz.items"}}
    assert left_out(found) == [(EU, "mine.items", "*.*")]


def test_a_target_of_another_group_is_left_to_that() -> None:
    other = {
        "database": "old", "urls": [{"url": "postgresql://repl@old/shop", "sid": "old"}],
        "tables": {"items": {"type": "append"}, "orders": None},
    }  # fmt: skip
    found = expansion.expanded(config(PLAIN, other), {EU: seen("items", "orders")})
    assert mapped(found)[EU] == {"public.orders": "kuvasz.orders"}
    assert left_out(found) == [(EU, "items", "public.*")]


PLAIN_GROUP: Mapping[str, Any] = {"database": "crm", "urls": [{"url": "postgresql:///crm"}], "tables": PLAIN}


def test_rows_of_two_groups_that_nothing_tells_apart_are_not_of_one_target() -> None:
    """Each has a table of one name, as any two applications may, and one of them no sid, or the same one."""
    there = {EU: seen("users", "items"), "crm": seen("users", "deals")}
    found = expansion.expanded(config(PLAIN, PLAIN_GROUP), there)
    assert mapped(found)["crm"] == {"public.deals": "kuvasz.deals"}
    assert mapped(found)[EU] == {"public.users": "kuvasz.users", "public.items": "kuvasz.items"}
    assert left_out(found) == [("crm", "users", "public.*")]
    assert not check.problems(found)
    same = {**PLAIN_GROUP, "urls": [{"url": "postgresql:///crm", "sid": "eu"}]}
    found = expansion.expanded(config(PLAIN, same), {EU: seen("users"), "crm_eu": seen("users")})
    assert (mapped(found)["crm_eu"], check.problems(found)) == ({}, [])


def test_of_tables_of_two_groups_the_one_that_came_later_is_left_out() -> None:
    (later,) = seen("users")
    there = {EU: (dataclasses.replace(later, since=2),), "crm": (dataclasses.replace(later, since=1),)}
    found = expansion.expanded(config(PLAIN, PLAIN_GROUP), there)
    assert mapped(found) == {EU: {}, US: {}, "crm": {"public.users": "kuvasz.users"}}


def test_a_table_of_a_group_that_changes_as_one_is_no_other_groups() -> None:
    joint = {**PLAIN_GROUP, "urls": [{"url": "postgresql:///crm", "sid": "crm"}], "consistency": "group"}
    found = expansion.expanded(config(PLAIN, joint), {EU: seen("users"), "crm_crm": seen("users", "deals")})
    assert (mapped(found)["crm_crm"], check.problems(found)) == ({"public.deals": "kuvasz.deals"}, [])


def test_a_name_that_the_lake_cannot_have_is_left_out() -> None:
    found = expansion.expanded(config(PLAIN), {EU: seen("a/b", "items")})
    assert mapped(found)[EU] == {"public.items": "kuvasz.items"}


def test_tables_that_are_left_out_for_a_while_are_among_all() -> None:
    found = expansion.expanded(config({"*": {"enabled": False}}), {EU: seen("items")})
    assert mapped(found) == {}
    assert mapped(sources.with_all_tables(found))[EU] == {"public.items": "kuvasz.items"}


def test_a_place_is_that_of_the_pattern(tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text(
        "databases:\n- database: shop\n  urls: [{url: 'postgresql:///shop'}]\n  tables:\n    '*': {filter: 'n > 0'}\n"
    )
    loaded = load.load(tmp_path / "map.yaml", {})
    known = dataclasses.replace(loaded, config=expansion.expanded(loaded.config, {"shop": seen("items")}))
    assert known.place_of("shop", "items", "filter").endswith("map.yaml:5:19: ")


@pytest.mark.parametrize("is_at_once", [True, False])
@pytest.mark.parametrize("name", [lambda n: f"s{n}.items", lambda n: f'public."{n:012b}"'.translate(CASES)])
def test_many_tables_of_one_target_take_work_in_proportion(
    monkeypatch: pytest.MonkeyPatch, name: Callable[[int], str], *, is_at_once: bool
) -> None:
    """Whoever owns a source may have any number of them, at once or one after another."""
    asked = 0
    target_name = sources.target_name

    def counted(*given: Any) -> tuple[str, str]:
        nonlocal asked
        asked += 1
        return target_name(*given)

    monkeypatch.setattr(sources, "target_name", counted)

    def work(tables: int) -> int:
        nonlocal asked
        asked = 0
        there = tuple(
            dataclasses.replace(one, since=0 if is_at_once else number)
            for number, one in enumerate(seen(*map(name, range(tables))))
        )
        found = expansion.expanded(config({"*.*": None}), {EU: there})
        assert len(mapped(found)[EU]) == 1
        assert len(left_out(found)) == tables - 1
        return asked

    twenty, forty, eighty = work(20), work(40), work(80)
    assert eighty - forty <= 2.1 * (forty - twenty), (twenty, forty, eighty)
