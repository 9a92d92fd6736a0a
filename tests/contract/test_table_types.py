"""What every lake makes of changes by table type, tried on the one in memory and on Spark with Iceberg."""

from __future__ import annotations

from kuvasz.model import SourcePosition, TableType
from kuvasz.ports import Failure
from tests.support.changes import ITEMS, SAME, TARGET, Lines, Sender, delete, feed, insert, target, update, work
from tests.support.worlds import World


def prepare(world: World, table_type: TableType, *rows: tuple, sources: tuple[str, ...] = ("eu",)) -> None:
    for source in sources:
        world.lake.prepare(target(table_type=table_type), feed(source), ITEMS)
        copy(world, source, *rows)


def copy(world: World, source: str, *rows: tuple, lsn: int = 1000) -> None:
    at = SourcePosition(lsn=lsn, system_id="7001")
    world.lake.copy(feed(source), ITEMS, [Lines(rows)] if rows else [], at, lambda *_: None)


def found(world: World, *names: str) -> list[tuple]:
    rows = world.table(TARGET).to_pylist()
    return sorted((tuple(row[name] for name in names) for row in rows), key=repr)


def test_append_keeps_every_row(world: World) -> None:
    prepare(world, TableType.APPEND, (1, 1, "one"), sources=("eu", "us"))
    eu, us = Sender("eu"), Sender("us")
    world.applied(work(eu.one(update(1, 2, SAME), insert(2, 2, "two")), us.one(delete(1))))
    world.applied(work(eu.one(update(1, 3, SAME), update(2, 3, SAME), delete(1)), eu.truncation()))
    world.applied(work(eu.one(insert(1, 4, "new"), update(5, 5, SAME, old=2))))
    assert found(world, "sid", "id", "n", "body") == [
        ("eu", 1, 1, "one"), ("eu", 1, 2, "one"), ("eu", 1, 3, "one"), ("eu", 1, 4, "new"), ("eu", 2, 2, "two"),
        ("eu", 2, 3, "two"), ("eu", 5, 5, "two"), ("us", 1, 1, "one"),
    ]  # fmt: skip
    assert world.position("eu") == 1408


def test_a_copy_replaces_the_rows_of_its_source_alone(world: World) -> None:
    prepare(world, TableType.APPEND, (1, 1, "one"), sources=("eu", "us"))
    world.applied(work(Sender("eu").one(update(1, 2, SAME))))
    copy(world, "eu", (1, 9, "again"), lsn=5000)
    assert found(world, "sid", "n") == [("eu", 9), ("us", 1)]
    world.applied(work(Sender("eu", start=6000).one(update(1, 10, SAME))))
    assert found(world, "sid", "n", "body") == [("eu", 10, "again"), ("eu", 9, "again"), ("us", 1, "one")]


def test_a_changelog_numbers_the_events_of_a_transaction_in_parts(world: World) -> None:
    prepare(world, TableType.CHANGELOG)
    eu = Sender()
    lsn = eu.commit_lsn()
    world.applied(work(eu.part(lsn, insert(1), insert(2)), eu.truncation(lsn, is_open=True), open_sources=["eu"]))
    assert found(world, "_op") == []
    world.applied(work(eu.part(lsn, insert(3, 0, "x")), open_sources=["eu"]))
    world.applied(work(eu.segment([(lsn, [update(3, 1, SAME), delete(3)]), (eu.commit_lsn(), [insert(4)])])))
    assert found(world, "_lsn", "_ordinal", "_op", "id", "body") == [
        (1100, 0, "I", 1, "b"), (1100, 1, "I", 2, "b"), (1100, 2, "T", None, None), (1100, 3, "I", 3, "x"),
        (1100, 4, "U", 3, "x"), (1100, 5, "D", 3, None), (1200, 0, "I", 4, "b"),
    ]  # fmt: skip


def test_a_changelogs_numbers_begin_again_with_the_transaction(world: World) -> None:
    prepare(world, TableType.CHANGELOG)
    eu = Sender()
    lsn = eu.commit_lsn()
    world.applied(work(eu.part(lsn, insert(1), insert(2)), open_sources=["eu"]))
    world.applied(work(eu.segment([(lsn, [insert(1), insert(2), insert(3)])]), abandoned=["eu"]))
    assert found(world, "_ordinal", "id") == [(0, 1), (1, 2), (2, 3)]
    (failure,) = world.apply(work(eu.one(insert(5, "bad"))))
    assert isinstance(failure, Failure)
    world.lake.resume(TARGET, world.lake.failure(TARGET, "eu"))
    world.applied(work(eu.one(insert(5), insert(6))))
    assert found(world, "_ordinal", "id")[-1] == (2, 3)
    assert len(found(world, "id")) == 5
