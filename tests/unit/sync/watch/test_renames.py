"""The names that tables have now, by what a catalog says of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from kuvasz.config.sources import SourceTableSpec
from kuvasz.model import TableName
from kuvasz.source.catalog import introspect
from kuvasz.sync.watch import renames
from kuvasz.sync.watch.renames import Renames
from tests.support.scene import Scene


def name(text: str) -> TableName:
    return TableName(schema="public", name=text)


class Catalog:
    """OID -> name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tables = {1: name("items"), 2: name("others")}
        self.asked = 0
        monkeypatch.setattr(introspect, "names_of", self.names_of)
        monkeypatch.setattr(introspect, "tables_named", self.tables_named)

    def names_of(self, _: object, oids: Collection[int]) -> dict[int, TableName]:
        self.asked += 1
        return {oid: self.tables[oid] for oid in oids if oid in self.tables}

    def tables_named(self, _: object, names: Collection[TableName]) -> frozenset[TableName]:
        self.asked += 1
        return frozenset(self.tables.values()) & frozenset(names)


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch) -> Catalog:
    return Catalog(monkeypatch)


def test_a_table_is_known_by_its_oid(catalog: Catalog) -> None:
    catalog.tables[1] = name("goods")
    assert renames.located(None, {"a": (name("items"), 1), "b": (name("others"), 2)}) == {
        "a": name("goods"),
        "b": name("others"),
    }


def test_a_table_that_is_gone_has_no_name(catalog: Catalog) -> None:
    del catalog.tables[1]
    assert renames.located(None, {"a": (name("items"), 1)}) == {}


def test_the_entry_of_a_name_that_another_table_has_stays_with_it(catalog: Catalog) -> None:
    catalog.tables = {1: name("goods"), 3: name("items")}
    assert renames.located(None, {"a": (name("items"), 1)}) == {"a": name("items")}


def test_no_more_is_asked_than_is_needed(catalog: Catalog) -> None:
    assert renames.located(None, {}) == {}
    assert catalog.asked == 0
    renames.located(None, {"a": (name("items"), 1)})
    assert catalog.asked == 1


def test_a_source_is_shown_with_the_names_of_now(catalog: Catalog, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    catalog.tables[1] = name("goods")
    found = renames.renamed(None, scene.source, {scene.items.key: 1, scene.others.key: 0})
    assert [spec.table for spec in found.tables] == [name("goods"), name("others")]
    assert [spec.identifier for spec in found.tables] == ["shop.items", "shop.others"]


def test_members_have_a_watch_of_their_own(catalog: Catalog, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    member = dataclasses.replace(scene.items, member="1")
    catalog.tables[1] = name("goods")
    source = dataclasses.replace(scene.source, tables=(member,))
    assert renames.renamed(None, source, {member.key: 1}).tables == (member,)


def test_a_source_takes_the_names_over_of_what_the_lake_has(catalog: Catalog, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    bound: list[tuple[str, SourceTableSpec, int]] = []
    routes: Any = scene.shared.routes
    routes.claim = lambda *facts: bound.append(facts)
    catalog.tables = {1: name("goods"), 2: name("sold")}
    Renames(scene.context, lambda spec: 1 if spec.key == scene.items.key else 0).learn(None, scene.source.tables)
    now = [spec.table for spec in scene.source_tables.source.tables]
    assert now == [name("goods"), name("others")], "nobody knows which table `others` was"
    assert [(source, spec.key, oid) for source, spec, oid in bound] == [("shop", "shop.items", 1)]
