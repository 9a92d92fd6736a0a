"""Threads for what waits as long as somebody else's server, lock or name service likes.

Each call has one of its own: a pool would be full of those who wait, and keep all others waiting.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Of each thread that asks a source, or has the lake follow what it said.
THREAD_NAME = "source"


def in_thread(function: Callable[[], T], name: str = THREAD_NAME) -> concurrent.futures.Future[T]:
    """Run a function in a thread of its own, which nobody waits for at the end of the process."""
    future = concurrent.futures.Future[T]()
    threading.Thread(target=carry_out, args=(future, function), name=name, daemon=True).start()
    return future


def carry_out(job: concurrent.futures.Future[T], function: Callable[[], T]) -> None:
    """Run a function for whoever waits for a job; not if that was cancelled before it began."""
    if job.set_running_or_notify_cancel():
        try:
            job.set_result(function())
        except BaseException as error:  # noqa: BLE001 (it is the caller's)
            job.set_exception(error)


__all__ = ["THREAD_NAME", "carry_out", "in_thread"]
