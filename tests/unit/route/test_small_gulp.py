from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz import errors
from kuvasz.decode import messages
from kuvasz.model import Delivery, PgType, Relation
from kuvasz.route import small_gulp
from kuvasz.route.assembler import Assembler
from kuvasz.route.small_gulp import SmallGulp
from tests.support import pgoutput
from tests.support.examples import examples
from tests.support.pgoutput import begin, commit, keepalive, origin, relation, row, truncate

NOWHERE = -1
LANE_OF = {1: 0, 2: 1, 8: NOWHERE}


class Routed:
    """OIDs 1 and 2 to workers 0 and 1, 8 nowhere."""

    def worker(self, source: str, relation: Relation) -> int | None:
        del source
        return {1: 0, 2: 1}.get(relation.oid)


def types(oids: list[int]) -> dict[int, PgType]:
    return {oid: PgType(oid=oid, name="text") for oid in oids}


def read(*stream: bytes) -> SmallGulp | None:
    found = SmallGulp(LANE_OF, NOWHERE, 50)
    gulp, lengths = pgoutput.gulp(list(stream))
    return found if found.read(bytes(gulp), lengths) else None


def test_rows_go_to_their_lanes_with_the_runs_of_their_transactions() -> None:
    found = read(
        begin(100, xid=7, us=5), row(1, "a"), row(2, "b"), row(1, "c"), commit(100, 148), keepalive(150, reply=True),
        begin(200, xid=8, us=6), row(8, "x"), row(1, "d", b"D"), commit(200, 210),
    )  # fmt: skip
    assert found is not None
    assert found.transactions == [(100, 148, 5, 7), (200, 210, 6, 8)]
    assert (found.received_lsn, found.is_reply_wanted, found.dropped_rows) == (210, True, 1)
    runs = {number: lane.transactions(found.transactions) for number, lane in found.lanes.items()}
    assert runs[0].row_end.tolist() == [2, 3]
    assert runs[0].end_lsn.tolist() == [148, 210]
    assert runs[1].xid.tolist() == [7]
    assert sum(found.lanes[0].lengths) == len(b"".join(found.lanes[0].rows))


@pytest.mark.parametrize("stream", [
    (begin(100),), (begin(100), row(1, "a")), (commit(100),), (row(1, "a"),), (begin(100), begin(200)),
    (begin(100), relation(1), commit(100)), (begin(100), truncate(1), commit(100)),
    (begin(100), origin(1), commit(100)), (begin(100), row(3, "a"), commit(100)), (begin(100), commit(101, 110)),
    (begin(100), commit(100, 100)), (begin(messages.LAST_LSN), commit(messages.LAST_LSN)),
    (keepalive(messages.LAST_LSN + 1),), (begin(100), row(1, "a")[:-1] + b"", commit(100)[:-1]), (b"",), (b"w",),
    (b"x" * 18,), (keepalive(5)[:-1],),
])  # fmt: skip
def test_what_is_rare_open_or_wrong_is_left_to_others(stream: tuple[bytes, ...]) -> None:
    assert read(*stream) is None


def test_within_a_transaction_a_keepalive_says_nothing_of_what_was_received() -> None:
    found = read(begin(100), keepalive(900), commit(100, 148))
    assert found is not None
    assert found.received_lsn == 148


def test_lengths_that_do_not_fit_the_bytes_are_left_to_others() -> None:
    gulp, lengths = pgoutput.gulp([keepalive(60)])
    assert not SmallGulp(LANE_OF, NOWHERE, 0).read(bytes(gulp)[:-1], lengths)
    assert not SmallGulp(LANE_OF, NOWHERE, 0).read(bytes(gulp) + b"k", lengths)
    assert SmallGulp(LANE_OF, NOWHERE, 0).read(b"", np.array([], np.uint32))


def test_few_messages_with_many_bytes_are_left_to_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    target, read = Assembler("eu", Routed(), types, 1 << 20), list[int]()
    target.feed(*pgoutput.gulp([begin(100), relation(1), row(1, "a"), commit(100)]))
    monkeypatch.setattr(SmallGulp, "read", lambda _, data, __: read.append(len(data)) or False)
    for size in (1, small_gulp.MOST_BYTES):
        (delivery,) = target.feed(*pgoutput.gulp([begin(200), row(1, "v" * size), commit(200)]))
        assert delivery[1].bytes > size
    assert len(read) == 1


_rows = st.tuples(st.sampled_from([1, 2, 8]), st.integers(1, 4), st.sampled_from([b"I", b"U", b"D"]))
_transactions = st.lists(st.tuples(st.lists(_rows, max_size=4), st.booleans()), min_size=1, max_size=4)


def _stream(transactions: list[tuple[list[tuple[int, int, bytes]], bool]]) -> list[bytes]:
    stream, lsns = [], itertools.count(1000, 50)
    for xid, (rows, is_followed) in enumerate(transactions):
        lsn = next(lsns)
        stream += [begin(lsn, xid=xid, us=lsn * 3), *(row(oid, "v" * size, kind) for oid, size, kind in rows)]
        stream.append(commit(lsn))
        stream += [keepalive(lsn + 20, reply=xid % 2 == 0)] if is_followed else []
    return stream


def _told(deliveries: list[tuple[int, Delivery]]) -> list[Any]:
    return [
        (worker, one.through, one.bytes, one.is_open, [pgoutput.events(change) for change in one.changes])
        for worker, one in deliveries
    ]


def _outcome(target: Assembler, gulp: Any, lengths: Any) -> Any:
    try:
        deliveries = _told(target.feed(gulp, lengths))
    except errors.DecodeError as error:
        return str(error)
    facts = target.received_lsn, target.commit_us, target.rows, target.dropped_rows, target.transactions
    return deliveries, facts, target.in_transaction, target.take_reply_wanted()


@settings(deadline=None, max_examples=examples(150))
@given(_transactions.map(_stream), st.data())
def test_it_is_read_as_kernels_read_it_damaged_or_not(stream: list[bytes], data: st.DataObject) -> None:
    gulp, lengths = pgoutput.gulp(stream)
    damaged = bytearray(gulp)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    outcomes = []
    for most in (small_gulp.MOST_MESSAGES, -1):
        target = Assembler("eu", Routed(), types, 1 << 20)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(small_gulp, "MOST_MESSAGES", -1)
            described = [message for oid in (1, 2, 8) for message in (relation(oid, f"t{oid}"), row(oid, "a"))]
            target.feed(*pgoutput.gulp([begin(100), *described, commit(100)]))
            patch.setattr(small_gulp, "MOST_MESSAGES", most)
            outcomes.append(_outcome(target, damaged, lengths))
    assert outcomes[0] == outcomes[1]
