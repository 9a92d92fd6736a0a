from __future__ import annotations

import dataclasses

import pytest

from kuvasz.model import ReplicaIdentity, TableName
from kuvasz.source.catalog.table import SourceTable
from tests.support.changes import ITEMS
from tests.support.scene import CATALOG


def table(*, key: tuple[str, ...], identity: ReplicaIdentity, can_update: bool = True) -> SourceTable:
    columns = tuple(dataclasses.replace(column, is_key=column.name in key) for column in ITEMS.columns)
    relation = dataclasses.replace(ITEMS, columns=columns, identity=identity)
    return dataclasses.replace(CATALOG, relation=relation, can_update=can_update)


def test_its_bytes_are_those_of_its_pages_and_of_what_lies_beside_them() -> None:
    assert dataclasses.replace(CATALOG, pages=3, page_bytes=8192, toast_bytes=100).bytes == 3 * 8192 + 100
    assert dataclasses.replace(CATALOG, pages=None).bytes is None, "not asked"


def test_its_name_is_that_of_its_relation() -> None:
    named = dataclasses.replace(ITEMS, table=TableName(schema="a", name="b"))
    assert dataclasses.replace(CATALOG, relation=named).table == TableName(schema="a", name="b")


@pytest.mark.parametrize(
    ("key", "identity", "can_update", "is_whole"),
    [
        ((), ReplicaIdentity.FULL, True, True),
        (("id",), ReplicaIdentity.FULL, True, False),
        ((), ReplicaIdentity.DEFAULT, True, False),
        ((), ReplicaIdentity.FULL, False, False),
    ],
)
def test_rows_are_matched_as_a_whole_without_a_key_under_full(
    key: tuple[str, ...], identity: ReplicaIdentity, *, can_update: bool, is_whole: bool
) -> None:
    assert table(key=key, identity=identity, can_update=can_update).is_whole_row is is_whole
