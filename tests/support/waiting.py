"""Waiting for conditions, never for times."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Nothing in these tests takes this long, not even on a machine that others keep busy; what does has failed.
PATIENCE_S = 240.0

#: Between two looks at what costs nothing to look at.
_PAUSE_S = 0.02

#: Of a processor, what looking takes at most once it has gone on for a while: what is waited for needs it, too.
_SHARE = 0.25

#: Of the time waited so far, what a pause takes at most.
_LATER = 0.2


def wait_until(
    condition: Callable[[], object], what: str | Callable[[], str], patience_s: float = PATIENCE_S
) -> None:
    """Wait for a condition, never for a time.

    Args:
        condition: Looked at until it holds: the dearer a look is, the longer until the next.
        what: What is waited for, or who says it once it has not come.
        patience_s: How long it may take.
    """
    begin = look = time.monotonic()
    while not condition():
        now = time.monotonic()
        assert now < begin + patience_s, f"never happened: {what if isinstance(what, str) else what()}"
        time.sleep(max(_PAUSE_S, min((now - look) * (1 / _SHARE - 1), (now - begin) * _LATER)))
        look = time.monotonic()
