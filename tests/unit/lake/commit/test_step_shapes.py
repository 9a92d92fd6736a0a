"""Which chunks of several sources may share a file, and whose the rows of a bundle are."""

from __future__ import annotations

import dataclasses

import pytest

from kuvasz.lake.commit import chunks
from kuvasz.lake.commit.bundles import Bundle
from kuvasz.lake.commit.chunks import Chunk
from kuvasz.lake.commit.step_shapes import StepShapes
from kuvasz.model import Relation, TableType
from tests.support.changes import ITEMS, Sender, feed, insert, target
from tests.support.local_lake import LocalWorld

#: The same columns in another order.
TURNED = dataclasses.replace(ITEMS, columns=ITEMS.columns[::-1])


def chunk(source: str, found: Relation = ITEMS, keys: int = 2) -> Chunk:
    segment = Sender(source, found).one(*(insert(key) for key in range(keys)))
    (step,) = chunks.cut([segment], {}, 1 << 20).steps
    assert isinstance(step, Chunk)
    return step


def shapes(world: LocalWorld, table_type: TableType = TableType.CLONE, *, has_sid: bool = True) -> StepShapes:
    wanted = target(table_type=table_type, has_sid=has_sid)
    for source in ("eu", "us") if has_sid else ("eu",):
        world.lake.prepare(wanted, feed(source, sid="" if has_sid else None), ITEMS)
    return StepShapes(world.loaded(), world.lake._tables.feeds)


@pytest.mark.parametrize("table_type", [TableType.CLONE, TableType.APPEND, TableType.CHANGELOG])
def test_chunks_of_sources_whose_columns_are_alike_may_be_put_together(
    local_world: LocalWorld, table_type: TableType
) -> None:
    found = shapes(local_world, table_type)
    assert found.likeness(chunk("eu")) is not None
    assert found.likeness(chunk("eu")) == found.likeness(chunk("us"))
    assert found.likeness(chunk("us", TURNED)) != found.likeness(chunk("eu"))


@pytest.mark.parametrize("facts", [{"table_type": TableType.HISTORY}, {"has_sid": False}])
def test_chunks_stay_alone_where_a_file_is_of_one_source(local_world: LocalWorld, facts: dict) -> None:
    assert shapes(local_world, **facts).likeness(chunk("eu")) is None


def test_a_bundle_knows_whose_its_rows_are(local_world: LocalWorld) -> None:
    found = shapes(local_world)
    shape, owners = found.of(Bundle(chunks=(chunk("eu", keys=2), chunk("us", keys=3))))
    assert [(one.source, one.sid, one.end) for one in owners] == [("eu", "eu", 2), ("us", "us", 5)]
    assert shape is found.of(Bundle(chunks=(chunk("us"), chunk("eu"))))[0]
    alone, none = found.of(chunk("us"))
    assert (alone.sid, none) == ("us", ())
