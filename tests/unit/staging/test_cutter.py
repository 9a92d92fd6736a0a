"""How a stream is cut; that nothing of it is lost is `test_retelling`'s."""

from __future__ import annotations

import numpy as np
import pytest

from kuvasz.errors import DecodeError
from kuvasz.staging import cutter as cutter_module
from kuvasz.staging.cutter import Cutter
from kuvasz.staging.stream_messages import StreamMessages
from kuvasz.staging.stretch import Stretch
from tests.support import pgoutput
from tests.support.pgoutput import begin, commit, keepalive, relation, row


def feed(cutter: Cutter, *messages: bytes) -> list[Stretch]:
    """Feed a gulp whose memory is the next one's at once, as that of a connection is."""
    data, lengths = pgoutput.gulp(list(messages))
    arena, lengths = np.frombuffer(bytearray(data), np.uint8), lengths.copy()
    try:
        return cutter.feed(StreamMessages(arena, lengths))
    finally:
        arena[:] = lengths[:] = 0


def test_a_transaction_waits_for_its_end() -> None:
    cutter = Cutter(50, 0, 7)
    (first,) = feed(cutter, begin(100), relation(1), row(1, "a"), commit(100), begin(200), row(1, "b"))
    assert (first.number, first.lsn, first.ended, first.open_lsn, len(first.lengths)) == (8, 108, 108, 0, 4)
    assert feed(cutter, row(1, "c")) == []
    assert first.data == b"".join((begin(100), relation(1), row(1, "a"), commit(100)))
    (second,) = feed(cutter, commit(200), keepalive(300))
    assert second.data == b"".join((begin(200), row(1, "b"), row(1, "c"), commit(200), keepalive(300)))
    assert second.lengths.sum() == len(second.data)
    assert (second.number, second.lsn, second.ended, second.through, len(second.lengths)) == (9, 300, 208, 208, 5)
    assert (list(first.needs), list(second.needs)) == ([], [1])


def test_one_that_is_large_goes_on_in_parts() -> None:
    cutter = Cutter(50, 0, 0, part_bytes=60)
    assert feed(cutter, begin(100)) == []
    (part,) = feed(cutter, relation(1), row(1, "a"))
    assert (part.lsn, part.ended, part.open_lsn, part.through) == (50, 0, 100, 101)
    (rest,) = feed(cutter, commit(100))
    assert (rest.lsn, rest.ended, rest.open_lsn, rest.number) == (108, 108, 0, 2)


def test_what_only_says_how_far_the_server_is_has_no_rows() -> None:
    cutter = Cutter(50, 0, 0)
    (one,) = feed(cutter, keepalive(90, reply=True))
    assert (one.has_rows, one.lsn, one.ended) == (False, 90, 0)
    assert one.data == keepalive(90), "whoever received it has answered"
    (two,) = feed(cutter, begin(100), relation(1), row(1, "a"), commit(100))
    assert two.has_rows


def test_what_comes_again_is_left_out() -> None:
    cutter = Cutter(300, 208, 4)
    first = begin(100), relation(1), row(1, "a"), commit(100)
    assert feed(cutter, *first) == []
    (fresh,) = feed(cutter, begin(200), row(1, "b"), commit(200), begin(310), row(1, "c"), commit(310))
    assert (fresh.number, fresh.ended, fresh.lsn, len(fresh.lengths)) == (5, 318, 318, 3)
    assert list(fresh.needs) == [1], "it was described by what was left out"


def test_relations_are_not_kept_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutter_module, "_MOST_DESCRIBED_BYTES", 10_000)
    cutter = Cutter(50, 0, 0)
    for _ in range(1000):
        feed(cutter, relation(1), keepalive(60))
    many = [message for oid in range(2, 1000) for message in (relation(oid), keepalive(60))]
    with pytest.raises(DecodeError, match="on one connection"):
        feed(cutter, *many)


def test_what_is_no_stream_is_refused() -> None:
    for messages in ([begin(100)[:30]], [b"w" + bytes(24) + b"C"], [begin(1), row(1, "a")[:28]]):
        with pytest.raises(DecodeError, match="shorter than its kind"):
            feed(Cutter(50, 0, 0, part_bytes=1), *messages)
    data, lengths = pgoutput.gulp([begin(100)])
    with pytest.raises(DecodeError, match="do not make"):
        StreamMessages(data + b"x", lengths)
