"""Waiting for conditions, never for times."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Nothing in these tests takes this long, not even on a machine that others keep busy; what does has failed.
PATIENCE_S = 240.0


def wait_until(
    condition: Callable[[], object], what: str | Callable[[], str], patience_s: float = PATIENCE_S
) -> None:
    """Wait for a condition, never for a time.

    Args:
        condition: Looked at until it holds.
        what: What is waited for, or who says it once it has not come.
        patience_s: How long it may take.
    """
    end = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end, f"never happened: {what if isinstance(what, str) else what()}"
        time.sleep(0.02)
