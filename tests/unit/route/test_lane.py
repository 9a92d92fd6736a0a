"""What is kept from one gulp to the next: where the cursor stands, and rows whose transaction is not over."""

from __future__ import annotations

import numpy as np
import pytest

from kuvasz.model import Relation, ReplicaIdentity, TableName
from kuvasz.route import scan
from kuvasz.route.lane import Begun, Gulp, Lane, PendingTruncation
from tests.support import pgoutput
from tests.support.pgoutput import begin, commit, keepalive, row

BEGUN = Begun(commit_lsn=100, commit_us=5, xid=7)
RELATION = Relation(
    oid=1, table=TableName(schema="public", name="t"), columns=(), identity=ReplicaIdentity.DEFAULT
)  # fmt: skip


def gulp(*messages: bytes, begun: Begun | None = None) -> Gulp:
    data, lengths = pgoutput.gulp(list(messages))
    return Gulp(np.frombuffer(data, np.uint8), lengths, begun)


def with_rows(*texts: str, transactions: list[int] | None = None, begun: Begun | None = BEGUN) -> Gulp:
    """A gulp of rows as `scan.classify` leaves it."""
    messages = [row(1, text) for text in texts]
    found = gulp(*messages, begun=begun)
    ends = np.cumsum([len(message) for message in messages])
    head = len(messages[0]) - len(row(1, texts[0])[25:])
    for number, (message, end) in enumerate(zip(messages, ends.tolist(), strict=True)):
        found.sheet.offset[number] = end - len(message) + head
        found.sheet.length[number] = len(message) - head
        found.sheet.transaction[number] = (transactions or [0] * len(texts))[number]
    return found


def test_a_transaction_that_was_open_is_number_0() -> None:
    found = gulp(begun=BEGUN)
    assert found.is_open
    assert not found.has_ended
    assert found.last_transaction == 0
    assert found.begun() == BEGUN
    assert gulp().begun() is None
    assert gulp().last_transaction == -1


def test_a_message_is_seen_and_skipped() -> None:
    found = gulp(begin(200), commit(200))
    assert found.message()[:1] == b"B"
    found.skip()
    assert found.message()[:1] == b"C"
    assert int(found.cursor[scan.MESSAGE]) == 1


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ((row(77, "a"),), (True, 77)),
        ((keepalive(5), keepalive(6), row(78, "a", b"D")), (True, 78)),
        ((keepalive(5), commit(1)), (True, 0)),
        ((keepalive(5),), (False, 0)),
        ((), (False, 0)),
    ],
)
def test_the_next_message_is_found_behind_keepalives(messages: tuple[bytes, ...], expected: tuple[bool, int]) -> None:
    found = gulp(begin(200), *messages)
    found.skip()
    assert found.row_behind() == expected


def test_rows_of_several_gulps_are_one_segment_of_their_transaction() -> None:
    lane = Lane(0, RELATION)
    first = with_rows("a", "b")
    lane.append(first, np.array([0, 1], np.int32), int(first.sheet.length[:2].sum()))
    waiting = lane.waiting_bytes
    lane.keep()
    last = with_rows("c")
    lane.append(last, np.array([0], np.int32), int(last.sheet.length[0]))
    assert lane.waiting_bytes == waiting + int(last.sheet.length[0])
    lane.close(last, "eu")
    (segment,) = lane.segments
    assert pgoutput.texts(segment) == ["a", "b", "c"]
    assert {one[1:] for one in pgoutput.rows_of(segment)} == {(100, 101, 5, 7)}
    assert lane.waiting_bytes == 0


def test_rows_of_several_transactions_keep_their_bounds() -> None:
    lane = Lane(0, RELATION)
    cut = with_rows("a", "b", "c", transactions=[0, 1, 1])
    cut.sheet.commit_lsn[1], cut.sheet.end_lsn[1] = 200, 208
    lane.append(cut, np.array([0, 1, 2], np.int32), int(cut.sheet.length[:3].sum()))
    lane.close(cut, "eu")
    assert [one[1] for one in pgoutput.rows_of(lane.segments[0])] == [100, 200, 200]


def test_rows_that_are_held_over_belong_to_the_open_transaction() -> None:
    """It is number 0 of the next gulp, whatever number it had in this one."""
    lane = Lane(0, RELATION)
    cut = with_rows("a", transactions=[3], begun=None)
    lane.append(cut, np.array([0], np.int32), int(cut.sheet.length[0]))
    lane.keep()
    following = gulp(begun=BEGUN)
    lane.close(following, "eu")
    assert [one[1:] for one in pgoutput.rows_of(lane.segments[0])] == [(100, 101, 5, 7)]


def test_a_lane_serves_one_relation_version_for_one_worker() -> None:
    lane = Lane(1, RELATION)
    other = Relation(oid=1, table=TableName(schema="public", name="u"), columns=(), identity=ReplicaIdentity.DEFAULT)
    assert lane.serves(1, RELATION)
    assert not lane.serves(0, RELATION)
    assert not lane.serves(1, other)


def test_a_truncation_gets_the_facts_of_its_transaction() -> None:
    pending = PendingTruncation(place=0, worker=0, relation=RELATION, transaction=0)
    found = gulp(begun=BEGUN).truncation("eu", pending)
    assert (found.source, found.commit_lsn, found.end_lsn, found.commit_us, found.xid) == ("eu", 100, 101, 5, 7)
