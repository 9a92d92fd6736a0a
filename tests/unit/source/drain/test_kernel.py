"""The compiled body, over a libpq of our own: what it has of memory, and when. Both bodies are tried on a server."""

from __future__ import annotations

from typing import Any

import pytest

from kuvasz.source.drain.arenas import ARENA_BYTES, Arenas
from kuvasz.source.drain.kernel import KernelDrain
from tests.support.libpq import Library


@pytest.fixture(scope="module")
def library() -> Library:
    return Library()


class Counting(Arenas):
    """Counts those that are lent."""

    lent = 0

    def take(self) -> Any:
        self.lent += 1
        return super().take()

    def give(self, arena: Any) -> None:
        self.lent -= 1
        super().give(arena)


def content(drain: KernelDrain) -> tuple[bytes, list[int]]:
    payloads, lengths = drain.gulp()
    return payloads.tobytes(), lengths.tolist()


def test_a_connection_at_rest_has_no_memory_for_a_gulp(library: Library) -> None:
    spare = Counting()
    drain, arrived = library.drain(spare)
    assert spare.lent == 0
    assert drain.drain(1 << 20) == 0
    assert spare.lent == 0, "a look that finds nothing leaves none"
    assert content(drain) == (b"", [])
    arrived += [b"one", b"three"]
    assert drain.drain(1 << 20) == 8
    assert spare.lent == 1
    drain.clear()
    assert spare.lent == 0
    assert drain.bytes == 0


def test_connections_use_one_memory_behind_each_other_and_never_at_once(library: Library) -> None:
    spare = Arenas()
    first, more = library.drain(spare, b"first")
    second, _ = library.drain(spare, b"second")
    first.drain(1 << 20)
    second.drain(1 << 20)
    assert content(first) == (b"first", [5])
    assert content(second) == (b"second", [6])
    more += [b"again"]
    first.drain(1 << 20)
    assert content(first) == (b"firstagain", [5, 5])
    seen = second.gulp()[0]
    second.clear()
    third, _ = library.drain(spare, b"third")
    third.drain(1 << 20)
    assert seen.tobytes() == b"second", "who looks on sees what he was given"
    third.clear()
    fourth, _ = library.drain(spare, b"fourth")
    fourth.drain(1 << 20)
    assert content(fourth) == (b"fourth", [6])
    assert content(first) == (b"firstagain", [5, 5])


def test_a_row_that_is_larger_than_the_memory_makes_it_grow(library: Library) -> None:
    spare, large = Arenas(), b"x" * (ARENA_BYTES + 1)
    drain, _ = library.drain(spare, b"small", large, b"last")
    assert drain.drain(4 << 20) == len(large) + 9
    assert content(drain) == (b"small" + large + b"last", [5, len(large), 4])


def test_memory_is_lent_again_as_soon_as_its_gulp_was_routed(library: Library) -> None:
    spare = Arenas()
    first, _ = library.drain(spare, b"first")
    first.drain(1 << 20)
    lent = first._arena
    assert content(first) == (b"first", [5])
    first.clear()
    second, _ = library.drain(spare, b"second")
    second.drain(1 << 20)
    assert second._arena is lent, "neither the kernel nor a view of before keeps it"
