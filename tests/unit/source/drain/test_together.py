from __future__ import annotations

import numpy as np
import pytest

from kuvasz.source.drain import together
from kuvasz.source.drain.together import TakenMessages
from tests.support.libpq import Library


@pytest.fixture(scope="module")
def library() -> Library:
    return Library()


def contents(taken: TakenMessages) -> list[tuple[bytes, list[int]]]:
    """Return what each connection had: payloads and the lengths of messages."""
    found, byte, message = [], 0, 0
    for byte_end, message_end in zip(taken.byte_ends.tolist(), taken.message_ends.tolist(), strict=True):
        found.append((taken.payloads[byte:byte_end].tobytes(), taken.lengths[message:message_end].tolist()))
        byte, message = byte_end, message_end
    return found


def test_all_that_arrived_is_taken_of_each(library: Library) -> None:
    (first, one), (second, _), (third, three) = (library.connect() for _ in range(3))
    one += [b"a", b"bcd"]
    three += [b"ef"]
    taken = together.take([first, second, third])
    assert contents(taken) == [(b"abcd", [1, 3]), (b"", []), (b"ef", [2])]
    assert taken.is_all == [True, True, True]
    assert not taken.pending[:, 1].any()
    assert not one
    assert not three


def test_of_one_that_has_much_no_more_is_taken_than_leaves_room_for_all(library: Library) -> None:
    (first, one), (second, two) = library.connect(), library.connect()
    one += [b"x" * together.MOST_BYTES, b"y"]
    two += [b"z" * 100]
    taken = together.take([first, second])
    assert contents(taken) == [(b"x" * together.MOST_BYTES, [together.MOST_BYTES]), (b"z" * 100, [100])]
    assert taken.is_all == [False, True]
    assert one == [b"y"]


@pytest.mark.parametrize("size", [together.MOST_BYTES + 1, 4 << 20])
def test_a_message_that_has_no_room_is_held_for_its_own(library: Library, size: int) -> None:
    drain, arrived = library.connect()
    arrived += [b"a", b"x" * size]
    taken = together.take([drain])
    assert contents(taken) == [(b"a", [1])]
    assert taken.is_all == [False]
    drain.hold(taken.payloads[:1], taken.lengths[:1], taken.pending[0])
    arrived += [b"b"]
    assert drain.drain(8 << 20) == size + 1
    payloads, lengths = drain.gulp()
    assert (payloads.tobytes(), lengths.tolist()) == (b"a" + b"x" * size + b"b", [1, size, 1])


def test_one_that_has_ended_says_so_again_to_its_own(library: Library) -> None:
    (first, one), (second, two) = library.connect(), library.connect()
    library.end(first)
    one += [b"a"]
    two += [b"b"]
    taken = together.take([first, second])
    assert contents(taken) == [(b"a", [1]), (b"b", [1])]
    assert taken.is_all == [False, True]
    first.hold(taken.payloads[:1], taken.lengths[:1], taken.pending[0])
    assert first.drain(100) == 0
    assert first.is_ended
    assert first.bytes == 1


def test_what_a_connection_is_to_hold_may_be_nothing(library: Library) -> None:
    drain, arrived = library.connect()
    taken = together.take([drain])
    drain.hold(taken.payloads[:0], taken.lengths[:0], taken.pending[0])
    assert drain.bytes == 0
    arrived += [b"a"]
    assert drain.drain(100) == 1


def test_what_is_held_may_be_larger_than_an_arena(library: Library) -> None:
    drain, arrived = library.connect()
    held = np.full(2 << 20, ord("x"), np.uint8)
    drain.hold(held, np.array([len(held)], np.uint32), np.zeros(2, np.int64))
    arrived += [b"a"]
    assert drain.drain(4 << 20) == 1
    assert drain.gulp()[0].tobytes() == held.tobytes() + b"a"
