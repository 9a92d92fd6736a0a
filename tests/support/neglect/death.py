"""kuvasz dies at once, at a point that it passes, or fails there as such places do.

A process would have to start a Spark of its own each time, so it dies within this one: from the first point on, every
point raises what nobody overcomes. Nothing becomes durable, nothing is confirmed and nothing is tidied up any more.
"""

from __future__ import annotations

import contextlib
import faulthandler
import threading
from collections.abc import Callable
from unittest import mock

from kuvasz import app, failpoints
from tests.support import failpoints as points
from tests.support.lake import Pipeline

#: Where it may die: whatever is passed in the stream, which is passed most, in copies, and with parked changes.
POINTS = (*points.STREAMING, *points.STREAMING, *points.COPYING, *points.PARKING, *points.REPAIRING)


class Killed(BaseException):
    """It does not live any more."""


class Death:
    """What waits for kuvasz; use it as a context manager."""

    def __init__(self) -> None:
        self.is_dead = False
        self._point, self._passes, self._kills = "", 0, False
        self._lock = threading.Lock()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Death:
        self._stack.enter_context(mock.patch.multiple(failpoints, _armed=(None,), _pass=self._pass))
        self._stack.enter_context(mock.patch.object(threading, "excepthook", _others(threading.excepthook)))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wait_at(self, point: str, passes: int, *, kills: bool) -> None:
        """Have it die, or fail once, when it passes a point for so many times."""
        with self._lock:
            self._point, self._passes, self._kills = point, passes, kills

    def come(self) -> None:
        """It dies at whatever it passes next."""
        self.is_dead = True

    def leave(self) -> None:
        """Nothing waits for whoever comes next."""
        with self._lock:
            self.is_dead, self._point = False, ""

    def _pass(self, name: str, error: Callable[[str], Exception]) -> None:
        with self._lock:
            is_here = self._is_here(name)
            self.is_dead = self.is_dead or (is_here and self._kills)
            if self.is_dead:
                raise Killed(name)
        if is_here and error is not RuntimeError:  # else nothing fails there
            raise error(f"failpoint {name}")

    def _is_here(self, name: str) -> bool:
        if name != self._point:
            return False
        self._passes -= 1
        return self._passes == 0


def _others(hook: Callable[[threading.ExceptHookArgs], object]) -> Callable[[threading.ExceptHookArgs], None]:
    """Threads end by being killed, which is nothing to tell."""

    def told(arguments: threading.ExceptHookArgs) -> None:
        if arguments.exc_type is not Killed:
            hook(arguments)

    return told


class MortalPipeline(Pipeline):
    """kuvasz in a thread, which may die."""

    def ends_within(self, seconds: float) -> bool:
        """Return whether it ends by itself."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def end(self) -> None:
        """Wait for the end of one that is dead. Whatever is passed kills it, so it need not be told to stop."""
        with mock.patch.object(app, "_STOP_S", 1.0):  # nobody finishes anything
            if self._loop is not None and self._thread.is_alive():
                self._loop.call_soon_threadsafe(self.app.stop)
            self._thread.join(40)
        if self._thread.is_alive():
            faulthandler.dump_traceback(all_threads=True)
        assert not self._thread.is_alive(), "what is dead did not end in time"
        self.error = None
