"""Which worker writes a target table: a stable hash of the target's name.

Stable across processes, hash seeds and versions, because the worker of a table may only change when the number of
workers does: it alone writes the table and holds its position index.
"""

from __future__ import annotations

import hashlib


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


def _weight(target: str, worker: int) -> bytes:
    return hashlib.blake2b(target.encode("utf-8", "surrogatepass"), digest_size=8, salt=b"%d" % worker).digest()


__all__ = ["worker_of"]
