"""Which worker writes a target table: a stable hash of the target's name.

Stable across processes, hash seeds and versions, because the worker of a table may only change when the number of
workers does: it alone writes the table and holds its position index.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def worker_of(target: str, workers: int) -> int:
    """Return the number, from 0, of the worker that owns a target.

    The highest of one random weight per worker wins (Thaler and Ravishankar 1998, "rendezvous hashing"): a table's
    worker depends on nothing but its own name, and one more worker moves only the tables which it takes over.

    Args:
        target: Full name of the target table.
        workers: How many there are, at least 1.

    Raises:
        ValueError: There are no workers.
    """
    return max(range(workers), key=lambda worker: _weight(target, worker))


def owner_of(target: str, workers: int, own: Sequence[str] = ()) -> int:
    """Return the number of the worker that owns a target, where some targets have a worker of their own.

    Args:
        target: Full name of the target table, or what it is routed by.
        workers: How many there are that all others share.
        own: What is routed to workers of its own, which are numbered behind these, in their order.
    """
    return workers + own.index(target) if target in own else worker_of(target, workers)


def _weight(target: str, worker: int) -> bytes:
    return hashlib.blake2b(target.encode("utf-8", "surrogatepass"), digest_size=8, salt=b"%d" % worker).digest()


__all__ = ["owner_of", "worker_of"]
