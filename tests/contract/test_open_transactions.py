"""Large transactions come in parts; between them a table is looked at, changed by others, and fails to be read."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Iterator

import pytest

from kuvasz.errors import LakeError, TableStuck
from kuvasz.lake.commit import lanes
from kuvasz.lake.files.commit import TableCommit
from kuvasz.lake.jvm.iceberg_table import IcebergTable
from kuvasz.lake.table.table_index import TableIndex
from kuvasz.lake.table.write_era import WriteEra
from kuvasz.model import Column, PgType, Relation, ReplicaIdentity, TableType
from kuvasz.ports import Failure
from tests.support.changes import ITEMS, TARGET, Sender, delete, feed, insert, target, update, work
from tests.support.lake import LakeFolder
from tests.support.wires import message
from tests.support.worlds import IcebergWorld

pytestmark = pytest.mark.spark

BARE = dataclasses.replace(
    ITEMS, identity=ReplicaIdentity.FULL, columns=tuple(dataclasses.replace(c, is_key=False) for c in ITEMS.columns)
)
NOTE = Column(name="note", pg_type=PgType(oid=25, name="text"))


@pytest.fixture
def world(lake_folder: LakeFolder) -> Iterator[IcebergWorld]:
    made = IcebergWorld(lake_folder)
    yield made
    made.lake.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "_FIRST_WAIT_S", 0.01)


def without(key: int, n: object = 0, body: object = "b") -> bytes:
    """A DELETE of a row without a key."""
    return message("D", old=[str(value).encode() for value in (key, n, body)], old_tag="O")


def bare(world: IcebergWorld, *sources: str, relation: Relation = BARE) -> None:
    for source in sources:
        world.lake.prepare(target(), feed(source), relation)
        world.copy(source, (1, 0, "b"), (2, 0, "b"), (3, 0, source), relation=relation)


def rows(world: IcebergWorld) -> list[tuple[str, int]]:
    return sorted((row["sid"], row["id"]) for row in world.table(TARGET).to_pylist())


def numbered(relation: Relation) -> Relation:
    """The relation as a look at the catalog has it."""
    columns = tuple(dataclasses.replace(column, attnum=place) for place, column in enumerate(relation.columns, 1))
    return dataclasses.replace(relation, columns=columns)


def test_a_look_at_another_source_leaves_a_large_transaction_what_it_has(world: IcebergWorld) -> None:
    bare(world, "us", "eu", "ap")
    eu, us = Sender("eu", BARE), Sender("us", BARE)
    world.applied(work(us.one(insert(7), insert(7)), eu.one(insert(8), insert(8))))
    world.applied(work(us.one(without(7))))
    lsn = eu.commit_lsn()
    world.applied(work(eu.part(lsn, insert(4), without(1), without(8)), open_sources=["eu"]))
    world.lake.prepare(target(), feed("us"), BARE, is_streaming=True)
    world.applied(work(us.one(insert(9))))
    world.applied(work(eu.segment([(lsn, [insert(5), without(2), without(4)])])))
    us_rows = [("us", 1), ("us", 2), ("us", 3), ("us", 7), ("us", 9)]
    assert rows(world) == [("ap", 1), ("ap", 2), ("ap", 3), ("eu", 3), ("eu", 5), ("eu", 8), *us_rows]
    world.applied(work(eu.one(without(8), without(5)), us.one(without(7))))
    us_rows.remove(("us", 7))
    assert rows(world) == [("ap", 1), ("ap", 2), ("ap", 3), ("eu", 3), *us_rows]


def test_rows_that_are_known_by_other_columns_now_come_again(world: IcebergWorld) -> None:
    bare(world, "us", "eu")
    eu = Sender("eu", BARE)
    lsn = eu.commit_lsn()
    parts = [insert(4), without(1)], [without(4), without(2)]
    world.applied(work(eu.part(lsn, *parts[0]), open_sources=["eu"]))
    wider = dataclasses.replace(BARE, columns=(*BARE.columns, NOTE))
    world.lake.prepare(target(), feed("us"), wider)
    (failure,) = world.apply(work(eu.segment([(lsn, parts[1])])))
    assert isinstance(failure, Failure)
    assert isinstance(failure.error, LakeError), "nobody has to do anything: it is tried again"
    assert rows(world) == [(sid, key) for sid in ("eu", "us") for key in (1, 2, 3)]
    world.lake.resume(TARGET, world.lake.failure(TARGET, "eu"))
    world.applied(work(eu.segment([(lsn, [*parts[0], *parts[1]])]), abandoned=["eu"]))
    assert rows(world) == [("eu", 3), ("us", 1), ("us", 2), ("us", 3)]
    # The same for what was written and not committed.
    written = world.lake.write([work(eu.one(without(3, 0, "eu")))])
    widest = dataclasses.replace(wider, columns=(*wider.columns, dataclasses.replace(NOTE, name="more")))
    world.lake.prepare(target(), feed("us"), widest)
    (failure,) = world.lake.commit(written)
    assert isinstance(failure, Failure)
    assert isinstance(failure.error, LakeError)


@pytest.mark.parametrize(
    "table_type", [one if one is TableType.CLONE else pytest.param(one, marks=pytest.mark.slow) for one in TableType]
)
def test_a_large_transaction_over_a_look_that_fails(
    world: IcebergWorld, monkeypatch: pytest.MonkeyPatch, table_type: TableType
) -> None:
    """Someone else commits, and the first time the table cannot be read again."""
    for source in ("us", "eu", "ap"):
        world.lake.prepare(target(table_type=table_type), feed(source), ITEMS)
        world.copy(source, *((key, 0, "b") for key in range(1, 4)))
    eu, us = Sender("eu"), Sender("us")
    for key in (6, 7):
        world.applied(work(us.one(insert(key)), eu.one(insert(key))))
    lsn = eu.commit_lsn()
    world.applied(work(eu.part(lsn, insert(4), update(1, 1), delete(6)), open_sources=["eu"]))
    someone_appends(world)
    failing(monkeypatch, IcebergTable, "live_files", 2)
    world.applied(work(us.one(insert(9), delete(7))))
    world.applied(work(eu.segment([(lsn, [insert(5), update(4, 1), delete(7), update(2, 2)])])))
    world.applied(work(eu.one(update(2, 3), delete(5)), us.one(update(9, 1))))
    expected = {
        TableType.CLONE: ["ap-1-0", "ap-2-0", "ap-3-0", "eu-1-1", "eu-2-3", "eu-3-0", "eu-4-1", "us-1-0", "us-2-0",
                          "us-3-0", "us-6-0", "us-9-1"],
        TableType.HISTORY: ["ap-1-0", "ap-2-0", "ap-3-0", "eu-1-1", "eu-2-3", "eu-3-0", "eu-4-1", "us-1-0", "us-2-0",
                            "us-3-0", "us-6-0", "us-9-1"],
    }  # fmt: skip
    found = [row for row in world.table(TARGET).to_pylist() if row["sid"] != "xx"]
    if table_type in expected:
        if table_type is TableType.HISTORY:
            found = [row for row in found if row["kvsz_end"].year == 9999]
        assert sorted(f"{row['sid']}-{row['id']}-{row['n']}" for row in found) == expected[table_type]
    else:
        counts = {sid: sum(row["sid"] == sid for row in found) for sid in ("ap", "eu", "us")}
        deletes = 1 if table_type is TableType.CHANGELOG else 0
        assert counts == {"ap": 3, "eu": 11 + 3 * deletes, "us": 7 + deletes}


def test_files_of_a_commit_stay_when_the_table_cannot_be_read_behind_it(
    world: IcebergWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another commit came between, ours is there, and the look at both fails."""
    world.prepare("eu")
    eu = Sender()
    world.applied(work(eu.one(insert(1), insert(2))))
    real = IcebergTable.commit

    def commit(table: IcebergTable, commit: TableCommit) -> tuple[int | None, int | None]:
        monkeypatch.setattr(IcebergTable, "commit", real)
        world.lake.engine.catalog.load(TARGET).touch({"by": "someone else"})
        failing(monkeypatch, IcebergTable, "live_files", 2)
        return real(table, commit)

    monkeypatch.setattr(IcebergTable, "commit", commit)
    world.applied(work(eu.one(update(1, 5), delete(2), insert(3))))
    world.applied(work(eu.one(update(3, 5), update(1, 6))))
    assert world.of("eu") == {1: (6, "b"), 3: (5, "b")}


def someone_appends(world: IcebergWorld) -> None:
    """Another engine adds a row of a source that is not ours."""
    table = world.iceberg()
    columns = [field.name for field in table.schema().fields]
    known = {"sid": "'xx'", "id": "99L", "n": "0", "body": "'b'"}
    values = ", ".join(
        known.get(name) or ("false" if name.endswith("deleted") else "NULL" if name.startswith("_old") else "now()"
                            if "kvsz" in name or name.endswith("ts") else "'I'" if name == "_op" else "1L")
        for name in columns
    )  # fmt: skip
    world.sql(f"INSERT INTO {world.catalog}.{TARGET} SELECT {values}")


def failing(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, times: int) -> None:
    """Have the store refuse a method so many times."""
    real, left = getattr(owner, name), [times]

    def call(*arguments: object, **options: object) -> object:
        if left[0]:
            left[0] -= 1
            raise LakeError("table shop.items: the store is down")
        return real(*arguments, **options)

    monkeypatch.setattr(owner, name, call)


def test_a_table_that_was_given_up_begins_a_large_transaction_again(world: IcebergWorld) -> None:
    """Its commit hung, and was made in the end: nobody told the table that its source begins again."""
    bare(world, "eu")
    eu = Sender("eu", BARE)
    lsn = eu.commit_lsn()
    world.applied(work(eu.part(lsn, insert(4)), open_sources=["eu"]))
    world.lake._tables.loaded[TARGET].era = WriteEra(accepted={}, error=TableStuck("no answer"))
    assert world.apply(work(abandoned=["eu"])) == []
    world.lake.resume(TARGET, world.lake.failure(TARGET, "eu"))
    world.applied(work(eu.part(lsn, insert(4)), open_sources=["eu"]))
    world.applied(work(eu.segment([(lsn, [insert(5)])])))
    assert rows(world) == [("eu", 1), ("eu", 2), ("eu", 3), ("eu", 4), ("eu", 5)]


def test_a_copy_that_is_committed_keeps_its_files_though_the_index_finds_no_room(
    world: IcebergWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.prepare("eu")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(TableIndex, "note", refuse)
        with pytest.raises(LakeError, match="cannot be kept"):
            world.copy("eu", (1, 0, "b"), (2, 0, "b"), lsn=2000)
    assert rows(world) == [("eu", 1), ("eu", 2)]
    world.copy("eu", (1, 0, "b"), (3, 0, "b"), lsn=3000)
    assert rows(world) == [("eu", 1), ("eu", 3)]
