"""Targets created before the map has their tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.admin.entries.source_shelf import SourceShelf
from kuvasz.model import Column, PgType, Relation, ReplicaIdentity, TableName
from kuvasz.source.catalog.table import SourceTable, TableKind
from tests.support.writable_world import WritableWorld


def source_table(name: str, why_unsupported: str = "") -> SourceTable:
    columns = (Column(name="id", pg_type=PgType(oid=23, name="int4"), is_key=True, attnum=1),)
    relation = Relation(
        oid=1, table=TableName(schema="public", name=name), identity=ReplicaIdentity.DEFAULT, columns=columns
    )
    return SourceTable(
        relation=relation, kind=TableKind.TABLE, page_bytes=8192, row_estimate=None,
        primary_key=("id",), identity_index=(), generated=(), leaves=(), why_unsupported=why_unsupported,
    )  # fmt: skip


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WritableWorld:
    monkeypatch.setenv("PW", "a-secret")
    monkeypatch.setattr(
        SourceShelf, "_tables", lambda *_: [source_table("later"), source_table("bare", "is unlogged")]
    )
    return WritableWorld(tmp_path, is_writable=False)


def test_a_target_is_created_empty_and_the_map_stays(world: WritableWorld) -> None:
    before = world.text
    status, shown = world.ask("/api/map/3/create?target=s.later")
    assert (status, shown["name"], shown["target"], shown["type"], shown["present"], shown["replicated"]) == (
        200, "later", "s.later", "clone", True, False,
    )  # fmt: skip
    status, told = world.ask("/api/map/3/create?target=s.later")
    assert (status, told["error"]) == (409, "the lake has the table s.later already")
    assert world.text == before


def test_what_cannot_be_is_not_created(world: WritableWorld) -> None:
    for path, status, error in (
        ("1/create", 409, "the map has the table public.items already"),
        ("99/create", 404, "there is no map 99"),
        ("3/create?type=none", 400, "type has to be one of clone, append, history, changelog, and is 'none'"),
        ("3/create?target=items", 409, "the map would be faulty: the target shop.items is that of 'items' already"),
        ("3/create?target=a/b", 400, "target "),
        ("4/create?type=append", 409, "source shop_eu, table public.bare cannot be replicated: is unlogged"),
    ):
        found, told = world.ask(f"/api/map/{path}")
        assert (found, told["error"][: len(error)]) == (status, error)


def test_nobody_knows_columns_where_no_source_answers(world: WritableWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world.ask("/api/map", method="GET")[0] == 200
    monkeypatch.setattr(SourceShelf, "_tables", lambda *_: None)
    assert world.ask("/api/map/3/create")[0] == 404, "nothing has the number, then"
