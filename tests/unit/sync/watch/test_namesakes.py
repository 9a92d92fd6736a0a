from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kuvasz.config import names
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import SchemaError
from kuvasz.model import TableName
from kuvasz.sync.watch.namesakes import Namesakes
from tests.support.scene import Scene


def member(scene: Scene, schema: str, oid: int) -> SourceTableSpec:
    of_many = dataclasses.replace(scene.items, has_sid=True, schemas="(?:tenant|t)_(.+)")
    return of_many.of_member(TableName(schema=schema, name=of_many.table.name), oid)


def with_tables(scene: Scene, *specs: SourceTableSpec, sid: str | None = None) -> None:
    scene.source_tables.source = dataclasses.replace(scene.source, sid=sid, tables=specs)


def test_of_two_schemas_with_one_sid_the_older_table_has_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    first, second, other = member(scene, "tenant_a", 7), member(scene, "t_a", 5), member(scene, "tenant_b", 9)
    namesakes = Namesakes(scene.context)
    with_tables(scene, first, other)
    namesakes.refuse(first)
    with_tables(scene, first, second, other)
    for spec in (second, other):
        namesakes.refuse(spec)
    with pytest.raises(SchemaError, match=r"tenant_a.items: its rows would have the sid 'a' in shop.items, as those"):
        namesakes.refuse(first)
    with_tables(scene, first, other)
    namesakes.refuse(first)


def test_a_table_with_rows_in_the_lake_keeps_its_sid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path)
    first, second = member(scene, "tenant_a", 7), member(scene, "t_a", 5)
    with_tables(scene, first, second)
    mine = {scene.source.name_of(first): object()}
    monkeypatch.setattr(scene.lake, "positions", lambda _: mine)
    namesakes = Namesakes(scene.context)
    namesakes.refuse(first)
    with pytest.raises(SchemaError, match=r"as those of tenant_a.items have"):
        namesakes.refuse(second)
    mine.clear()
    namesakes.refuse(second)


def test_a_tenant_whose_rows_another_source_has_in_the_lake_is_refused_whoever_asks_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart, or while the other one's server is away: whoever owns a database names schemas as he likes."""
    scene = Scene(tmp_path)
    routes = scene.context.shared.routes
    routes.replace("shop_other", dataclasses.replace(scene.source, name="shop_other"))
    first, second = member(scene, "tenant_acme", 7), member(scene, "tenant_b", 9)
    with_tables(scene, first, second)
    there = {names.member_name("shop_other", names.tenant_member(30, "acme")): object()}
    monkeypatch.setattr(scene.lake, "positions", lambda _: there)
    namesakes = Namesakes(scene.context)
    with pytest.raises(SchemaError, match="as those of source shop_other have"):
        namesakes.refuse(first)
    namesakes.refuse(second)
    assert routes.own("shop_other", first.identifier, "acme") == "shop_other", "it is not given away"
    routes.replace("shop_other", None)  # it has left the map
    namesakes.refuse(first)
    there[scene.source.name_of(first)] = object()
    routes.replace("shop_other", dataclasses.replace(scene.source, name="shop_other"))
    namesakes.refuse(first)


def test_a_sid_of_another_source_is_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    spec = member(scene, "tenant_eu", 7)
    with_tables(scene, spec)
    assert scene.context.shared.routes.own("another", spec.identifier, "eu") == "another"
    namesakes = Namesakes(scene.context)
    with pytest.raises(SchemaError, match="as those of source another have"):
        namesakes.refuse(spec)
    assert not scene.source_tables.look(spec).is_resync_due, "it had no rows there"
    scene.states.add(spec.identifier, scene.source.name_of(spec), str(spec.table))
    scene.copy(spec)
    with pytest.raises(SchemaError, match="as those of source another have"):
        namesakes.refuse(spec)
    assert scene.source_tables.look(spec).is_resync_due, "the other one's are in their place"
    plain = dataclasses.replace(scene.items, has_sid=True)
    with_tables(scene, plain, sid="eu")
    with pytest.raises(SchemaError, match="as those of source another have"):
        namesakes.refuse(plain)
    with_tables(scene, plain, sid="us")
    namesakes.refuse(plain)
    with_tables(scene, scene.items, sid="eu")  # its rows have none
    namesakes.refuse(scene.items)
