"""Rows of many small sources share data files; what happens to one source touches its own rows alone."""

from __future__ import annotations

import dataclasses
import shutil
from collections import Counter
from collections.abc import Iterator

import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo

from kuvasz.errors import TableError
from kuvasz.lake.executors.jobs import Jobs
from kuvasz.lake.maintenance.compaction_policy import Policy
from kuvasz.lake.maintenance.replace_files import Rewrite, facts
from kuvasz.model import ReplicaIdentity, SourcePosition, TableType
from kuvasz.ports import Failure, Target
from tests.support.changes import (
    ITEMS,
    SAME,
    TARGET,
    Lines,
    Sender,
    delete,
    feed,
    insert,
    relation,
    target,
    update,
    work,
)
from tests.support.lake import LakeFolder
from tests.support.shapes import KEYLESS
from tests.support.wires import message
from tests.support.worlds import QUIET, IcebergWorld, World

NAMES = [f"s{number:02}" for number in range(20)]
FEW = NAMES[:3]


def prepare(world: World, wanted: Target, names: list[str]) -> list[Sender]:
    for name in names:
        world.lake.prepare(wanted, feed(name), ITEMS)
        world.copy(name)
    return [Sender(name) for name in names]


def files(world: IcebergWorld) -> int:
    return len(list(world.iceberg().scan().plan_files()))


def sids(world: World) -> Counter[str]:
    return Counter(world.table(TARGET).column("sid").to_pylist())


# Slow: how a format writes deletes counts behind what is shared; their compaction is tried in both with each run.
@pytest.fixture(params=[3, pytest.param(2, marks=pytest.mark.slow)], ids=lambda version: f"v{version}")
def lake(spark_session: object, request: pytest.FixtureRequest) -> Iterator[IcebergWorld]:
    folder = LakeFolder(spark_session, format_version=request.param)
    made = IcebergWorld(folder, QUIET)
    yield made
    made.lake.close()
    folder.remove()


# Both lakes


def test_each_source_has_its_rows(world: World) -> None:
    senders = prepare(world, target(), NAMES)
    world.applied(work(*(one.one(insert(1, n), insert(2, n)) for n, one in enumerate(senders))))
    world.applied(work(*(one.one(update(1, n + 100, SAME), delete(2), insert(3)) for n, one in enumerate(senders))))
    assert world.rows() == {
        (name, key): row for n, name in enumerate(NAMES) for key, row in {1: (n + 100, "b"), 3: (0, "b")}.items()
    }
    assert {world.position(name) for name in NAMES} == {1208}
    assert world.orphans() == []


def test_operations_and_rows_are_told_for_each_source(world: World) -> None:
    eu, us = prepare(world, target(), ["eu", "us"])
    (receipt,) = world.applied(work(eu.one(insert(1), insert(2)), us.one(insert(1), delete(1), update(2))))
    assert receipt.operations_of == {"eu": (2, 0, 0), "us": (1, 1, 1)}
    assert receipt.rows_of == {"eu": 2, "us": 3}


@pytest.mark.parametrize("is_later", [False, True])
def test_a_truncate_takes_the_rows_of_its_source_alone(world: World, *, is_later: bool) -> None:
    """In files of earlier commits, in those of its own one, and in rows that wait for earlier versions."""
    eu, us, ap = prepare(world, target(), ["eu", "us", "ap"])
    world.applied(work(*(one.one(insert(1, 1, "one"), insert(2, 2, "two")) for one in (eu, us, ap))))
    before = [one.one(update(1, 5, SAME), insert(3)) for one in (eu, us, ap)]
    cleared = [eu.truncation(), eu.one(insert(2, 9, "new")), us.one(update(2, 7, SAME))]
    if is_later:
        world.applied(work(*before))
        before = []
    world.applied(work(*before, *cleared))
    assert world.of("eu") == {2: (9, "new")}
    assert world.of("us") == {1: (5, "one"), 2: (7, "two"), 3: (0, "b")}
    assert world.of("ap") == {1: (5, "one"), 2: (2, "two"), 3: (0, "b")}
    world.applied(work(*(one.one(update(2, 8, SAME), insert(1, 0, "again")) for one in (eu, us, ap))))
    assert world.of("eu") == {1: (0, "again"), 2: (8, "new")}
    world.applied(work(*(one.truncation() for one in (us, ap, eu))))
    assert world.rows() == {}
    assert world.orphans() == []


def test_a_large_transaction_with_a_truncate_ends_beside_others(world: World) -> None:
    eu, us, ap = prepare(world, target(), ["eu", "us", "ap"])
    world.applied(work(*(one.one(insert(1, 1, "one"), insert(2)) for one in (eu, us, ap))))
    lsn = eu.commit_lsn()
    world.applied(
        work(eu.truncation(lsn, is_open=True), eu.part(lsn, insert(5, 5, "five")),
             us.one(update(1, 2, SAME)), ap.one(update(1, 3, SAME)), open_sources=["eu"])
    )  # fmt: skip
    assert world.of("eu").keys() == {1, 2}
    world.applied(work(us.one(update(1, 4, SAME)), ap.one(delete(2)), eu.one(update(5, 6, SAME), insert(7))))
    assert world.of("eu") == {5: (6, "five"), 7: (0, "b")}
    assert (world.of("us"), world.of("ap")) == ({1: (4, "one"), 2: (0, "b")}, {1: (3, "one")})
    assert world.orphans() == []


@pytest.mark.parametrize("table_type", [TableType.CLONE, TableType.APPEND, TableType.CHANGELOG])
def test_another_copy_of_a_source_replaces_its_rows_alone(world: World, table_type: TableType) -> None:
    senders = prepare(world, target(table_type=table_type), FEW)
    world.applied(work(*(one.one(insert(1, 1, "one"), insert(2)) for one in senders)))
    world.applied(work(*(one.one(update(1, 2, SAME)) for one in senders)))
    before = dict(sids(world))
    world.copy(FEW[1], (7, 7, "copied"), lsn=5000)
    assert sids(world) == before | {FEW[1]: 1}
    senders[1] = Sender(FEW[1], start=6000)
    world.applied(work(senders[1].one(update(7, 8, SAME)), senders[0].one(update(1, 3, SAME))))
    newest = {row["id"]: row["n"] for row in world.table(TARGET).to_pylist() if row["sid"] == FEW[1]}
    assert 7 in newest
    assert 1 not in newest
    assert world.orphans() == []


@pytest.mark.parametrize("table_type", [TableType.CLONE, TableType.APPEND, TableType.CHANGELOG])
def test_a_bad_value_is_told_with_its_source(world: World, table_type: TableType) -> None:
    eu, us, ap = prepare(world, target(table_type=table_type), ["eu", "us", "ap"])
    us.commit_lsn()
    failure, _ = world.apply(work(eu.one(insert(1)), us.one(insert(1), insert(2, "x1")), ap.one(insert(1))))
    assert isinstance(failure, Failure)
    assert str(failure.error).startswith("source us, table public.items, column n: value 'x1' ")
    assert "(transaction 0/4B0)" in str(failure.error)
    assert (sids(world), world.orphans()) == ({"eu": 1, "ap": 1}, [])


def test_a_value_that_is_nowhere_is_told_with_its_source(world: World) -> None:
    senders = prepare(world, target(), FEW)
    world.applied(work(*(one.one(insert(1)) for one in senders)))
    keys = (1, 9, 1)
    failure, _ = world.apply(work(*(one.one(update(key, 1, SAME)) for one, key in zip(senders, keys, strict=True))))
    assert isinstance(failure, Failure)
    assert f"source {FEW[1]}, table {TARGET}: 1 updated rows leave out" in str(failure.error)


# What only files show


@pytest.mark.spark
@pytest.mark.parametrize("table_type", [TableType.CLONE, TableType.APPEND, TableType.CHANGELOG])
def test_a_commit_of_many_small_sources_is_one_file(lake: IcebergWorld, table_type: TableType) -> None:
    senders = prepare(lake, target(table_type=table_type), NAMES)
    lake.applied(work(*(one.one(insert(1, n), insert(2)) for n, one in enumerate(senders))))
    assert files(lake) == 1
    lake.applied(work(*(one.one(insert(3), update(1, n + 1)) for n, one in enumerate(senders))))
    assert files(lake) == 2
    columns = ["sid", "id", "n", "body"]
    rows = Counter(map(repr, lake.table(TARGET).select(columns).to_pylist()))
    assert Counter(repr({name: row[name] for name in columns}) for row in lake.spark_rows()) == rows
    growing = 0 if table_type is TableType.CLONE else 1
    assert sids(lake) == dict.fromkeys(NAMES, 3 + growing)


@pytest.mark.spark
def test_a_source_with_a_chunk_of_its_own_has_a_file_of_its_own(lake: IcebergWorld) -> None:
    senders = prepare(lake, target(), FEW)
    large = senders[0].one(*(insert(key, 0, "x" * 1000) for key in range(1000)))
    lake.applied(work(senders[1].one(insert(1)), large, senders[2].one(insert(1))))
    found = sorted(task.file.record_count for task in lake.iceberg().scan().plan_files())
    assert found == [2, 1000]


@pytest.mark.spark
@pytest.mark.parametrize("layout", [{"partition_by": ("sid",)}, {"sort_by": ("n",)}, {"partition_by": ("n",)}])
@pytest.mark.parametrize("table_type", [TableType.CLONE, TableType.APPEND])
def test_files_are_shared_in_every_layout(lake: IcebergWorld, layout: dict, table_type: TableType) -> None:
    senders = prepare(lake, dataclasses.replace(target(table_type=table_type), **layout), FEW)
    lake.applied(work(*(one.one(insert(1, 3, "one"), insert(2, 1, "two")) for one in senders)))
    assert files(lake) == (3 if "sid" in layout.get("partition_by", ()) else 2 if "partition_by" in layout else 1)
    lake.applied(work(*(one.one(update(1, 1, SAME), insert(3, 2)) for one in senders)))
    lake.applied(work(senders[1].one(update(1, 2, SAME), delete(2)), senders[1].one(update(3, 3, SAME))))
    if table_type is TableType.CLONE:
        lake.applied(work(senders[2].one(update(1, 3, SAME)), senders[2].truncation(), senders[0].one(delete(3))))
        assert lake.rows() == {(FEW[0], 1): (1, "one"), (FEW[0], 2): (1, "two"), (FEW[1], 1): (2, "one"),
                               (FEW[1], 3): (3, "b")}  # fmt: skip
    else:
        assert sids(lake) == {FEW[0]: 4, FEW[1]: 6, FEW[2]: 4}
    assert lake.orphans() == []


@pytest.mark.spark
@pytest.mark.parametrize("index_is", ["there", "lost"])
@pytest.mark.parametrize("table_type", [TableType.CLONE, TableType.APPEND])
def test_a_restart_reads_shared_files(lake: IcebergWorld, index_is: str, table_type: TableType) -> None:
    wanted = target(table_type=table_type)
    senders = prepare(lake, wanted, FEW)
    lake.applied(work(*(one.one(insert(1, 1, "one"), insert(2, 2, "two")) for one in senders)))
    lake.copy(FEW[1], (5, 5, "five"), lsn=2000)
    lake.lake.close()
    if index_is == "lost":
        shutil.rmtree(lake._folder.folder / "state" / "index")
    again = IcebergWorld(lake._folder, QUIET)
    for name in FEW:
        again.lake.prepare(wanted, feed(name), ITEMS)
    senders[1] = Sender(FEW[1], start=3000)
    again.applied(work(senders[0].one(update(1, 2, SAME)), senders[1].one(update(5, 6, SAME)), senders[2].one()))
    if table_type is TableType.CLONE:
        assert again.rows() == {(FEW[0], 1): (2, "one"), (FEW[0], 2): (2, "two"), (FEW[1], 5): (6, "five"),
                                (FEW[2], 1): (1, "one"), (FEW[2], 2): (2, "two")}  # fmt: skip
        again.applied(work(senders[2].truncation(), senders[0].one(delete(2))))
        assert again.rows() == {(FEW[0], 1): (2, "one"), (FEW[1], 5): (6, "five")}
    else:
        assert sids(again) == {FEW[0]: 3, FEW[1]: 2, FEW[2]: 2}
        failure, _ = again.apply(work(senders[1].one(update(1, 1, SAME))))
        assert isinstance(failure, Failure), "the row went with the copy"
        assert "1 updated rows leave out a large value" in str(failure.error)
    again.lake.close()


@pytest.mark.spark
@pytest.mark.parametrize("lake", [3, 2], indirect=True, ids=["v3", "v2"])
@pytest.mark.parametrize("table_type", [TableType.CLONE, TableType.APPEND, TableType.CHANGELOG])
def test_shared_files_are_compacted(lake: IcebergWorld, table_type: TableType) -> None:
    senders = prepare(lake, target(table_type=table_type), NAMES)
    for name in NAMES:
        lake.copy(name, (50, 5, "copied"))
    for number in range(4):
        lake.applied(work(*(one.one(insert(number, number, f"x{number}")) for one in senders)))
    lake.copy(FEW[1], (7, 7, "copied"), lsn=5000)
    before = Counter(map(repr, lake.table(TARGET).to_pylist()))
    table, readers = lake.lake.table(TARGET), lake.lake.engine.readers
    with table.lock:
        table.follow()
        there = facts(table, [*table.index.files], 1 << 27)
        groups = Policy(target_bytes=1 << 27, min_files=2, max_dead_share=0.3).plan(there, full=True)
        keys = readers.job(table.definition) if table.definition.has_unique_keys else None
        rewrite = Rewrite.plan(table, groups, keys)
    rewrite.write(Jobs(lake.lake.engine.session), 1)
    lake.applied(work(senders[0].one(update(1, 9, SAME)), senders[3].one(insert(9))))
    with table.lock:
        assert rewrite.commit(lambda _: {}) is not None
    waited = 1 if table_type is TableType.CLONE else 0  # a row of one source, in a file of its own
    assert files(lake) == 2 + waited
    whole = max(lake.iceberg().scan().plan_files(), key=lambda task: task.file.record_count).file
    merged = pq.read_table(whole.file_path.removeprefix("file://")).column("sid").to_pylist()
    assert (merged, len(merged)) == (sorted(merged), 19 * 5 + 1)
    after = Counter(map(repr, lake.table(TARGET).to_pylist()))
    assert sum((after - before).values()) == 2
    lake.applied(work(*(one.one(update(2, 8, SAME)) for one in senders if one.name != FEW[1])))
    assert sum(row["n"] == 8 and row["body"] == "x2" for row in lake.spark_rows()) == 19
    assert lake.orphans() == []


@pytest.mark.spark
def test_sources_whose_columns_are_in_another_order_share_where_they_can(lake: IcebergWorld) -> None:
    other = dataclasses.replace(relation(oid=7), identity=ReplicaIdentity.INDEX)
    senders = prepare(lake, target(), FEW)
    lake.applied(work(*(one.one(insert(1)) for one in senders[:2]),
                      senders[2].segment([(senders[2].commit_lsn(), [insert(1)])], relation=other)))  # fmt: skip
    assert files(lake) == 1, "what an identity is called makes no other columns"
    assert len(lake.rows()) == 3


@pytest.mark.spark
def test_a_repair_of_one_source_leaves_the_others(lake: IcebergWorld) -> None:
    senders = prepare(lake, target(), FEW)
    lake.applied(work(*(one.one(insert(1, 1, "one"), insert(2, 2, "two")) for one in senders)))
    at = SourcePosition(lsn=9000, system_id="7001")
    lines = [Lines(((1, 5, "mended"), (3, 3, "three")))]
    receipt = lake.lake.repair(feed(FEW[1]), ITEMS, lines, at, lambda *_: None)
    assert receipt.rows == 3
    assert lake.of(FEW[1]) == {1: (5, "mended"), 3: (3, "three")}
    assert lake.of(FEW[0]) == lake.of(FEW[2]) == {1: (1, "one"), 2: (2, "two")}


@pytest.mark.spark
def test_a_query_for_one_sid_reads_the_shared_files_alone(lake: IcebergWorld) -> None:
    senders = prepare(lake, target(), NAMES)
    for _ in range(3):
        lake.applied(work(*(one.one(insert(1), insert(2)) for one in senders)))
    lake.copy("s03", *((key, 0, "x") for key in range(50)), lsn=5000)
    assert files(lake) == 2
    assert len(list(lake.iceberg().scan(row_filter=EqualTo("sid", "s99")).plan_files())) == 0


@pytest.mark.spark
def test_rows_without_a_key_are_counted_for_each_source(lake: IcebergWorld) -> None:
    for name in FEW:
        lake.lake.prepare(target(), feed(name), KEYLESS)
        lake.copy(name, relation=KEYLESS)
    senders = [Sender(name, KEYLESS) for name in FEW]
    gone = message("D", old=[b"1", b"0", b"b"], old_tag="O")
    lake.applied(work(*(one.one(insert(1), insert(1), insert(2)) for one in senders)))
    lake.applied(work(*(one.one(gone, insert(3)) for one in senders), senders[0].truncation()))
    assert sids(lake) == {FEW[1]: 3, FEW[2]: 3}
    lake.applied(work(*(one.one(insert(1)) for one in senders)))
    lake.applied(work(*(one.one(gone) for one in senders)))
    assert sids(lake) == {FEW[1]: 3, FEW[2]: 3}
    (failure,) = lake.apply(work(*(one.one(gone) for one in reversed(senders))))
    assert isinstance(failure, Failure)
    assert type(failure.error) is TableError
    assert f"source {FEW[0]}, table {TARGET}: 1 rows that were changed" in str(failure.error)
