"""Notes of sources in the properties of a real table: few bytes, and those of the version before are taken over."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kuvasz.evolve import column_notes, known
from kuvasz.lake.format import rule, source_positions
from kuvasz.lake.jvm.iceberg_table import IcebergTable
from kuvasz.lake.table.notes import PUBLISHED_PREFIX
from kuvasz.model import Relation, Seen, SourcePosition, TableName, Uniqueness
from tests.support import earlier_notes
from tests.support.changes import TARGET, feed, target
from tests.support.lake import LakeFolder
from tests.support.source_table import INT, TEXT, SourceTable
from tests.support.worlds import IcebergWorld

pytestmark = pytest.mark.spark

NOTES = (column_notes.PREFIX, column_notes.SHAPE_PREFIX, source_positions.PREFIX)

#: What a commit writes anew of each source that is noted: names of four properties included, indented as they are.
MOST_BYTES = 310

#: The same of its position alone.
MOST_POSITION_BYTES = 90


@pytest.fixture
def world(lake_folder: LakeFolder) -> Iterator[IcebergWorld]:
    made = IcebergWorld(lake_folder)
    yield made
    made.lake.close()


def catalog(source: SourceTable) -> Relation:
    return dataclasses.replace(source.catalog(), table=TableName(schema="public", name="items"))


def properties(world: IcebergWorld) -> dict[str, str]:
    return {name: text for name, text in world.iceberg().properties.items() if name.startswith(NOTES)}


def shapes(world: IcebergWorld) -> set[str]:
    return {name for name in properties(world) if name.startswith(column_notes.SHAPE_PREFIX)}


def follow(world: IcebergWorld, **sources: SourceTable) -> None:
    """Have the lake begin with sources, as a start does."""
    for name, source in sources.items():
        relation = catalog(source)
        world.lake.prepare(target(), feed(name), relation)
        if name not in world.lake.positions(TARGET):
            world.copy(name, relation=relation)


@pytest.fixture
def again(world: IcebergWorld) -> Callable[[], IcebergWorld]:
    """Have another kuvasz begin with the same lake."""

    def begin() -> IcebergWorld:
        world.lake.close()
        world.__init__(world._folder)  # type: ignore[misc]
        return world

    return begin


def test_what_the_version_before_noted_is_read_and_written_anew(
    world: IcebergWorld, again: Callable[[], IcebergWorld]
) -> None:
    eu, us = SourceTable(), SourceTable()
    eu.add("x")
    follow(world, eu=eu, us=us)
    table = world.lake.table(TARGET)
    positions = dict(world.lake.positions(TARGET))
    noted = dict(table.columns.known)
    assert noted.keys() == {"eu", "us"}
    old = {column_notes.PREFIX + name: earlier_notes.columns(one) for name, one in noted.items()}
    old |= {source_positions.PREFIX + name: earlier_notes.position(one) for name, one in positions.items()}
    table.table.set_properties({**old, **dict.fromkeys(shapes(world))})
    assert properties(world) == old
    again()
    assert world.lake.stored(TARGET) == positions
    follow(world, eu=eu)
    table = world.lake.table(TARGET)
    assert (dict(table.columns.known), dict(table.positions)) == (noted, positions)
    now = properties(world)
    assert column_notes.earlier(now) == set(), "of all sources, at the start of the first"
    assert column_notes.parse(now, TARGET) == noted
    assert len(shapes(world)) == 2
    moved = dataclasses.replace(positions["us"], lsn=5000)
    table.commits.advance({"us": moved})
    assert properties(world)[source_positions.PREFIX + "us"] == source_positions.render(moved)
    assert world.lake.stored(TARGET) == positions | {"us": moved}, (
        "of one source as it is now, of one as it was before"
    )


def test_a_change_of_one_source_leaves_the_shape_of_the_others_and_no_other(world: IcebergWorld) -> None:
    eu, us = SourceTable(), SourceTable()
    follow(world, eu=eu, us=us)
    (alike,) = shapes(world)
    for number, change in enumerate((lambda: eu.add("x"), lambda: eu.alter(4, name="y"), lambda: eu.drop(4))):
        change()
        eu.lsn += 10
        world.lake.prepare(target(), feed("eu"), catalog(eu), is_streaming=True)
        found = shapes(world)
        assert (alike in found, len(found)) == (True, 2), number
    assert column_notes.parse(properties(world), TARGET) == dict(world.lake.table(TARGET).columns.known)
    world.lake.forget(TARGET, "eu", is_gone=True)
    assert shapes(world) == {alike}
    world.lake.forget(TARGET, "us", is_gone=True)
    assert properties(world) == {}


def test_no_summary_repeats_what_columns_are(world: IcebergWorld) -> None:
    follow(world, eu=SourceTable(), us=SourceTable())
    for snapshot in world.iceberg().metadata.snapshots:
        assert snapshot.summary is not None
        names = snapshot.summary.additional_properties
        assert not [name for name in names if name.startswith(NOTES[:2])]
        assert [name for name in names if name.startswith(source_positions.PREFIX)]


def test_sources_that_are_alike_cost_a_commit_few_bytes(world: IcebergWorld) -> None:
    world.prepare("eu")
    table = world.lake.table(TARGET).table
    table.set_properties({"empty": "x"})
    before = _metadata_bytes(table)
    noted = [_noted(number) for number in range(200)]
    table.set_properties({name: text for one in noted for name, text in one.items()})
    each = (_metadata_bytes(table) - before) / len(noted)
    assert len(shapes(world) & {name for one in noted for name in one}) == 1
    assert each <= MOST_BYTES
    dropped = [name for one in noted for name in one if name.startswith(source_positions.PREFIX)]
    size = _metadata_bytes(table)
    table.remove_properties(dropped)
    assert (size - _metadata_bytes(table)) / len(noted) <= MOST_POSITION_BYTES


def _noted(number: int) -> dict[str, str]:
    """What is noted of a source's table of 50 columns."""
    name, first = f"shop_{number:04}", 16_400 + 31 * number
    source = SourceTable(*((f"column_{n}", (INT, TEXT)[n % 2]) for n in range(50)), key=("column_0",))
    source.oid = source.file = first
    source.uniqueness = Uniqueness(first + 5, first + 4, first + 4)
    source.versions = dict.fromkeys(source.live, 740 + number)
    at = (1 << 32) + 98_765_432 * number
    relation = dataclasses.replace(source.catalog(), seen=Seen(lsn=at, until=at + 56))
    position = SourcePosition(
        lsn=at, commit_lsn=at - 456, rows=3, system_id="7361234567890123456", history=1, xid=742_817,
        commit_us=817_000_000_000_000 + at,
    )  # fmt: skip
    return {
        **column_notes.render(name, known.of(relation, {n: n for n in source.live})),
        source_positions.PREFIX + name: source_positions.render(position),
        rule.PREFIX + name: "-.-.-.-.error",
        PUBLISHED_PREFIX + name: f"{first + 9}:742, table {first + 10}:742",
    }


def _metadata_bytes(table: IcebergTable) -> int:
    folder = Path(table.location.removeprefix("file://").removeprefix("file:")) / "metadata"
    return max(folder.glob("*.metadata.json"), key=lambda path: path.name).stat().st_size
