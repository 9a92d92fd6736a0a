"""Steps of a mini-transaction in tables whose rows are replaced or only added, upon real files, without Spark."""

from __future__ import annotations

import dataclasses

import pytest

from kuvasz.errors import Retry, VersionLost
from kuvasz.lake.commit.write_stage import WriteStage
from kuvasz.model import Relation, TableType
from kuvasz.ports import Failure
from kuvasz.typemap import BUILTIN
from tests.support.changes import ITEMS, SAME, TARGET, Sender, delete, feed, insert, target, update, work
from tests.support.local_lake import LocalWorld


@pytest.fixture
def world(local_world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> LocalWorld:
    """A clone of two sources; each change of a source is a chunk of its own."""
    monkeypatch.setattr(WriteStage, "_chunk_bytes", lambda *_: 1)
    local_world.prepare("eu", "us")
    return local_world


def test_the_last_of_several_chunks_counts(world: LocalWorld) -> None:
    eu = Sender()
    world.applied(work(eu.one(insert(1, 1), insert(2, 2)), eu.one(update(1, 10), delete(2)), eu.one(insert(2, 20))))
    assert world.of("eu") == {1: (10, "b"), 2: (20, "b")}


def test_rows_that_wait_for_one_another_are_completed_level_by_level(world: LocalWorld) -> None:
    """Three updates of one row, each without its large value; beside them rows that wait for nothing but the lake."""
    eu = Sender()
    world.applied(work(eu.one(insert(1, 1, "one"), insert(2, 2, "two"), insert(3, 3, "three"))))
    world.jobs.ran.clear()
    world.applied(work(eu.one(update(1, 10, SAME), update(2, 20, SAME)), eu.one(update(1, 11, SAME)),
                       eu.one(update(3, 30, SAME)), eu.one(update(1, 12, SAME))))  # fmt: skip
    assert world.of("eu") == {1: (12, "one"), 2: (20, "two"), 3: (30, "three")}
    assert world.jobs.ran.count("CompleteRows") == 3, "one job for each level, however many rows wait in it"


def test_a_row_that_waits_may_get_another_key(world: LocalWorld) -> None:
    eu = Sender()
    world.applied(work(eu.one(insert(1, 1, "one"))))
    world.applied(work(eu.one(update(2, 2, SAME, old=1)), eu.one(update(3, 3, SAME, old=2))))
    assert world.of("eu") == {3: (3, "one")}


@pytest.mark.parametrize("source", ["eu", "us"])
def test_a_truncate_takes_what_waits_of_its_source_alone(world: LocalWorld, source: str) -> None:
    senders = {name: Sender(name) for name in ("eu", "us")}
    world.applied(work(*(one.one(insert(1, 1, name)) for name, one in senders.items())))
    waiting = [one.one(update(1, 2, SAME)) for one in senders.values()]
    world.applied(work(*waiting, senders[source].truncation()))
    assert world.rows() == {(name, 1): (2, name) for name in senders if name != source}


def test_an_appended_row_outlives_a_truncate(local_world: LocalWorld) -> None:
    local_world.lake.prepare(target(table_type=TableType.APPEND), feed(), ITEMS)
    local_world.copy("eu")
    eu = Sender()
    local_world.applied(work(eu.one(insert(1, 1)), eu.truncation(), eu.one(insert(1, 2))))
    assert sorted(local_world.table(TARGET).column("n").to_pylist()) == [1, 2]


def retyped(kind: int, file: int) -> Relation:
    """The catalog's relation with `body` of a type."""
    columns = tuple(
        dataclasses.replace(one, attnum=place, pg_type=BUILTIN[kind] if one.name == "body" else one.pg_type)
        for place, one in enumerate(ITEMS.columns, 1)
    )
    return dataclasses.replace(ITEMS, columns=columns, attributes=len(columns), file=file)


@pytest.mark.parametrize("table_type", [TableType.APPEND, TableType.CHANGELOG, TableType.HISTORY])
def test_a_large_value_of_another_type_is_not_taken_for_null(local_world: LocalWorld, table_type: TableType) -> None:
    """Rows of before have it in `body__old`, and are not copied again: only an UPDATE that brings it has it."""
    to, text, binary = target(table_type=table_type), retyped(25, 1), retyped(17, 2)
    local_world.lake.prepare(to, feed(), text)
    local_world.copy("eu", (1, 0, "one"), (2, 0, "two"), relation=text)
    eu = Sender(relation=text)
    local_world.applied(work(eu.one(update(1, 1, SAME))))
    local_world.lake.prepare(to, feed(), binary, is_streaming=True)
    eu.relation = binary
    local_world.applied(work(eu.one(update(1, 2, r"\x01"))))
    local_world.applied(work(eu.one(update(1, 3, SAME))))
    found = {(row["n"], row["body"]) for row in local_world.table(TARGET).to_pylist() if row["id"] == 1}
    assert found >= {(2, b"\x01"), (3, b"\x01")}
    before = local_world.table(TARGET)
    (failure,) = local_world.apply(work(eu.one(update(1, 4, SAME), update(2, 4, SAME))))
    assert isinstance(failure, Failure)
    assert isinstance(failure.error, VersionLost)
    assert "source eu, table shop.items, column body: an updated row leaves out a large value" in str(failure.error)
    assert local_world.table(TARGET) == before


def test_a_transaction_in_parts_is_seen_at_its_end_whatever_waited_in_it(world: LocalWorld) -> None:
    eu, us = Sender(), Sender("us")
    world.applied(work(eu.one(insert(1, 1, "one"), insert(2, 2, "two"))))
    lsn = eu.commit_lsn()
    world.applied(work(eu.part(lsn, update(1, 10, SAME)), us.one(insert(1, 7)), open_sources=["eu"]))
    assert world.of("eu") == {1: (1, "one"), 2: (2, "two")}
    assert world.of("us") == {1: (7, "b")}
    world.applied(work(eu.part(lsn, update(1, 11, SAME), delete(2)), open_sources=["eu"]))
    assert world.of("eu") == {1: (1, "one"), 2: (2, "two")}
    world.applied(work(eu.segment([(lsn, [update(1, 12, SAME)])]), through={"eu": lsn + 8}))
    assert world.of("eu") == {1: (12, "one")}
    assert world.orphans() == []


def test_the_next_step_shows_that_a_transaction_was_whole(world: LocalWorld) -> None:
    """Its end had no row of this table, so only what comes behind it tells."""
    eu = Sender()
    world.applied(work(eu.one(insert(1, 1, "one"))))
    first, second = eu.commit_lsn(), eu.commit_lsn()
    world.applied(work(eu.part(first, update(1, 10, SAME)), eu.truncation(first, is_open=True),
                       eu.part(first, insert(2, 2, "two")), open_sources=["eu"]))  # fmt: skip
    world.applied(work(eu.part(second, update(2, 20, SAME)), open_sources=["eu"], through={"eu": first + 8}))
    assert world.of("eu") == {2: (2, "two")}
    world.applied(work(through={"eu": second + 8}))
    assert world.of("eu") == {2: (20, "two")}


def test_a_row_that_waits_for_what_is_nowhere_fails_its_table_and_leaves_no_file(world: LocalWorld) -> None:
    eu = Sender()
    world.applied(work(eu.one(insert(1, 1, "one"))))
    files = world.orphans()
    failure, again = world.apply(work(eu.one(update(1, 2, SAME)), eu.one(update(9, 9, SAME))))
    assert isinstance(failure, Failure)
    assert isinstance(again, Failure)
    assert (failure.source, again.source, again.error.retry) == ("eu", None, Retry.TIMED)
    assert "source eu, table shop.items" in failure.error.message
    assert world.of("eu") == {1: (1, "one")}
    assert world.orphans() == files


def test_a_job_that_fails_while_rows_wait_leaves_the_table_as_it_was(world: LocalWorld) -> None:
    eu = Sender()
    world.applied(work(eu.one(insert(1, 1, "one"))))
    known = world.orphans()
    written = world.lake.write([work(eu.one(insert(2), update(1, 2, SAME)))])
    world.jobs.failures.append("no executor")
    (failure,) = world.commit(written)
    assert isinstance(failure, Failure)
    assert failure.error.message == "no executor"
    assert world.of("eu") == {1: (1, "one")}
    assert world.orphans() == known
