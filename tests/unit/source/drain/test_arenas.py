"""Memory for gulps: lent to one connection at a time, and to nobody while somebody still looks at it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from kuvasz.route import scan
from kuvasz.source.drain import arenas as module
from kuvasz.source.drain.arenas import ARENA_BYTES, Arena, Arenas

if TYPE_CHECKING:
    from collections.abc import Callable


def test_what_is_given_back_is_lent_again_the_last_one_first() -> None:
    spare = Arenas()
    first, second = spare.take(), spare.take()
    assert first is not second
    spare.give(first)
    spare.give(second)
    assert spare.take() is second
    assert spare.take() is first
    assert spare.take() not in (first, second)


@pytest.mark.parametrize(
    "look",
    [
        lambda arena: arena.payloads[:10],
        lambda arena: arena.lengths[:1],
        lambda arena: scan.frozen_view(arena.payloads[:10]),
        lambda arena: memoryview(arena.payloads)[3:4],
        lambda arena: arena.payloads,
    ],
)
def test_one_that_somebody_still_sees_is_lent_to_nobody(look: Callable[[Arena], object]) -> None:
    spare = Arenas()
    arena = spare.take()
    seen = look(arena)
    spare.give(arena)
    assert spare.take() is not arena
    del seen
    spare.give(arena)
    assert spare.take() is arena


def test_what_is_kept_of_them_is_bounded_in_bytes() -> None:
    spare = Arenas(spare_bytes=3 * ARENA_BYTES)
    lent = [spare.take() for _ in range(5)]
    lent[1].grow(2 * ARENA_BYTES, 0)
    for arena in lent:
        spare.give(arena)
    assert [spare.take() for _ in range(2)] == [lent[1], lent[0]]
    assert spare.take() not in lent


def test_one_that_a_huge_row_made_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST_BYTES", 2 * ARENA_BYTES)
    spare = Arenas()
    arena = spare.take()
    arena.grow(2 * ARENA_BYTES + 1, 0)
    spare.give(arena)
    assert spare.take() is not arena


def test_one_that_grows_keeps_what_is_in_it() -> None:
    arena = Arena()
    arena.payloads[:3] = [1, 2, 3]
    arena.grow(ARENA_BYTES + 1, 3)
    assert len(arena.payloads) == 2 * ARENA_BYTES
    assert arena.payloads[:3].tolist() == [1, 2, 3]


def test_nobody_has_one_that_somebody_else_has() -> None:
    """Many take, write, look again and give back, some with a view that outlives it."""
    dice, spare = random.Random(1), Arenas(spare_bytes=4 * ARENA_BYTES)  # noqa: S311 (a test's)
    held: dict[int, tuple[Arena, object]] = {}
    for step in range(2000):
        who = dice.randrange(8)
        if who in held:
            arena, _ = held.pop(who)
            assert arena.payloads[:4].tolist() == [who] * 4
            spare.give(arena)
        else:
            arena = spare.take()
            arena.payloads[:4] = np.uint8(who)
            held[who] = arena, arena.payloads[:4] if step % 3 else None
    assert len({id(arena) for arena, _ in held.values()}) == len(held)
