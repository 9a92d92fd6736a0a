from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kuvasz.config.model import TableConfig
from kuvasz.config.sources import SourceTableSpec
from kuvasz.model import Column, PgType, Relation, ReplicaIdentity, TableName
from kuvasz.source.catalog import membership
from kuvasz.source.catalog.table import SourceTable, TableKind
from kuvasz.sync.rules.left_out import row_filters

NAME = TableName(schema="public", name="deeds")
COLUMNS = tuple(
    Column(name=name, pg_type=PgType(oid=oid, name=kind, category=category), attnum=number, is_key=number < 3)
    for number, (name, oid, kind, category) in enumerate(
        [
            ("tenant", 23, "int4", "b"),
            ("id", 23, "int4", "b"),
            ("region", 25, "text", "b"),
            ("mood", 20000, "mood", "e"),
        ],
        1,
    )
)
KEYED = SourceTable(
    relation=Relation(oid=1, table=NAME, identity=ReplicaIdentity.DEFAULT, columns=COLUMNS),
    kind=TableKind.TABLE, page_bytes=8192, row_estimate=None, primary_key=("tenant", "id"), identity_index=("id",),
    generated=(), leaves=(), is_owned=True,
)  # fmt: skip


def having(identity: ReplicaIdentity, **facts: Any) -> SourceTable:
    relation = dataclasses.replace(KEYED.relation, identity=identity)
    return dataclasses.replace(KEYED, relation=relation, **facts)


FULL, INDEX = having(ReplicaIdentity.FULL), having(ReplicaIdentity.INDEX)


def spec(text: str = "tenant = 5 AND region = 'in'", **said: Any) -> SourceTableSpec:
    config = TableConfig(**{"filter": text, "row_filter": True, **said})
    return SourceTableSpec(table=NAME, config=config, namespace="shop", target="deeds", has_sid=False)


@pytest.mark.parametrize(
    ("said", "table", "wanted"),
    [
        (spec(), KEYED, '("tenant" = (5))'),
        (spec(), FULL, """(("tenant" = (5)) AND ("region"::text COLLATE "C" = 'in'))"""),
        (spec(), INDEX, ""),
        (spec("id > 7"), INDEX, '("id" > (7))'),
        (spec(), dataclasses.replace(FULL, own_collations=frozenset({3})), '("tenant" = (5))'),
        (spec("mood = 'sad'"), FULL, ""),
        (spec("true"), FULL, ""),
        (spec(), dataclasses.replace(FULL, can_update=False), ""),
        (spec(), dataclasses.replace(KEYED, kind=TableKind.PARTITIONED), ""),
        (dataclasses.replace(spec(), member="a"), FULL, ""),
        (spec(row_filter=False), FULL, ""),
        (spec(), dataclasses.replace(FULL, may_filter=False), ""),
    ],
)
def test_which_row_filter_a_table_gets(said: SourceTableSpec, table: SourceTable, wanted: str) -> None:
    found = row_filters.wanted(said, table)
    assert found.partition(" AND ")[2] == wanted
    assert bool(row_filters.why_not(said, table)) is (not wanted and said.config.row_filter)


def published(table: SourceTable, said: SourceTableSpec, by: SourceTable) -> SourceTable:
    """Return a table that has the row filter which the map asked for when it was another one."""
    return dataclasses.replace(table, filter_mark=membership.mark_of(row_filters.wanted(said, by)))


def test_a_row_filter_is_stale_as_soon_as_it_is_another_one() -> None:
    assert not row_filters.is_stale(spec(), FULL)
    assert not row_filters.is_stale(spec(), published(FULL, spec(), FULL))
    assert row_filters.is_stale(spec("tenant = 6"), published(FULL, spec(), FULL))
    assert row_filters.is_stale(spec(row_filter=False), published(FULL, spec(), FULL))
    assert row_filters.is_stale(spec(), published(KEYED, spec(), FULL))
    swapped = tuple(dataclasses.replace(one, attnum={1: 2, 2: 1}.get(one.attnum, one.attnum)) for one in COLUMNS)
    renamed = dataclasses.replace(FULL, relation=dataclasses.replace(FULL.relation, columns=swapped))
    assert row_filters.is_stale(spec(), published(renamed, spec(), FULL))
    assert not row_filters.is_stale(spec(), dataclasses.replace(published(KEYED, spec(), FULL), is_owned=False))


def test_updates_fail_where_the_row_filter_reads_more_than_identifies_a_row() -> None:
    for table, by, fails in ((FULL, FULL, False), (KEYED, FULL, True), (KEYED, KEYED, False), (INDEX, KEYED, True)):
        assert row_filters.breaks_updates(published(table, spec(), by)) is fails
    assert not row_filters.breaks_updates(KEYED)
