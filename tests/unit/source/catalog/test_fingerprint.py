from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kuvasz.model import ReplicaIdentity, TableName, Uniqueness
from kuvasz.source.catalog import fingerprint
from kuvasz.source.catalog.table import Ancestor, Leaf, SourceTable, TableKind
from tests.support.changes import ITEMS
from tests.support.scene import CATALOG

LEAF = Leaf(oid=8, table=TableName(schema="public", name="p"), pages=1, page_bytes=8192, toast_bytes=0,
            row_estimate=None, file=80)  # fmt: skip
TABLE = dataclasses.replace(CATALOG, kind=TableKind.PARTITIONED, leaves=(LEAF,))


def with_leaf(**facts: Any) -> SourceTable:
    return dataclasses.replace(TABLE, leaves=(dataclasses.replace(LEAF, **facts),))


@pytest.mark.parametrize(
    "now",
    [
        dataclasses.replace(TABLE, pages=9, toast_bytes=5, row_estimate=70),
        dataclasses.replace(TABLE, can_select=True, is_owned=True),
        with_leaf(pages=9, toast_bytes=5, row_estimate=70),
    ],
)
def test_what_changes_with_every_row_or_with_rights_is_left_out(now: SourceTable) -> None:
    assert fingerprint.of(now) == fingerprint.of(TABLE)


@pytest.mark.parametrize(
    "now",
    [
        dataclasses.replace(TABLE, relation=dataclasses.replace(ITEMS, columns=ITEMS.columns[:1])),
        dataclasses.replace(TABLE, relation=dataclasses.replace(ITEMS, oid=ITEMS.oid + 1)),
        dataclasses.replace(TABLE, relation=dataclasses.replace(ITEMS, uniqueness=Uniqueness(3, 2, 1))),
        dataclasses.replace(TABLE, primary_key=("other",)),
        dataclasses.replace(TABLE, identity_index=("id",)),
        dataclasses.replace(TABLE, can_update=False),
        dataclasses.replace(TABLE, why_unsupported="it is a view"),
        dataclasses.replace(TABLE, generated=("total",)),
        dataclasses.replace(TABLE, leaves=()),
        dataclasses.replace(TABLE, ancestors=(Ancestor(oid=3, table=LEAF.table),)),
        with_leaf(oid=9),
        with_leaf(table=TableName(schema="public", name="q")),
        with_leaf(file=81),
        with_leaf(identity=ReplicaIdentity.FULL),
        with_leaf(is_logged=False),
    ],
)
def test_whatever_a_copy_depends_on_is_seen(now: SourceTable) -> None:
    assert fingerprint.of(now) != fingerprint.of(TABLE)
