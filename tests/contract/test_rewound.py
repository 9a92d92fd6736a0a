"""Someone sets a table back in the lake: a position is true only in what descends from its snapshot."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator

import pytest

from kuvasz import failpoints
from kuvasz.errors import KuvaszError, LakeRewound, OutcomeUnknown
from kuvasz.lake.files.commit import TableCommit
from kuvasz.lake.iceberg.tables import read_index
from kuvasz.lake.jvm.iceberg_table import IcebergTable
from kuvasz.model import SourcePosition
from kuvasz.ports import Failure
from tests.support.changes import ITEMS, TARGET, Lines, Sender, delete, feed, insert, target, update, work
from tests.support.lake import LakeFolder
from tests.support.worlds import IcebergWorld

pytestmark = pytest.mark.spark


@pytest.fixture
def world(lake_folder: LakeFolder) -> Iterator[IcebergWorld]:
    made = IcebergWorld(lake_folder)
    yield made
    made.lake.close()


def fill(world: IcebergWorld) -> tuple[Sender, int, str]:
    """Two sources, and of eu another commit; return also the snapshot and the metadata before that."""
    eu = Sender("eu")
    world.prepare("eu", "us")
    world.applied(work(eu.one(insert(1), insert(2)), Sender("us").one(insert(1))))
    before, metadata = handle(world).currentSnapshot().snapshotId(), metadata_of(world)
    world.applied(work(eu.one(insert(3), delete(2), update(1, 5))))
    return eu, int(before), metadata


def handle(world: IcebergWorld) -> object:
    return world.lake.engine.catalog.load(TARGET)._handle.java


def metadata_of(world: IcebergWorld) -> str:
    return str(handle(world).operations().current().metadataFileLocation())


def roll_back(world: IcebergWorld, snapshot: int, _: str) -> None:
    handle(world).manageSnapshots().rollbackTo(snapshot).commit()


def roll_back_and_append(world: IcebergWorld, snapshot: int, _: str) -> None:
    roll_back(world, snapshot, "")
    world.sql(f"INSERT INTO {world.catalog}.{TARGET} VALUES ('xx', 9L, 0, 'b')")


def replace(world: IcebergWorld, *_: object) -> None:
    name = f"{world.catalog}.{TARGET}"
    world.sql(f"CREATE OR REPLACE TABLE {name} USING iceberg AS SELECT * FROM {name} WHERE sid = 'us'")


def restore(world: IcebergWorld, _: int, metadata: str) -> None:
    """As with an older catalog: it agrees with itself."""
    with contextlib.closing(sqlite3.connect(world._folder.folder / "catalog.db")) as catalog, catalog:
        catalog.execute("UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = 'items'", (metadata,))


@pytest.mark.parametrize(
    "how",
    [roll_back, replace, *(pytest.param(how, marks=pytest.mark.slow) for how in (roll_back_and_append, restore))],
)
def test_a_table_that_was_set_back_stops_until_it_is_copied(
    world: IcebergWorld, lake_folder: LakeFolder, how: Callable[[IcebergWorld, int, str], None]
) -> None:
    eu, snapshot, metadata = fill(world)
    how(world, snapshot, metadata)
    (failure,) = world.apply(work(eu.one(insert(4))))
    assert isinstance(failure, Failure)
    assert isinstance(failure.error, LakeRewound), failure
    assert "someone set the table back" in failure.error.message
    world.lake.resume(TARGET, world.lake.failure(TARGET, "eu"))
    with pytest.raises(LakeRewound):
        world.lake.prepare(target(), feed("eu"), ITEMS)
    world.lake.forget(TARGET, "eu")
    world.lake.prepare(target(), feed("eu"), ITEMS)
    world.copy("eu", (1, 5, "b"), (3, 0, "b"), (4, 0, "b"), lsn=5000)
    assert world.of("eu") == {1: (5, "b"), 3: (0, "b"), 4: (0, "b")}
    # A commit of one source does not hide that the other one's rows may be missing.
    world.lake.close()
    again = IcebergWorld(lake_folder)
    again.lake.prepare(target(), feed("eu"), ITEMS)
    if how is restore:  # of us nothing was lost
        again.lake.prepare(target(), feed("us"), ITEMS)
    else:
        with pytest.raises(LakeRewound):
            again.lake.prepare(target(), feed("us"), ITEMS)
    again.applied(work(Sender("eu", start=6000).one(update(1, 6), delete(3))))
    assert again.of("eu") == {1: (6, "b"), 4: (0, "b")}
    again.lake.close()


@pytest.mark.parametrize(
    "how",
    [roll_back_and_append, restore, *(pytest.param(how, marks=pytest.mark.slow) for how in (roll_back, replace))],
)
def test_the_next_start_finds_it(
    world: IcebergWorld, lake_folder: LakeFolder, how: Callable[[IcebergWorld, int, str], None]
) -> None:
    _, snapshot, metadata = fill(world)
    world.lake.close()
    how(world, snapshot, metadata)
    next_one = IcebergWorld(lake_folder)
    for _ in range(2):
        with pytest.raises(LakeRewound):
            next_one.lake.prepare(target(), feed("eu"), ITEMS)
    next_one.lake.forget(TARGET, "eu", to_repair=True)
    next_one.lake.prepare(target(), feed("eu"), ITEMS)
    assert next_one.lake.notes.gap(TARGET, "eu") is not None
    at = SourcePosition(lsn=9000, system_id="7001")
    rows = ((1, 5, "b"), (3, 0, "b"))
    next_one.lake.repair(feed("eu"), ITEMS, [Lines(rows)], at)
    assert next_one.of("eu") == {1: (5, "b"), 3: (0, "b")}
    next_one.applied(work(Sender("eu", start=9000).one(update(1, 6), delete(3), insert(2))))
    assert next_one.of("eu") == {1: (6, "b"), 2: (0, "b")}
    next_one.lake.close()


@pytest.mark.parametrize(
    ("how", "is_noticed"),
    [
        pytest.param(
            how, is_noticed, marks=() if is_noticed == (how is not roll_back_and_append) else pytest.mark.slow
        )
        for how in (roll_back, roll_back_and_append, restore)
        for is_noticed in (True, False)
    ],
)
def test_what_it_lacks_then_begins_behind_the_rows_that_are_there(
    world: IcebergWorld, how: Callable[[IcebergWorld, int, str], None], is_noticed: bool
) -> None:
    """The position in the properties is that of the rows which are gone."""
    eu, us = Sender("eu"), Sender("us")
    world.prepare("eu", "us")
    world.applied(work(eu.one(insert(1)), us.one(insert(1))))
    before, metadata = handle(world).currentSnapshot().snapshotId(), metadata_of(world)
    there = world.lake.positions(TARGET)["eu"]
    for key in (2, 3):
        world.applied(work(eu.one(insert(key)), us.one(insert(key))))
    how(world, before, metadata)
    if is_noticed:
        (failure, *_) = world.apply(work(eu.one(insert(4))))
        assert isinstance(failure.error, LakeRewound), failure
        world.lake.resume(TARGET, world.lake.failure(TARGET, "eu"))
    world.lake.forget(TARGET, "eu", to_repair=True)
    gap = world.lake.notes.gap(TARGET, "eu")
    assert gap is not None
    assert gap.from_lsn == there.lsn
    with pytest.raises(LakeRewound):
        world.lake.prepare(target(), feed("us"), ITEMS)


@pytest.mark.parametrize(
    "how", [roll_back_and_append, *(pytest.param(how, marks=pytest.mark.slow) for how in (roll_back, restore))]
)
def test_a_table_without_positions_that_is_set_back_while_it_is_compared(
    world: IcebergWorld, monkeypatch: pytest.MonkeyPatch, how: Callable[[IcebergWorld, int, str], None]
) -> None:
    eu = Sender("eu")
    world.prepare("eu")
    world.applied(work(eu.one(insert(1), insert(2))))
    snapshot, metadata = int(handle(world).currentSnapshot().snapshotId()), metadata_of(world)
    world.applied(work(eu.one(insert(3), delete(2), update(1, 5))))
    world.lake.forget(TARGET, "eu", to_repair=True)
    world.lake.prepare(target(), feed("eu"), ITEMS)
    hit, compared = failpoints.hit, []

    def once(point: str, error: type[Exception] | None = None) -> None:
        if point == "gap_compared":
            compared.append(point)
            if len(compared) == 1:
                how(world, snapshot, metadata)
        hit(point, error)

    monkeypatch.setattr(failpoints, "hit", once)
    at = SourcePosition(lsn=9000, system_id="7001")
    world.lake.repair(feed("eu"), ITEMS, [Lines(((1, 5, "b"), (3, 0, "b")))], at)
    assert len(compared) == 2
    assert world.of("eu") == {1: (5, "b"), 3: (0, "b")}
    world.applied(work(Sender("eu", start=9000).one(update(1, 6), delete(3), insert(2))))
    assert world.of("eu") == {1: (6, "b"), 2: (0, "b")}


@pytest.mark.parametrize("how", [roll_back, restore])
def test_a_table_without_positions_that_is_set_back_while_kuvasz_is_down(
    world: IcebergWorld, lake_folder: LakeFolder, how: Callable[[IcebergWorld, int, str], None]
) -> None:
    eu = Sender("eu")
    world.prepare("eu")
    world.applied(work(eu.one(insert(1), insert(2))))
    snapshot, metadata = int(handle(world).currentSnapshot().snapshotId()), metadata_of(world)
    world.applied(work(eu.one(insert(3), delete(2), update(1, 5))))
    world.lake.forget(TARGET, "eu", to_repair=True)
    world.lake.close()
    how(world, snapshot, metadata)
    next_one = IcebergWorld(lake_folder)
    next_one.lake.forget(TARGET, "eu", to_repair=True)
    next_one.lake.prepare(target(), feed("eu"), ITEMS)
    at = SourcePosition(lsn=9000, system_id="7001")
    next_one.lake.repair(feed("eu"), ITEMS, [Lines(((1, 0, "b"), (2, 0, "b")))], at)  # as the lake has them
    next_one.applied(work(Sender("eu", start=9000).one(update(1, 6), delete(2))))
    assert next_one.of("eu") == {1: (6, "b")}
    next_one.lake.close()


@pytest.mark.parametrize("is_loaded", [True, False])
def test_a_position_that_was_dropped_does_not_come_back(
    world: IcebergWorld, lake_folder: LakeFolder, *, is_loaded: bool
) -> None:
    """Its table left the map, or is copied again: what comes meanwhile is confirmed without it."""
    _, snapshot, _ = fill(world)
    metadata = metadata_of(world)
    if not is_loaded:
        world.lake.close()
        world = IcebergWorld(lake_folder)
    world.lake.forget(TARGET, "eu", to_repair=True)
    world.lake.close()
    restore(world, snapshot, metadata)
    next_one = IcebergWorld(lake_folder)
    for _ in range(2):
        with pytest.raises(LakeRewound, match=r"source eu, .* had been given up and is there again"):
            next_one.lake.prepare(target(), feed("eu"), ITEMS)
    next_one.lake.prepare(target(), feed("us"), ITEMS)
    next_one.lake.forget(TARGET, "eu", to_repair=True)
    next_one.lake.prepare(target(), feed("eu"), ITEMS)
    assert next_one.lake.notes.gap(TARGET, "eu") is not None
    next_one.lake.close()


def maintain(world: IcebergWorld) -> None:
    world.lake.maintenance.run(TARGET, full=True)


def another_source_begins_anew(world: IcebergWorld) -> None:
    world.lake.prepare(target(), feed("us"), ITEMS)


def another_source_is_copied(world: IcebergWorld) -> None:
    world.lake.forget(TARGET, "us")
    world.copy("us", (1, 0, "b"), lsn=9000)


def an_index_is_read_ahead(world: IcebergWorld) -> None:
    read_index(world.lake.table(TARGET))


@pytest.mark.parametrize(
    "who", [maintain, another_source_begins_anew, another_source_is_copied, an_index_is_read_ahead]
)
def test_whoever_sees_it_first_a_source_whose_rows_are_gone_stops(
    world: IcebergWorld, who: Callable[[IcebergWorld], None]
) -> None:
    eu, snapshot, _ = fill(world)
    roll_back(world, snapshot, "")
    with contextlib.suppress(KuvaszError):
        who(world)
    (outcome,) = world.apply(work(eu.one(insert(4))))
    assert isinstance(outcome, Failure)
    assert isinstance(outcome.error, LakeRewound)


def test_a_commit_that_was_rolled_back_before_it_was_looked_up(
    world: IcebergWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    eu, _, _ = fill(world)
    table = type(world.lake.table(TARGET).table)
    commit = table.commit

    def lost(self: IcebergTable, sent: TableCommit) -> None:
        before = self.snapshots.current_id
        commit(self, sent)
        assert before is not None
        roll_back(world, before, "")
        monkeypatch.setattr(table, "commit", commit)
        raise OutcomeUnknown("the answer is lost")

    monkeypatch.setattr(table, "commit", lost)
    (outcome,) = world.apply(work(eu.one(insert(4))))
    assert isinstance(outcome, Failure)
    assert isinstance(outcome.error, LakeRewound)


def test_what_others_commit_and_expire_is_no_rewind(world: IcebergWorld, lake_folder: LakeFolder) -> None:
    eu, _, _ = fill(world)
    for number in range(4):
        world.sql(f"INSERT INTO {world.catalog}.{TARGET} VALUES ('xx', {number}L, 0, 'b')")
    handle(world).expireSnapshots().expireOlderThan(2**53).retainLast(1).commit()
    world.applied(work(eu.one(insert(4))))
    for number in range(4):
        world.sql(f"INSERT INTO {world.catalog}.{TARGET} VALUES ('yy', {number}L, 0, 'b')")
    handle(world).expireSnapshots().expireOlderThan(2**53).retainLast(2).commit()
    world.lake.close()
    next_one = IcebergWorld(lake_folder)
    next_one.lake.prepare(target(), feed("eu"), ITEMS)
    next_one.applied(work(eu.one(insert(5))))
    assert next_one.of("eu").keys() == {1, 3, 4, 5}
    next_one.lake.close()


def test_an_index_from_before_it_was_set_back_is_believed_by_no_machine(
    world: IcebergWorld, lake_folder: LakeFolder
) -> None:
    """Another machine saw it, and mended the table; by this one's turn the snapshots that tell have expired."""
    eu = Sender("eu")
    world.prepare("eu")
    world.applied(work(eu.one(insert(1), insert(2))))
    snapshot = int(handle(world).currentSnapshot().snapshotId())
    world.applied(work(eu.one(insert(3), update(1, 5))))
    index = world.config.pipeline.state_folder / "index"
    world.lake.close()
    kept = shutil.copytree(index, lake_folder.folder / "index of another machine")
    roll_back(world, snapshot, "")
    other = IcebergWorld(lake_folder)
    with pytest.raises(LakeRewound):
        other.lake.prepare(target(), feed("eu"), ITEMS)
    other.lake.forget(TARGET, "eu", to_repair=True)
    other.lake.prepare(target(), feed("eu"), ITEMS)
    at = SourcePosition(lsn=9000, system_id="7001")
    other.lake.repair(feed("eu"), ITEMS, [Lines(((1, 0, "b"), (2, 0, "b")))], at)
    eu = Sender("eu", start=9000)
    for key in (7, 8):
        other.applied(work(eu.one(insert(key))))
    other.lake.close()
    handle(other).expireSnapshots().expireOlderThan(1 << 50).retainLast(1).commit()
    shutil.rmtree(index)
    shutil.copytree(kept, index)
    again = IcebergWorld(lake_folder)
    again.lake.prepare(target(), feed("eu"), ITEMS)
    again.applied(work(eu.one(update(1, 6))))
    found = sorted((row["id"], row["n"]) for row in again.table(TARGET).to_pylist() if row["sid"] == "eu")
    assert found == [(1, 6), (2, 0), (7, 0), (8, 0)]
    again.lake.close()
