"""What the stream tells of partitions: which of its messages are remembered, and which say nothing."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.model import Column, Relation, ReplicaIdentity, TableName
from kuvasz.state.tables import State
from kuvasz.sync.watch.partition_messages import PartitionMessages
from tests.support.changes import ITEMS
from tests.support.scene import Scene

POSITION, XID = 1000, 7
ROOT = dataclasses.replace(ITEMS, oid=50)


def partition(oid: int, *columns: Column) -> Relation:
    return dataclasses.replace(
        ITEMS, oid=oid, table=TableName(schema="public", name=f"p{oid}"), columns=columns or ITEMS.columns
    )


class Notes:
    """What is remembered, and what is followed."""

    def __init__(self) -> None:
        self.all: list[tuple[Any, ...]] = []
        self.followed: list[tuple[int, int, int]] = []

    def strayed(self, _: object, *facts: object) -> None:
        self.all.append(("strayed", *facts))

    def told(self, _: object, *facts: object) -> None:
        self.all.append(("told", *facts))

    def truncated(self, _: object, *facts: object) -> None:
        self.all.append(("truncated", *facts))

    def follow(self, relation: Relation, commit_lsn: int, xid: int) -> Relation:
        self.followed.append((relation.oid, commit_lsn, xid))
        return relation


class World(Scene):
    """`items` is partitioned, and the lake has it up to `POSITION`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.notes = notes = Notes()
        self.rewritten: list[tuple[int, int]] = []  #: OID and transaction of each TRUNCATE
        remembers: Any = notes
        rewrites: Any = SimpleNamespace(truncated=lambda relation, xid: self.rewritten.append((relation.oid, xid)))
        self.messages = PartitionMessages(self.source_tables, remembers, remembers, rewrites, self.context.troubles)
        self.copy(self.items, POSITION)
        self.messages.know_roots({50: (self.items,)})
        self.messages.know_leaves({50: (self.items,)}, {50: [10, 11]})

    @property
    def told(self) -> list[tuple[Any, ...]]:
        return self.notes.all

    def describe(self, *relations: Relation, at: int = 5000) -> None:
        for relation in relations:
            assert self.messages.follow(relation, at, XID) is relation


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_partition_is_described_right_behind_its_root(world: World) -> None:
    world.describe(ROOT, partition(12))
    assert world.told == [("told", 12, "public.p12", 5000)]
    assert world.notes.followed == [(50, 5000, XID), (12, 5000, XID)], "each relation is followed all the same"


def test_what_comes_later_is_described_for_itself(world: World) -> None:
    world.describe(ROOT, dataclasses.replace(ITEMS, oid=99, columns=ITEMS.columns[:1]), partition(12))
    assert world.told == []


def test_another_table_has_other_columns_than_the_root(world: World) -> None:
    world.describe(ROOT, partition(12, *ITEMS.columns[:1]))
    assert world.told == []


def test_rows_of_a_known_partition_under_its_own_name_are_strays(world: World) -> None:
    world.describe(partition(10))
    world.describe(partition(12))
    assert world.told == [("strayed", 10, "public.p10", 5000)], "of a table that nobody knows, nothing is to be said"


@pytest.mark.parametrize(("at", "is_news"), [(POSITION - 1, False), (POSITION, True)])
def test_what_the_lake_has_is_no_news(world: World, at: int, is_news: bool) -> None:
    world.describe(partition(10), ROOT, partition(12), at=at)
    world.messages.truncated(ROOT, at, XID)
    assert [what for what, *_ in world.told] == (["strayed", "told", "truncated"] if is_news else [])


def test_a_table_without_a_position_lacks_everything(world: World) -> None:
    world.lake.forget("shop.items", world.source.name)
    world.describe(partition(10), at=1)
    assert world.told == [("strayed", 10, "public.p10", 1)]


def test_a_truncate_counts_of_partitioned_tables_alone(world: World) -> None:
    world.messages.truncated(dataclasses.replace(ITEMS, oid=99), 5000, XID)
    world.messages.truncated(ROOT, 5000, XID)
    assert world.told == [("truncated", XID, 5000)]


def test_partitions_are_those_of_the_last_look_at_their_root(world: World) -> None:
    world.messages.know_roots({60: (world.others,)})
    world.messages.know_leaves({60: (world.others,)}, {60: [20]})
    world.messages.know_leaves({50: (world.items,)}, {50: [11]})
    world.describe(partition(10), partition(11), partition(20))
    assert [oid for _, oid, *_ in world.told] == [11, 20]


def identified(relation: Relation, *names: str, identity: ReplicaIdentity = ReplicaIdentity.DEFAULT) -> Relation:
    columns = tuple(dataclasses.replace(one, is_key=one.name in names) for one in relation.columns)
    return dataclasses.replace(relation, columns=columns, identity=identity)


ALL = [column.name for column in ITEMS.columns]
FULL = {"identity": ReplicaIdentity.FULL}


@pytest.mark.parametrize(
    ("root", "leaf", "is_due"),
    [
        (identified(ROOT, "id"), identified(partition(10), "id"), False),
        (identified(ROOT, "id"), identified(partition(10), "n", identity=ReplicaIdentity.INDEX), True),
        (identified(ROOT, "id"), identified(partition(10), *ALL, **FULL), False),
        (identified(ROOT, *ALL, **FULL), identified(partition(10), "id"), True),
        (identified(ROOT, "id"), identified(partition(10), identity=ReplicaIdentity.NOTHING), False),
        (identified(ROOT), identified(partition(10), "id"), False),
    ],
    ids=["alike", "another index", "all of the row", "less than the root's", "none", "INSERTs alone"],
)
def test_a_partition_whose_old_rows_are_told_by_other_columns(
    world: World, root: Relation, leaf: Relation, is_due: bool
) -> None:
    """Nobody would find them by these: what it sends of that time is not applied."""
    world.source_tables.set(world.items, State.STREAMING)
    world.describe(root, leaf, at=POSITION - 1)
    assert not world.source_tables.look(world.items).is_resync_due, "the lake has that"
    world.describe(root, leaf)
    assert world.source_tables.look(world.items).is_resync_due is is_due
    assert world.source_tables.is_streaming(world.items) is not is_due
