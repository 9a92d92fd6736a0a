"""Which of the deliveries that wait are in the next mini-transaction: the sources share it. Pure."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence

from kuvasz.model import Delivery


def portion(waiting: Sequence[Delivery], most: int) -> tuple[list[Delivery], list[Delivery]]:
    """Return the deliveries that a mini-transaction takes, and those that wait on, both in the order they came in.

    A source that has waited for less than what others have gets all it has, so that a flood, or a source that comes
    back after a day, keeps no other one waiting; what they do not need is the flood's. The oldest delivery is taken
    in any case, so that none waits for ever, whatever its size.

    Args:
        waiting: The oldest first.
        most: Bytes; the delivery that passes them is the last.
    """
    sizes: collections.Counter[str] = collections.Counter()
    for delivery in waiting:
        sizes[delivery.source] += delivery.bytes
    if sizes.total() <= most:
        return list(waiting), []
    chosen = set() if len(sizes) < 2 else _shared(waiting, _level(sizes.values(), most))
    size = sum(waiting[index].bytes for index in chosen)
    for index, delivery in enumerate(waiting):
        if chosen and size >= most:
            break
        if index not in chosen:
            chosen.add(index)
            size += delivery.bytes
    return (
        [delivery for index, delivery in enumerate(waiting) if index in chosen],
        [delivery for index, delivery in enumerate(waiting) if index not in chosen],
    )


def _shared(waiting: Sequence[Delivery], level: int) -> set[int]:
    """Return the places of the oldest delivery, and of what each source has up to a level."""
    taken: collections.Counter[str] = collections.Counter()
    chosen: set[int] = set()
    stopped: set[str] = set()
    for index, delivery in enumerate(waiting):
        source = delivery.source
        if source in stopped:
            continue
        if index and taken[source] + delivery.bytes > level:
            stopped.add(source)  # what comes later of it must not overtake this
            continue
        chosen.add(index)
        taken[source] += delivery.bytes
    return chosen


def _level(sizes: Iterable[int], most: int) -> int:
    """Return the bytes at which sources are cut so that all together have as many as that."""
    ascending = sorted(sizes)
    left = most
    for number, size in enumerate(ascending):
        sharing = len(ascending) - number
        if size * sharing > left:
            return left // sharing
        left -= size
    return most


__all__ = ["portion"]
