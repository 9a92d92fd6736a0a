"""A stream that was cut, staged and told again is what a server would tell whoever begins there."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.staging import slice_format
from kuvasz.staging.cutter import Cutter
from kuvasz.staging.retelling import Retelling
from kuvasz.staging.stream_messages import StreamMessages
from kuvasz.staging.stretch import Stretch
from tests.support import pgoutput
from tests.support.examples import examples
from tests.support.pgoutput import begin, commit, relation, row
from tests.support.told_stream import Told, connection, histories


def cut(cutter: Cutter, messages: list[bytes], at: list[int]) -> list[Stretch]:
    """Feed messages in gulps that end at some of them."""
    found = []
    for first, last in itertools.pairwise(sorted({0, len(messages), *(place % (len(messages) + 1) for place in at)})):
        found += cutter.feed(StreamMessages(*pgoutput.gulp(messages[first:last])))
    return found


def payloads(data: bytes, lengths: np.ndarray) -> list[bytes]:
    ends = np.cumsum(lengths).tolist()
    return [data[a:b] for a, b in itertools.pairwise([0, *ends])]


def once(messages: Iterable[bytes]) -> list[bytes]:
    """Leave out keepalives, and descriptions that say what the last one said: another connection describes anew."""
    known: dict[bytes, list[bytes]] = {}
    found: list[bytes] = []
    kinds: list[bytes] = []
    for message in messages:
        tag, oid = message[25:26], message[26:30]
        if tag == b"Y":
            kinds.append(message)
        elif tag == b"R":
            description, kinds = [*kinds, message], []
            if known.get(oid) != description:
                found += description
            known[oid] = description
        elif message[:1] != b"k":
            found.append(message)
    return found


def heard(stretches: list[Stretch], from_lsn: int, staged: int) -> list[bytes]:
    """What somebody hears who begins at an LSN: some stretches from slices, the others from memory."""
    retelling, found = Retelling(from_lsn), []
    parts = [list(group) for _, group in itertools.groupby(stretches[:staged], lambda one: bool(one.open_lsn))]
    for part in parts:
        through = part[-1].through
        if through <= from_lsn:
            continue  # the index leaves it out
        held = slice_format.decode(b"".join(slice_format.encode("eu", part)), "eu", part[0].number, part[-1].number)
        found += payloads(*retelling.tell(held.data, held.lengths, held.needs, open_lsn=part[-1].open_lsn))
    for one in stretches[staged:]:
        found += payloads(
            *retelling.tell(one.data, one.lengths, one.needs, describes=one.describes, open_lsn=one.open_lsn)
        )
    return found


@settings(max_examples=examples(300), deadline=None)
@given(
    told=histories(), at=st.lists(st.integers(0, 200)), begin_at=st.integers(0, 400), staged=st.integers(0, 30),
    part_bytes=st.sampled_from([1, 200, 1 << 20]), broken=st.integers(0, 200), back=st.integers(0, 400),
)  # fmt: skip
def test_whoever_begins_anywhere_hears_what_the_server_would_tell(
    told: list[Told], at: list[int], begin_at: int, staged: int, part_bytes: int, broken: int, back: int
) -> None:
    cutter = Cutter(50, 0, 0, part_bytes)
    messages = list(connection(told, 0, keepalives=True))
    stretches = cut(cutter, messages[: broken % (len(messages) + 1)], at)
    # The connection breaks: parts of a transaction that has not ended are given up, and the server, which may have
    # forgotten what it was told last, begins somewhere before.
    while stretches and stretches[-1].open_lsn:
        stretches.pop()
    number = stretches[-1].number if stretches else 0
    cutter = Cutter(cutter.lsn, cutter.ended, number, part_bytes)
    stretches += cut(cutter, list(connection(told, min(back, cutter.ended), keepalives=True)), at)
    assert [one.number for one in stretches] == list(range(1, len(stretches) + 1))
    assert cutter.ended == told[-1].end
    from_lsn = max([0, *(one.end for one in told if one.end <= begin_at)])
    assert once(heard(stretches, from_lsn, staged)) == list(connection(told, from_lsn))


def test_a_description_that_was_heard_is_not_told_again() -> None:
    cutter, retelling = Cutter(50, 0, 0), Retelling(0)
    first = [begin(100), relation(1), row(1, "a"), commit(100)]
    second = [begin(200), row(1, "b"), commit(200)]
    for messages in (first, second):
        (one,) = cutter.feed(StreamMessages(*pgoutput.gulp(messages)))
        told = retelling.tell(one.data, one.lengths, one.needs, describes=one.describes)
        assert payloads(*told) == messages


def test_what_was_told_is_left_out_where_the_next_piece_begins_with_it() -> None:
    cutter, retelling = Cutter(50, 0, 0), Retelling(0)
    first = [begin(100), relation(1), row(1, "a"), commit(100)]
    second = [begin(200), row(1, "b"), commit(200)]
    one, two = (cutter.feed(StreamMessages(*pgoutput.gulp(messages)))[0] for messages in (first, second))
    retelling.tell(one.data, one.lengths, one.needs, describes=one.describes)
    retelling.go_on(108)
    held = slice_format.decode(b"".join(slice_format.encode("eu", [one, two])), "eu", 1, 2)
    assert payloads(*retelling.tell(held.data, held.lengths, held.needs)) == second


def test_nothing_is_told_that_ended_before() -> None:
    cutter, retelling = Cutter(50, 0, 0), Retelling(150)
    (one,) = cutter.feed(StreamMessages(*pgoutput.gulp([begin(100), relation(1), row(1, "a"), commit(100)])))
    assert payloads(*retelling.tell(one.data, one.lengths, one.needs, describes=one.describes)) == []
    (two,) = cutter.feed(StreamMessages(*pgoutput.gulp([begin(200), row(1, "b"), commit(200)])))
    told = payloads(*retelling.tell(two.data, two.lengths, two.needs, describes=two.describes))
    assert told == [begin(200), relation(1), row(1, "b"), commit(200)]
