"""What a piece of work costs, told without a clock on the wall: a busy machine makes neither greater."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def cpu_s(work: Callable[[T], object], of: T, rounds: int = 3) -> float:
    """Return the seconds of CPU that this thread takes for it: the best of some rounds, with no garbage collected."""
    was_on, found = gc.isenabled(), []
    gc.disable()
    try:
        for _ in range(rounds):
            begin = time.thread_time()
            work(of)
            found.append(time.thread_time() - begin)
    finally:
        if was_on:
            gc.enable()
    return min(found)


def calls(work: Callable[[T], object], of: T) -> int:
    """Return how many functions of Python and C it calls: the same number each time."""
    before, found = sys.getprofile(), 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal found
        found += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        work(of)
    finally:
        sys.setprofile(before)
    return found


__all__ = ["calls", "cpu_s"]
