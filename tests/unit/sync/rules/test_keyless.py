from __future__ import annotations

import dataclasses

import pytest

from kuvasz.config.model import TableConfig
from kuvasz.model import Column, PgType, Relation, ReplicaIdentity, TableName, TableType
from kuvasz.source.catalog.table import SourceTable, TableKind
from kuvasz.sync.rules import keyless

BARE = SourceTable(
    relation=Relation(
        oid=1, table=TableName(schema="public", name="bare"), identity=ReplicaIdentity.DEFAULT,
        columns=(Column(name="n", pg_type=PgType(oid=23, name="int4")),),
    ),
    kind=TableKind.TABLE, pages=1, page_bytes=8192, toast_bytes=0, row_estimate=None, primary_key=(),
    identity_index=(), generated=(), leaves=(), why_no_key="it has no primary key; mend it", can_update=False,
)  # fmt: skip
FULL = dataclasses.replace(
    BARE, can_update=True, relation=dataclasses.replace(BARE.relation, identity=ReplicaIdentity.FULL)
)


@pytest.mark.parametrize(
    ("table", "possible"),
    [(BARE, {TableType.APPEND, TableType.CHANGELOG}), (FULL, set(TableType) - {TableType.HISTORY})],
)
def test_what_can_be_done_without_a_key(table: SourceTable, possible: set) -> None:
    assert {one for one in TableType if not keyless.why_not(table, TableConfig(type=one))} == possible
    assert keyless.has_only_inserts(table) == (table is BARE)


def test_the_map_may_name_a_key_of_a_table_with_full_identity() -> None:
    keyed = keyless.with_key(FULL, TableConfig(key=("n",)))
    assert keyed.relation.key == ("n",)
    assert keyless.why_not(FULL, TableConfig(type=TableType.HISTORY, key=("n",))) == ""
    assert keyless.with_key(BARE, TableConfig(key=("n",))) is BARE
    assert keyless.with_key(FULL, TableConfig(key=("nothing",))) is FULL


def test_a_clone_without_key_takes_expressions_but_no_key_of_theirs() -> None:
    assert keyless.why_not(FULL, TableConfig(filter="n > 1")) == ""
    assert keyless.why_not(FULL, TableConfig(set={"m": "n"})) == ""
    told = keyless.why_not(FULL, TableConfig(set={"m": "n"}, key=("m",)))
    assert told == "`key` names columns of `set`, which have to come from a key: it has no primary key; mend it"
