from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.decode import messages
from kuvasz.model import Delivery, PgType, Relation
from kuvasz.route import many
from kuvasz.route.assembler import Assembler
from kuvasz.route.many import FoundGulp
from tests.support import pgoutput
from tests.support.examples import examples
from tests.support.pgoutput import begin, commit, keepalive, origin, relation, row, truncate


class Routed:
    """OIDs 1 and 2 to workers 0 and 1, 8 nowhere."""

    def worker(self, source: str, relation: Relation) -> int | None:
        del source
        return {1: 0, 2: 1}.get(relation.oid)


def types(oids: list[int]) -> dict[int, PgType]:
    return {oid: PgType(oid=oid, name="text") for oid in oids}


def read(*gulps: list[bytes]) -> list[FoundGulp | None]:
    """Read gulps that came together."""
    payloads, lengths = pgoutput.gulp([message for gulp in gulps for message in gulp])
    return many.read(np.frombuffer(payloads, np.uint8), lengths, np.cumsum([len(gulp) for gulp in gulps]))


def test_each_gulp_has_its_own() -> None:
    silent, hint, changed, open_one, other = read(
        [],
        [keepalive(150, reply=True), keepalive(120)],
        [
            begin(100, xid=7, us=5), row(1, "a"), row(2, "b"), row(1, "c"), commit(100, 148), keepalive(150),
            begin(200, xid=8, us=6), row(1, "d", b"D"), commit(200, 210),
        ],
        [begin(100), row(1, "a")],
        [begin(300, xid=9, us=7), row(2, "e"), commit(300, 348)],
    )  # fmt: skip
    assert silent == (0, False, 0, 0, 0, [])
    assert hint == (150, True, 0, 0, 0, [])
    assert open_one is None
    assert changed is not None
    assert changed[:5] == (210, False, 2, 210, 6)
    first, second = changed.runs
    assert (first.oid, second.oid) == (1, 2)
    assert first.transactions.row_end.tolist() == [2, 3]
    assert first.transactions.end_lsn.tolist() == [148, 210]
    assert first.data == b"".join(message[25:] for message in (row(1, "a"), row(1, "c"), row(1, "d", b"D")))
    assert (second.transactions.xid.tolist(), second.lengths.tolist()) == ([7], [len(second.data)])
    assert other is not None
    (run,) = other.runs
    assert (run.data, run.transactions.commit_us.tolist()) == (row(2, "e")[25:], [7])


def test_nothing_is_nothing() -> None:
    assert read() == []


@pytest.mark.parametrize("stream", [
    [begin(100)], [begin(100), row(1, "a")], [commit(100)], [row(1, "a")], [begin(100), begin(200)],
    [begin(100), relation(1), commit(100)], [begin(100), truncate(1), commit(100)],
    [begin(100), origin(1), commit(100)], [begin(100), commit(101, 110)], [begin(100), commit(100, 100)],
    [begin(messages.LAST_LSN), commit(messages.LAST_LSN)], [keepalive(messages.LAST_LSN + 1)],
    [begin(100), row(1, "a"), commit(100)[:-1]], [begin(100)[:-1], commit(100)], [begin(100), row(1, "a")[:29]],
    [b""], [b"w"], [b"x" * 18], [keepalive(5)[:-1]], [keepalive(5)] * (many.MOST_MESSAGES + 1),
])  # fmt: skip
def test_what_is_rare_open_large_or_wrong_is_left_to_its_own(stream: list[bytes]) -> None:
    small = [begin(100), row(1, "a"), commit(100)]
    first, found, last = read(small, stream, small)
    assert found is None
    assert first is not None
    assert last is not None
    assert (first.runs[0].data, last.runs[0].data) == (row(1, "a")[25:],) * 2


def test_within_a_transaction_a_keepalive_says_nothing_of_what_was_received() -> None:
    (found,) = read([begin(100), keepalive(900), commit(100, 148)])
    assert found is not None
    assert found.received_lsn == 148


def assembler() -> Assembler:
    target = Assembler("eu", Routed(), types, 1 << 20)
    described = [begin(100), relation(1), row(1, "a"), relation(2), relation(8), row(8, "a"), commit(100)]
    target.feed(*pgoutput.gulp(described))
    return target


@pytest.mark.parametrize("before", [[begin(200), row(1, "a")], [begin(200), truncate(1)]])
def test_an_assembler_within_a_transaction_takes_none(before: list[bytes]) -> None:
    target = assembler()
    target.feed(*pgoutput.gulp(before))
    for stream in ([keepalive(500)], [begin(300), row(1, "a"), commit(300)]):
        (found,) = read(stream)
        assert found is not None
        assert target.take(found) is None


def test_a_relation_that_was_not_described_is_not_taken() -> None:
    target = assembler()
    (found,) = read([begin(300), row(1, "b"), row(3, "a"), commit(300)])
    assert found is not None
    assert (target.take(found), target.rows, target.received_lsn) == (None, 1, 108)


def test_a_keepalive_of_before_takes_nothing_back() -> None:
    target = assembler()
    (found,) = read([keepalive(50)])
    assert found is not None
    assert target.take(found) == []
    assert target.received_lsn == 108


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


def _outcome(target: Assembler, deliveries: list[tuple[int, Delivery]] | None) -> Any:
    assert deliveries is not None
    told = [
        (worker, one.through, one.bytes, one.is_open, [pgoutput.events(change) for change in one.changes])
        for worker, one in deliveries
    ]
    facts = target.received_lsn, target.commit_us, target.rows, target.dropped_rows, target.transactions
    return told, facts, target.in_transaction, target.take_reply_wanted()


@settings(max_examples=examples(60))
@given(st.lists(_transactions, min_size=1, max_size=4))
def test_gulps_that_are_read_together_say_what_each_says_by_itself(sources: list[Any]) -> None:
    streams = [_stream(transactions) for transactions in sources]
    for stream, found in zip(streams, read(*streams), strict=True):
        together, alone = assembler(), assembler()
        assert found is not None
        assert _outcome(together, together.take(found)) == _outcome(alone, alone.feed(*pgoutput.gulp(stream)))
