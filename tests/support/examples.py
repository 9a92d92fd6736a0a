"""How many examples a property is tried with: few at each run, many with the slow tests."""

from __future__ import annotations

import os

#: `make test-all` tries more; `EXAMPLES=100` does at the desk.
_TIMES = int(os.environ.get("EXAMPLES", "1"))


def examples(count: int) -> int:
    """Return how many are tried.

    Args:
        count: Those of one run of `make test`.
    """
    return count * _TIMES
