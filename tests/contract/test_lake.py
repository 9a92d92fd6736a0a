"""What every lake promises (kuvasz.ports.Lake), tried on the one in memory and on Spark with Iceberg."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from kuvasz.errors import DecodeError, Retry, SchemaError, SourceError, VersionLost
from kuvasz.model import Column, PgType, ReplicaIdentity, SourcePosition
from kuvasz.ports import Failure, Receipt, Target
from tests.support.changes import (
    INT4,
    ITEMS,
    SAME,
    TARGET,
    Lines,
    Sender,
    again,
    delete,
    feed,
    insert,
    relation,
    target,
    update,
    work,
)
from tests.support.worlds import World

OTHER = "shop.others"
ELSEWHERE = "archive.items"


# Rows


def test_insert_update_delete(world: World) -> None:
    world.prepare("eu")
    eu = Sender()
    (receipt,) = world.applied(work(eu.transactions([insert(1, 10, "one"), insert(2)], [insert(3), delete(2)])))
    assert world.of("eu") == {1: (10, "one"), 3: (0, "b")}
    assert (receipt.target, receipt.rows, receipt.rows_of) == (TARGET, 4, {"eu": 4})
    sent = (insert(1, 10, "one"), insert(2), insert(3), delete(2))
    assert receipt.bytes_of == {"eu": sum(map(len, sent))}
    assert receipt.commit_us == 12000
    assert receipt.positions["eu"] == SourcePosition(
        lsn=1208, commit_lsn=1200, rows=2, system_id="7001", xid=1, commit_us=12000
    )  # fmt: skip
    assert world.lake.positions(TARGET) == receipt.positions
    world.applied(work(eu.one(update(1, 11, None), delete(3))))
    assert world.of("eu") == {1: (11, None)}
    world.applied(work(eu.one(insert(3, 33))), work())
    assert world.of("eu") == {1: (11, None), 3: (33, "b")}


def test_an_update_of_a_row_that_is_not_there_inserts_it(world: World) -> None:
    world.prepare("eu")
    world.applied(work(Sender().one(update(7, 1, "x"), delete(8))))
    assert world.of("eu") == {7: (1, "x")}


def test_key_changes_move_rows(world: World) -> None:
    world.prepare("eu")
    eu = Sender()
    world.applied(work(eu.one(insert(1, 1), insert(2, 2), insert(3, 3))))
    swap = eu.one(update(9, 1, old=1), update(1, 2, old=2), update(2, 1, old=9))
    world.applied(work(swap, eu.one(update(4, 3, old=3), insert(3, 33))))
    assert world.of("eu") == {1: (2, "b"), 2: (1, "b"), 3: (33, "b"), 4: (3, "b")}


def test_an_unchanged_value_comes_from_an_earlier_chunk_and_from_the_lake(world: World) -> None:
    world.prepare("eu")
    eu = Sender()
    big = "x" * 5000
    world.applied(work(eu.one(insert(1, 1, big), insert(2, 1, "two"), insert(3, 1, None))))
    # Another version of the relation is another chunk; the third chunk builds on rows that the second completes.
    version = dataclasses.replace(relation(), identity=ReplicaIdentity.INDEX)
    changes = [
        eu.one(insert(4, 1, "four"), update(1, 2, SAME)),
        eu.segment([(eu.commit_lsn(), [update(4, 2, SAME), update(1, 3, SAME), update(20, 2, SAME, old=2)])],
                   relation=version),
        eu.one(update(20, 3, SAME), update(3, 9, SAME), update(1, 4, SAME), update(1, 5, SAME)),
    ]  # fmt: skip
    world.applied(work(*changes))
    assert world.of("eu") == {1: (5, big), 20: (3, "two"), 3: (9, None), 4: (2, "four")}
    world.applied(work(eu.one(update(20, 4, SAME))))
    assert world.of("eu")[20] == (4, "two")


@pytest.mark.parametrize("was_there", [False, True])
def test_an_unchanged_value_that_is_nowhere_stops_the_table(world: World, was_there: bool) -> None:
    world.prepare("eu")
    eu = Sender()
    if was_there:
        world.applied(work(eu.one(insert(1), insert(2))))
        world.applied(work(eu.one(delete(1))))
    before, snapshots = world.rows(), world.snapshots()
    (failure,) = world.apply(work(eu.one(insert(5)), eu.one(update(1, 2, SAME))))
    assert isinstance(failure, Failure)
    assert type(failure.error) is VersionLost
    assert "source eu, table shop.items: 1 updated rows leave out" in str(failure.error)
    assert "resync --table shop.items" in str(failure.error)
    assert (world.rows(), world.snapshots(), world.orphans()) == (before, snapshots, [])


def test_rows_of_two_sources_do_not_touch(world: World) -> None:
    world.prepare("eu", "us")
    eu, us = Sender("eu"), Sender("us")
    world.applied(work(eu.one(insert(1, 1)), us.one(insert(1, 2)), eu.one(update(1, 3)), us.one(insert(2, 2))))
    world.applied(work(us.one(delete(1)), eu.one(insert(2, 4))))
    assert world.rows() == {("eu", 1): (3, "b"), ("eu", 2): (4, "b"), ("us", 2): (2, "b")}
    assert world.position("eu") == 1308
    assert world.position("us") == 1308


def test_a_target_without_sid(world: World) -> None:
    world.lake.prepare(target(has_sid=False), feed("eu", sid=None), ITEMS)
    world.lake.copy(feed("eu", sid=None), ITEMS, [Lines(((1, 1, "b"),))], SourcePosition(lsn=1000), lambda *_: None)
    eu = Sender()
    world.applied(work(eu.one(insert(2)), eu.truncation(), eu.one(insert(3, 3))))
    assert world.rows() == {(None, 3): (3, "b")}


# Positions


def test_what_was_applied_is_skipped(world: World) -> None:
    world.prepare("eu")
    eu = Sender()
    first, second = eu.one(insert(1)), eu.one(update(1, 2))
    old = eu.segment([(900, [insert(99)])])
    world.applied(work(old, first))
    assert world.of("eu") == {1: (0, "b")}
    world.applied(work(second))
    snapshots = world.snapshots()
    (receipt,) = world.applied(work(again(first), again(second)))
    assert (receipt.rows, receipt.snapshot_id, world.snapshots()) == (0, None, snapshots)
    world.applied(work(eu.segment([(1100, [insert(1)]), (1200, [update(1, 2)]), (1300, [update(1, 3)])])))
    assert world.of("eu") == {1: (3, "b")}


def test_committing_the_same_work_twice_is_committing_it_once(world: World) -> None:
    world.prepare("eu")
    eu = Sender()
    world.applied(work(eu.one(insert(1, 1, "x"))))
    changes = eu.one(update(2, 2, SAME, old=1), insert(3))
    world.applied(work(changes))
    world.lake.resume(TARGET, world.lake.failure(TARGET, "eu"))  # forgets what was written and not committed: nothing
    world.applied(work(again(changes)))
    assert world.of("eu") == {2: (2, "x"), 3: (0, "b")}


def test_a_target_that_is_let_go_of_is_where_it_was_when_it_comes_back(world: World) -> None:
    world.prepare("eu")
    eu = Sender()
    first = eu.one(insert(1, 1, "x"), insert(2))
    world.applied(work(first))
    before = world.lake.positions(TARGET)
    world.lake.let_go(TARGET)
    assert world.lake.recorded(TARGET) == before
    world.lake.prepare(target(TARGET), feed("eu", TARGET), ITEMS)
    assert world.lake.positions(TARGET) == before
    world.applied(work(again(first), eu.one(update(1, 2, SAME), delete(2))))
    assert world.of("eu") == {1: (2, "x")}


def test_the_position_is_that_of_the_work_even_beyond_its_last_row(world: World) -> None:
    world.prepare("eu")
    eu = Sender()
    (receipt,) = world.applied(work(eu.one(insert(1)), through={"eu": 5000}))
    assert receipt.positions["eu"].lsn == world.position("eu") == 5000
    world.applied(work(eu.segment([(4000, [insert(4)]), (5000, [insert(5)])])))
    assert world.of("eu").keys() == {1, 5}


def test_changes_that_cancel_out_make_no_snapshot(world: World) -> None:
    world.prepare("eu")
    eu = Sender()
    world.applied(work(eu.one(insert(1))))
    snapshots = world.snapshots()
    (receipt,) = world.applied(work(eu.one(delete(77))))
    assert (receipt.snapshot_id, receipt.rows, world.snapshots()) == (None, 1, snapshots)
    assert receipt.positions["eu"].lsn == 1208
    assert world.orphans() == []


# Large transactions in parts


def test_an_open_transaction_shows_only_when_it_ends(world: World) -> None:
    world.prepare("eu", "us")
    eu, us = Sender("eu"), Sender("us")
    world.applied(work(eu.one(insert(1, 1, "big"), insert(2, 2))))
    before = world.of("eu")
    lsn = eu.commit_lsn()
    world.applied(work(eu.part(lsn, update(1, 10, SAME), insert(3, 3, "three")), open_sources=["eu"]))
    assert world.of("eu") == before
    world.applied(work(us.one(insert(1, 5)), open_sources=["eu"]))
    assert world.of("eu") == before
    assert world.of("us") == {1: (5, "b")}
    world.applied(
        work(
            eu.part(lsn, update(3, 4, SAME), delete(2)), us.one(insert(2)), through={"eu": 1108}, open_sources=["eu"]
        )
    )
    assert world.of("eu") == before
    assert world.position("eu") == 1108
    (receipt,) = world.applied(work(eu.segment([(lsn, [update(1, 11, SAME)])])))
    assert world.of("eu") == {1: (11, "big"), 3: (4, "three")}
    assert receipt.positions["eu"].lsn == lsn + 8
    assert world.of("us").keys() == {1, 2}
    assert world.orphans() == []


def test_an_open_transaction_may_end_without_rows_of_this_target(world: World) -> None:
    world.prepare("eu")
    eu = Sender()
    lsn = eu.commit_lsn()
    part = eu.part(lsn, insert(1, 1))
    world.applied(work(part, open_sources=["eu"]))
    (receipt,) = world.applied(work(through={"eu": lsn + 8}))
    assert world.of("eu") == {1: (1, "b")}
    assert receipt.positions["eu"].lsn == world.position("eu") == lsn + 8
    # After a reconnect it comes again, now whole.
    world.applied(work(eu.segment([(lsn, [insert(1, 99)])])))
    assert world.of("eu") == {1: (1, "b")}


def test_one_large_transaction_ends_and_the_next_begins_in_the_same_work(world: World) -> None:
    world.prepare("eu")
    eu = Sender()
    first, between, second = eu.commit_lsn(), eu.commit_lsn(), eu.commit_lsn()
    world.applied(work(eu.part(first, insert(1, 1, "one")), open_sources=["eu"]))
    changes = [eu.segment([(first, [insert(2, 2)]), (between, [insert(3, 3)]), (second, [update(1, 9, SAME)])],
                          is_open=True)]  # fmt: skip
    (receipt,) = world.applied(work(*changes, open_sources=["eu"]))
    assert world.of("eu") == {1: (1, "one"), 2: (2, "b"), 3: (3, "b")}
    assert receipt.positions["eu"].lsn == between + 8
    world.applied(work(eu.segment([(second, [delete(2)])])))
    assert world.of("eu") == {1: (9, "one"), 3: (3, "b")}


def test_one_large_transaction_ends_elsewhere_and_the_next_begins_here(world: World) -> None:
    world.prepare("eu")
    eu = Sender()
    first, second = eu.commit_lsn(), eu.commit_lsn()
    world.applied(work(eu.part(first, insert(1, 1, "one")), open_sources=["eu"]))
    # The rows of both are next to each other here; the first one's last part went to other targets.
    world.applied(
        work(eu.part(first, insert(2, 2)), eu.part(second, update(1, 5, SAME)), through={"eu": first + 8},
             open_sources=["eu"])
    )  # fmt: skip
    assert world.of("eu") == {1: (1, "one"), 2: (2, "b")}
    assert world.position("eu") == first + 8
    world.applied(work(abandoned=["eu"]))
    assert world.of("eu") == {1: (1, "one"), 2: (2, "b")}
    assert world.orphans() == []


def test_parts_of_an_abandoned_transaction_are_forgotten(world: World) -> None:
    world.prepare("eu")
    eu = Sender()
    world.applied(work(eu.one(insert(1, 1, "big"))))
    lsn = eu.commit_lsn()
    world.applied(work(eu.part(lsn, delete(1), insert(2)), open_sources=["eu"]))
    world.applied(work(eu.part(lsn, update(1, 5, SAME)), abandoned=["eu"], open_sources=["eu"]))
    assert world.of("eu") == {1: (1, "big")}
    world.applied(work(eu.segment([(lsn, [insert(3)])])))
    assert world.of("eu") == {1: (5, "big"), 3: (0, "b")}
    assert world.orphans() == []


def test_a_truncate_in_an_open_transaction_shows_with_its_end(world: World) -> None:
    world.prepare("eu", "us")
    eu, us = Sender("eu"), Sender("us")
    world.applied(work(eu.one(insert(1, 1), insert(2, 2)), us.one(insert(1, 7))))
    before = world.rows()
    last, lsn = eu.commit_lsn(), eu.commit_lsn()
    whole = eu.segment([(last, [insert(3, 3)]), (lsn, [insert(4, 4), update(1, 5, SAME)])], is_open=True)
    part = eu.part(lsn, insert(1, 6, "new"))
    world.applied(work(whole, eu.truncation(lsn, is_open=True), part, open_sources=["eu"]))
    assert world.rows() == before | {("eu", 3): (3, "b")}
    assert world.position("eu") == last + 8
    world.applied(work(us.one(update(1, 8)), open_sources=["eu"]))
    (receipt,) = world.applied(work(eu.segment([(lsn, [update(1, 7, SAME)])])))
    assert world.rows() == {("eu", 1): (7, "new"), ("us", 1): (8, "b")}
    assert receipt.positions["eu"].lsn == lsn + 8


def test_an_open_transaction_that_begins_with_a_truncate_and_is_abandoned(world: World) -> None:
    world.prepare("eu")
    eu = Sender()
    world.applied(work(eu.one(insert(1, 1, "big"))))
    lsn = eu.commit_lsn()
    world.applied(work(eu.truncation(lsn, is_open=True), open_sources=["eu"]))
    assert world.of("eu") == {1: (1, "big")}
    world.applied(work(abandoned=["eu"]))
    world.applied(work(eu.segment([(lsn, [update(1, 2, SAME)])])))
    assert world.of("eu") == {1: (2, "big")}
    world.applied(work(eu.truncation(lsn + 100, is_open=True), open_sources=["eu"]))
    world.applied(work(through={"eu": lsn + 108}))
    assert world.rows() == {}
    assert world.position("eu") == lsn + 108


# Truncate


def test_a_truncate_takes_what_came_before_it(world: World) -> None:
    world.prepare("eu", "us")
    eu, us = Sender("eu"), Sender("us")
    world.applied(work(eu.one(insert(1, 1, "old"), insert(2)), us.one(insert(1, 7))))
    world.applied(
        work(eu.one(insert(3), update(2, 5, SAME)), us.one(insert(2, 8)), eu.truncation(),
             eu.one(insert(2, 9), insert(4)), us.one(update(1, 70)))
    )  # fmt: skip
    assert world.rows() == {("eu", 2): (9, "b"), ("eu", 4): (0, "b"), ("us", 1): (70, "b"), ("us", 2): (8, "b")}
    (receipt,) = world.applied(work(eu.truncation()))
    assert world.of("eu") == {}
    assert receipt.positions["eu"].lsn == world.position("eu") == 1508
    world.applied(work(eu.one(insert(1, 1)), eu.one(update(1, 2, SAME))))
    assert world.of("eu") == {1: (2, "b")}
    assert world.orphans() == []


# Failures


def test_a_bad_value_stops_its_table_and_no_other(world: World) -> None:
    world.prepare("eu")
    world.prepare("eu", name=OTHER)
    eu = Sender()
    bad = work(eu.one(insert(1)), eu.one(insert(2), insert(3, "x1")))
    failure, receipt = world.apply(bad, work(eu.one(insert(5)), target=OTHER))  # of `bad` there is nothing else
    assert isinstance(failure, Failure)
    assert isinstance(failure.error, DecodeError)
    assert str(failure.error).startswith("source eu, table public.items, column n: value 'x1' ")
    assert "(transaction 0/4B0)" in str(failure.error)
    assert isinstance(receipt, Receipt)
    assert world.rows() == {}
    assert world.position("eu") == 1000
    assert world.of("eu", OTHER) == {5: (0, "b")}
    assert world.orphans() == []


def test_after_a_failure_nothing_is_applied_until_resume(world: World) -> None:
    world.prepare("eu")
    eu = Sender()
    bad, behind = eu.one(insert(1, "x1")), eu.one(insert(2))
    written = world.lake.write([work(bad)])
    ahead = world.lake.write([work(behind)])
    (failure,) = world.lake.commit(written)
    assert isinstance(failure, Failure)
    assert list(world.lake.commit(ahead)) == []
    assert world.apply(work(eu.one(insert(3)))) == []
    assert world.rows() == {}
    world.lake.resume(TARGET, world.lake.failure(TARGET, "eu"))
    good = eu.segment([(1100, [insert(1, 1)])])
    world.applied(work(good, again(behind)))
    assert world.of("eu") == {1: (1, "b"), 2: (0, "b")}
    assert world.orphans() == []


def test_what_was_written_before_a_failure_is_not_committed_after_resume(world: World) -> None:
    world.prepare("eu")
    eu = Sender()
    bad, behind = eu.one(insert(1, "x1")), eu.one(insert(2))
    written, ahead = world.lake.write([work(bad)]), world.lake.write([work(behind)])
    (failure,) = world.lake.commit(written)
    assert isinstance(failure, Failure)
    world.lake.resume(TARGET, world.lake.failure(TARGET, "eu"))
    assert list(world.lake.commit(ahead)) == []
    assert world.position("eu") == 1000
    world.applied(work(eu.segment([(1100, [insert(1, 1)])]), again(behind)))
    assert world.of("eu").keys() == {1, 2}
    assert world.orphans() == []


def test_a_failure_of_a_source_leaves_the_open_transactions_of_others(world: World) -> None:
    world.prepare("eu", "us")
    eu, us = Sender("eu"), Sender("us")
    lsn = us.commit_lsn()
    world.applied(work(us.part(lsn, insert(1)), open_sources=["us"]))
    (failure,) = world.apply(work(eu.one(insert(1, "x1")), open_sources=["us"]))
    assert isinstance(failure, Failure)
    world.applied(work(us.segment([(lsn, [insert(2)])])))
    assert world.of("us").keys() == {1, 2}
    assert world.orphans() == []


def test_to_forget_one_source_loses_nothing_that_another_has_written(world: World) -> None:
    world.prepare("eu", "us")
    eu, us = Sender("eu"), Sender("us")
    written = world.lake.write([work(us.one(insert(1)))])
    of_both = world.lake.write([work(eu.one(insert(7)), us.one(insert(2)))])
    world.lake.forget(TARGET, "eu")
    (receipt,) = world.lake.commit(written)
    assert isinstance(receipt, Receipt)
    assert world.of("us").keys() == {1}
    (failure,) = world.lake.commit(of_both)
    assert isinstance(failure, Failure)
    assert failure.error.retry is Retry.TIMED
    assert world.of("eu") == {}
    assert "eu" not in world.lake.positions(TARGET)
    assert world.orphans() == []


@pytest.mark.parametrize(("gap_lsn", "begin"), [(800, 800), (1200, 1000), (None, 1000)])
def test_a_gap_may_begin_before_the_position(world: World, gap_lsn: int | None, begin: int) -> None:
    world.prepare("eu")
    world.copy("eu", (1, 0, "a"), lsn=1000)
    world.lake.forget(TARGET, "eu", to_repair=True, gap_lsn=gap_lsn)
    gap = world.lake.notes.gap(TARGET, "eu")
    assert gap is not None
    assert gap.from_lsn == begin


def test_a_gap_opens_where_a_position_is_dropped_and_closes_with_the_repair(world: World) -> None:
    world.prepare("eu", "us")
    world.copy("eu", (1, 0, "a"), (2, 0, "b"), lsn=1000)
    world.lake.forget(TARGET, "eu", to_repair=True)
    gap = world.lake.notes.gap(TARGET, "eu")
    assert gap is not None
    assert (gap.from_lsn, gap.is_open) == (1000, True)
    world.lake.forget(TARGET, "eu", to_repair=True)
    assert world.lake.notes.gap(TARGET, "eu") == gap, "it was begun again after a kill"
    assert world.lake.notes.gap(TARGET, "us") is None
    lines = [Lines([(1, 0, "a"), (3, 0, "c")])]
    at = SourcePosition(lsn=9000, system_id="7001")
    world.lake.repair(feed("eu"), ITEMS, lines, at, lambda *_: None, at_us=5)
    assert world.of("eu") == {1: (0, "a"), 3: (0, "c")}
    assert world.position("eu") == 9000
    assert world.lake.notes.gap(TARGET, "eu") is None
    world.applied(work(Sender("eu", start=9500).one(update(3, 1, SAME))))
    assert world.of("eu") == {1: (0, "a"), 3: (1, "c")}
    world.lake.forget(TARGET, "eu", to_repair=True)
    world.lake.forget(TARGET, "eu")
    assert world.lake.notes.gap(TARGET, "eu") is None, "it is copied"


@pytest.mark.parametrize("differs", [True, False])
def test_a_source_is_repaired_from_where_it_stands_and_goes_on_there(world: World, *, differs: bool) -> None:
    world.prepare("eu")
    world.copy("eu", (1, 0, "a"), (2, 0, "b"), lsn=1000)
    eu = Sender("eu", start=2000)
    world.applied(work(eu.one(update(2, 1, "c"))))
    lines, at = [Lines([(2, 1, "c")] + [(1, 0, "a")] * (not differs))], SourcePosition(lsn=9000, system_id="7001")
    world.lake.repair(feed("eu"), ITEMS, lines, at, lambda *_: None, at_us=5, gap_lsn=800)
    left = {2: (1, "c")} if differs else {1: (0, "a"), 2: (1, "c")}
    assert (world.of("eu"), world.position("eu")) == (left, 9000)
    assert world.lake.notes.gap(TARGET, "eu") is None
    world.applied(work(eu.one(update(2, 2, "again")), Sender("eu", start=9500).one(update(2, 3, SAME))))
    assert world.of("eu") == left | {2: (3, "c")}, "what came before is in what it was compared with"


def test_a_source_that_is_elsewhere_goes_on_from_there_with_its_rows(world: World) -> None:
    world.prepare("eu", "us")
    world.copy("eu", (1, 0, "a"), (2, 0, "b"), lsn=1000)
    world.copy("us", (1, 0, "a"), lsn=1000)
    eu = Sender("eu", start=2000)
    world.applied(work(eu.one(update(2, 1, "c"))))
    position = SourcePosition(lsn=9000, system_id="7002", history=3, started_us=5)
    world.lake.relocate(TARGET, "eu", position)
    assert world.lake.positions(TARGET)["eu"] == world.lake.stored(TARGET)["eu"] == position
    assert world.lake.notes.gap(TARGET, "eu") is None
    world.applied(work(eu.one(update(2, 2, "before")), Sender("eu", start=9500).one(update(1, 3, "d"))))
    assert world.of("eu") == {1: (3, "d"), 2: (1, "c")}
    assert (world.of("us"), world.position("us")) == ({1: (0, "a")}, 1000)


def test_resume_undoes_no_failure_that_was_not_seen(world: World) -> None:
    world.prepare("eu")
    eu = Sender()
    for row in (insert(1, "x1"), insert(2, "x2")):
        seen = world.lake.failure(TARGET, "eu")
        world.lake.resume(TARGET, seen)
        (failure,) = world.apply(work(eu.one(row)))
        assert isinstance(failure, Failure)
    world.lake.resume(TARGET, seen)
    assert world.lake.failure(TARGET, "eu") is failure.error
    world.lake.resume(TARGET, failure.error)
    assert world.lake.failure(TARGET, "eu") is None


def test_resume_changes_nothing_for_a_target_that_did_not_fail(world: World) -> None:
    world.prepare("eu", "us")
    written = world.lake.write([work(Sender("us").one(insert(1)))])
    assert world.lake.failure(TARGET, "eu") is None
    world.lake.resume(TARGET, world.lake.failure(TARGET, "eu"))
    (receipt,) = world.lake.commit(written)
    assert isinstance(receipt, Receipt)
    assert world.of("us").keys() == {1}


def test_forgetting_a_source_leaves_its_rows_and_the_other_sources_changes_under_way(world: World) -> None:
    world.prepare("eu", "us")
    eu, us = Sender("eu"), Sender("us")
    world.applied(work(eu.one(insert(1), insert(2))))
    lsn = us.commit_lsn()
    world.applied(work(us.part(lsn, insert(1)), open_sources=["us"]))
    written = world.lake.write([work(us.segment([(lsn, [insert(2)])]))])
    world.lake.forget(TARGET, "eu")
    (receipt,) = world.lake.commit(written)
    assert isinstance(receipt, Receipt)
    assert (world.of("eu").keys(), world.of("us").keys()) == ({1, 2}, {1, 2})
    assert world.lake.positions(TARGET).keys() == {"us"}
    world.lake.forget(TARGET, "eu")  # and once more, as after a crash
    world.copy("eu", (2, 20, "copied"), lsn=3000)
    assert world.of("eu") == {2: (20, "copied")}
    world.applied(work(eu.one(insert(99))))  # before the snapshot
    assert world.of("eu").keys() == {2}


# Copy


def test_a_copy_replaces_the_rows_of_its_source_only(world: World) -> None:
    world.prepare("eu", "us")
    eu, us = Sender("eu"), Sender("us")
    world.applied(work(eu.one(insert(1), insert(2)), us.one(insert(1, 7))))
    receipt = world.copy("eu", (2, 20, "copied"), (3, None, "t\ta\\b"), lsn=3000)
    assert (receipt.rows, receipt.positions) == (2, {"eu": SourcePosition(lsn=3000, system_id="7001")})
    assert world.rows() == {("eu", 2): (20, "copied"), ("eu", 3): (None, "t\ta\\b"), ("us", 1): (7, "b")}
    world.applied(work(eu.one(insert(99))))  # before the snapshot
    world.applied(work(eu.segment([(3000, [update(2, 21, SAME)])])))
    assert world.of("eu") == {2: (21, "copied"), 3: (None, "t\ta\\b")}


def test_a_copy_of_an_empty_table_has_a_position(world: World) -> None:
    world.lake.prepare(target(), feed("eu"), ITEMS)
    assert world.lake.positions(TARGET) == {}
    assert world.lake.positions("shop.unheard_of") == {}
    assert (world.lake.stored(TARGET), world.lake.stored("shop.unheard_of")) == ({}, {})
    world.copy("eu", lsn=1234)
    assert world.position("eu") == world.lake.stored(TARGET)["eu"].lsn == 1234
    assert world.rows() == {}


@pytest.mark.parametrize("request_", [Lines(((1, 1, "b"),), fails=True), Lines(((1, 1, "b"), (2, "x", "b")))])
def test_a_copy_that_fails_leaves_nothing(world: World, request_: Lines) -> None:
    world.lake.prepare(target(), feed("eu"), ITEMS)
    world.prepare("us")
    us = Sender("us")
    lsn = us.commit_lsn()
    world.applied(work(us.part(lsn, insert(1)), open_sources=["us"]))
    with pytest.raises(SourceError if request_.fails else DecodeError):
        world.lake.copy(
            feed("eu"), ITEMS, [Lines(((7, 7, "b"),)), request_], SourcePosition(lsn=2000), lambda *_: None
        )
    assert world.rows() == {}
    assert "eu" not in world.lake.positions(TARGET)
    # What another source has under way is not lost.
    world.applied(work(us.segment([(lsn, [insert(2)])])))
    assert world.of("us").keys() == {1, 2}
    assert world.orphans() == []


def test_a_copy_that_is_told_to_stop_leaves_nothing(world: World) -> None:
    world.lake.prepare(target(), feed("eu"), ITEMS)

    def stop(done: int, rows: int) -> None:
        raise SourceError("stopped while copying")

    with pytest.raises(SourceError):
        world.lake.copy(feed("eu"), ITEMS, [Lines(((7, 7, "b"),))], SourcePosition(lsn=2000), stop)
    assert (world.rows(), world.orphans()) == ({}, [])


@pytest.mark.parametrize("is_repair", [False, True])
def test_what_does_not_count_when_it_is_read_leaves_nothing(world: World, *, is_repair: bool) -> None:
    world.prepare("eu")
    world.copy("eu", (1, 0, "a"), (2, 0, "b"), lsn=1000)
    world.lake.forget(TARGET, "eu", to_repair=is_repair)
    lines, at = Lines(((1, 1, "a"), (3, 0, "c"))), SourcePosition(lsn=2000)
    told: list[str] = []

    def tell(*_: object) -> None:
        told.append("read")

    def refuse() -> None:
        told.append("asked")
        raise SourceError("its columns were altered meanwhile")

    def bring(on_read: Callable[[], None]) -> None:
        if is_repair:
            world.lake.repair(feed("eu"), ITEMS, [lines], at, tell, on_read=on_read)
        else:
            world.lake.copy(feed("eu"), ITEMS, [lines], at, tell, on_read=on_read)

    with pytest.raises(SourceError, match="altered meanwhile"):
        bring(refuse)
    assert (told[-1], told.count("asked")) == ("asked", 1), "behind all that is read"
    assert world.of("eu") == {1: (0, "a"), 2: (0, "b")}
    assert "eu" not in world.lake.positions(TARGET)
    assert (world.lake.notes.gap(TARGET, "eu") is not None) is is_repair
    assert world.orphans() == []
    bring(lambda: None)
    assert world.of("eu") == {1: (1, "a"), 3: (0, "c")}


def test_a_copy_tells_how_far_it_is(world: World) -> None:
    world.lake.prepare(target(), feed("eu"), ITEMS)
    told: list[tuple[int, int]] = []
    parts = [Lines(tuple((10 * part + row, 0, "b") for row in range(part))) for part in (1, 2, 3)]
    world.lake.copy(feed("eu"), ITEMS, parts, SourcePosition(lsn=1), lambda done, rows: told.append((done, rows)))
    assert [done for done, _ in told] == [1, 2, 3]
    assert told[-1][1] == 6


# Schema


def test_columns_are_added(world: World) -> None:
    world.prepare("eu")
    eu = Sender()
    world.applied(work(eu.one(insert(1))))
    wider = relation(Column(name="extra", pg_type=INT4))
    (failure,) = world.apply(work(Sender(relation=wider, start=2000).one(insert(2, 0, "b", 5))))
    assert isinstance(failure, Failure)
    assert isinstance(failure.error, SchemaError)
    assert "columns extra are not in the lake table shop.items" in str(failure.error)
    world.lake.resume(TARGET, world.lake.failure(TARGET, "eu"))
    world.lake.prepare(target(), feed("eu"), wider)
    world.applied(work(Sender(relation=wider, start=2000).one(insert(2, 0, "b", 5), insert(3, 0, "b", None))))
    assert world.of("eu") == {1: (0, "b", None), 2: (0, "b", 5), 3: (0, "b", None)}
    # A source that lacks the column leaves it empty.
    world.prepare("us")
    world.applied(work(Sender("us").one(insert(1))))
    assert world.of("us") == {1: (0, "b", None)}


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (
            Column(name="n", pg_type=PgType(oid=20, name="int8")),
            "column n is long by its type int8, but int in the lake",
        ),
        (
            Column(name="n", pg_type=PgType(oid=1082, name="date")),
            "column n is date by its type date, but int in the",
        ),
    ],
)
def test_a_relation_whose_types_the_lake_cannot_hold_is_refused(world: World, column: Column, text: str) -> None:
    world.prepare("eu")
    columns = tuple(column if one.name == column.name else one for one in ITEMS.columns)
    other = dataclasses.replace(ITEMS, columns=columns)
    with pytest.raises(SchemaError, match=r"source us, table public\.items: ") as refused:
        world.lake.prepare(target(), feed("us"), other)
    assert text in str(refused.value)
    (failure,) = world.apply(work(Sender(relation=other).one(insert(1))))
    assert isinstance(failure, Failure)
    assert text in str(failure.error)


def test_a_relation_with_another_key_is_refused(world: World) -> None:
    world.prepare("eu")
    columns = tuple(dataclasses.replace(column, is_key=column.name == "n") for column in ITEMS.columns)
    with pytest.raises(SchemaError, match=r"\(n\).*, but .* \(id\)"):
        world.lake.prepare(target(), feed("us"), dataclasses.replace(ITEMS, columns=columns))


def test_a_source_column_called_sid_is_refused(world: World) -> None:
    taken = relation(Column(name="sid", pg_type=INT4))
    with pytest.raises(SchemaError, match=r"has a column named sid, which the target shop\.items needs itself"):
        world.lake.prepare(Target(name=TARGET, has_sid=True), feed("eu"), taken)


def test_how_a_table_was_published_comes_with_its_copy(world: World) -> None:
    world.lake.prepare(target(), feed("eu"), ITEMS)
    assert world.lake.notes.published(TARGET, "eu") is None
    at = SourcePosition(lsn=1000, system_id="7001", published="5:700, table 6:701")
    world.lake.copy(feed("eu"), ITEMS, [], at, lambda *_: None)
    assert world.lake.notes.published(TARGET, "eu") == "5:700, table 6:701"
    world.applied(work(Sender().one(insert(1))))
    assert world.lake.notes.published(TARGET, "eu") == "5:700, table 6:701"
    world.lake.notes.remember_published(TARGET, "eu", "5:700, table 6:800")
    assert world.lake.notes.published(TARGET, "eu") == "5:700, table 6:800"


def test_that_rows_were_left_out_is_known_until_a_copy_or_a_repair(world: World) -> None:
    world.lake.prepare(target(), feed("eu"), ITEMS)
    world.prepare("us")
    assert not world.lake.notes.skipped(TARGET, "eu")
    at = SourcePosition(lsn=1000, system_id="7001", published="5:700", is_skip=True)
    for to_repair in (False, True):
        world.lake.copy(feed("eu"), ITEMS, [], at, lambda *_: None)
        assert (world.lake.notes.skipped(TARGET, "eu"), world.lake.notes.skipped(TARGET, "us")) == (True, False)
        world.applied(work(Sender().one(insert(1))))
        world.lake.forget(TARGET, "eu", to_repair=to_repair)
        assert world.lake.notes.skipped(TARGET, "eu")
        copied = dataclasses.replace(at, lsn=9000, is_skip=False)
        if to_repair:
            world.lake.repair(feed("eu"), ITEMS, [], copied, lambda *_: None, at_us=0)
        else:
            world.lake.copy(feed("eu"), ITEMS, [], copied, lambda *_: None)
        assert not world.lake.notes.skipped(TARGET, "eu")
        world.lake.forget(TARGET, "eu")


def test_partitions_are_remembered_until_their_source_is_another_one(world: World) -> None:
    world.prepare("eu", "us")
    world.copy("eu", lsn=1000)
    for source in ("eu", "us"):
        world.lake.notes.remember_partitions(TARGET, source, frozenset({"5:6 10:7 =10 public.p"}))
    world.lake.forget(TARGET, "eu", to_repair=True)
    assert world.lake.notes.partitions(TARGET, "eu") is not None
    world.lake.forget(TARGET, "eu", is_gone=True)
    assert world.lake.notes.partitions(TARGET, "eu") is None
    assert world.lake.notes.partitions(TARGET, "us") == {"5:6 10:7 =10 public.p"}


def test_a_target_is_created_before_anybody_feeds_it(world: World) -> None:
    assert world.lake.create(target(), feed("eu"), ITEMS)
    assert not world.lake.create(target(), feed("eu"), ITEMS)
    assert world.lake.recorded(TARGET) == {}
    world.prepare("eu")
    assert world.lake.positions(TARGET)["eu"].lsn == 1000
    assert not world.lake.create(target(), feed("eu"), ITEMS), "it is as it was"


def test_a_target_says_which_columns_it_has(world: World) -> None:
    assert world.lake.notes.lake_columns(TARGET) == ()
    world.prepare("eu")
    found = world.lake.notes.lake_columns(TARGET)
    assert [(one.name, one.type) for one in found][:2] == [("sid", "string"), ("id", "long")]
    assert len({one.field_id for one in found}) == len(found)


def test_a_target_that_is_not_prepared_can_be_attached(world: World) -> None:
    assert not world.lake.attach(target(), feed("eu"))
    assert world.lake.notes.columns(TARGET, "eu") is None
    world.prepare("eu")
    assert world.lake.attach(target(), feed("eu"))
    assert world.lake.positions(TARGET)["eu"].lsn == 1000


def test_a_source_that_feeds_a_target_no_more_is_told(world: World) -> None:
    world.prepare("eu", "us", "eu/7")
    world.prepare("eu", name=OTHER)
    assert world.lake.unmapped({"eu": {TARGET, OTHER}, "eu/*": {TARGET}, "us": {TARGET}}) == []
    assert world.lake.unmapped({"eu": {TARGET, OTHER}, "eu/*": (), "us": {TARGET}}, {TARGET}) == [(TARGET, "eu/7")]
    found = world.lake.unmapped({"eu": {OTHER}, "eu/*": {OTHER}, "us": {TARGET}})
    assert sorted(found) == [(TARGET, "eu"), (TARGET, "eu/7")]
    assert world.lake.unmapped({"ap": {TARGET, OTHER}}) == [], "other sources are someone else's"
    for name, source in found:
        world.lake.forget(name, source, to_repair=True)
    assert world.lake.unmapped({"eu": {OTHER}, "eu/*": {OTHER}, "us": {TARGET}}) == []


def test_a_source_is_told_in_a_namespace_that_it_feeds_no_more(world: World) -> None:
    world.prepare("eu", name=ELSEWHERE)
    assert world.lake.unmapped({"eu": {TARGET}}, {ELSEWHERE}) == [(ELSEWHERE, "eu")]
    assert world.lake.unmapped({"eu": {TARGET, ELSEWHERE}}, {ELSEWHERE}) == []


def test_what_is_parked_of_a_source_is_known_until_it_is_replayed_or_forgotten(world: World) -> None:
    world.prepare("eu", "us")
    assert world.lake.notes.parked(TARGET, "eu") is None
    world.lake.notes.park(TARGET, "eu", "a" * 32)
    world.lake.notes.park(TARGET, "us", "b" * 32)
    eu = Sender("eu")
    world.applied(work(eu.one(insert(1))))
    world.copy("us", lsn=2000)
    world.lake.prepare(target(), feed("eu"), ITEMS)
    assert [world.lake.notes.parked(TARGET, source) for source in ("eu", "us")] == ["a" * 32, "b" * 32]
    world.lake.notes.park(TARGET, "eu", "c" * 32)
    assert world.lake.notes.parked(TARGET, "eu") == "c" * 32
    world.lake.notes.park(TARGET, "eu", None)
    world.lake.notes.park(TARGET, "eu", None)
    assert world.lake.notes.parked(TARGET, "eu") is None
    world.lake.forget(TARGET, "us")
    assert world.lake.notes.parked(TARGET, "us") is None
