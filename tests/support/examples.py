"""How many examples a property is tried with: few while one writes, more with each run, many with the slow tests."""

from __future__ import annotations

import os

from hypothesis import settings

#: `make test-all` tries more; `EXAMPLES=100` does at the desk.
_TIMES = int(os.environ.get("EXAMPLES", "1"))

#: The share of them that `make test-unit` tries.
_QUICK_SHARE = 0.1


def examples(count: int) -> int:
    """Return how many are tried.

    Args:
        count: Those of one run of `make test`.
    """
    share = _QUICK_SHARE if settings.get_current_profile_name() == "quick" else 1
    return max(1, round(count * _TIMES * share))
