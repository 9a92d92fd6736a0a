"""Keys read again from data files are those that were written."""

from __future__ import annotations

from collections import Counter

import pytest

from kuvasz.fold.keys import Keys
from kuvasz.lake.table.readers import Readers
from kuvasz.model import Relation, TableType
from tests.support.changes import ITEMS, Sender, delete, feed, insert, target, update, work
from tests.support.local_lake import LocalWorld
from tests.support.shapes import KEYLESS, pairs


def prepared(world: LocalWorld, relation: Relation = ITEMS, table_type: TableType = TableType.CLONE) -> Readers:
    for source in ("eu", "us"):
        world.lake.prepare(target(table_type=table_type), feed(source), relation)
        world.copy(source, relation=relation)
    return world.lake.engine.readers


@pytest.mark.parametrize("table_type", [TableType.CLONE, TableType.APPEND])
def test_every_row_is_where_the_index_has_it(local_world: LocalWorld, table_type: TableType) -> None:
    readers = prepared(local_world, table_type=table_type)
    local_world.applied(work(Sender().one(insert(1), insert(2)), Sender("us").one(insert(1))))
    table = local_world.loaded()
    files = [(entry.number, entry.path) for entry in table.index.files]
    found = list(readers.of(table.definition).keys(files))
    assert sum(len(keys) for _, keys in found) == 3
    for number, keys in found:
        numbers, rows = table.index.places.lookup(keys)
        assert numbers.tolist() == [number] * len(keys)
        assert rows.tolist() == list(range(len(keys)))


def test_rows_without_a_key_are_known_by_all_of_themselves(local_world: LocalWorld) -> None:
    readers = prepared(local_world, KEYLESS)
    eu = Sender("eu", KEYLESS)
    local_world.applied(work(eu.one(insert(1, 1), insert(1, 1), insert(1, 2))))
    table = local_world.loaded()
    files = [(entry.number, entry.path) for entry in table.index.files]
    ((_, keys),) = readers.of(table.definition).keys(files)
    assert sorted(Counter(pairs(keys)).values()) == [1, 2]


def test_open_versions_and_those_that_ended_deleted_are_told_apart(local_world: LocalWorld) -> None:
    readers = prepared(local_world, table_type=TableType.HISTORY)
    eu = Sender()
    local_world.applied(work(eu.one(insert(1, 1), insert(2, 2)), eu.one(update(1, 2), delete(2))))
    table = local_world.loaded()
    files = [(entry.number, entry.path) for entry in table.index.files]
    reader = readers.of(table.definition)

    def keys(*, are_open: bool) -> list[tuple[int, int]]:
        return pairs(Keys.concat([found for _, found, _ in reader.versions(files, are_open=are_open)]))

    every = set(pairs(Keys.concat([found for _, found in reader.keys(files)])))
    assert len(every) == 2
    assert (len(keys(are_open=True)), len(keys(are_open=False))) == (1, 1)
    assert set(keys(are_open=True)) | set(keys(are_open=False)) == every
