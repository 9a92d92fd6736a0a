"""Ctrl-C and its kin as a condition to look at, so that clean-up is never torn in two."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Catches the signals that ask for an end; the first one is noted, the second raises KeyboardInterrupt.

    Use as a context manager in the main thread; the handlers that were there before come back at its end.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._event = threading.Event()
        self._before: dict[int, object] = {}
        self._is_closing = False

    def __enter__(self) -> Interruption:
        for number in _SIGNALS:
            self._before[number] = signal.getsignal(number)
        self.arm()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def arm(self) -> None:
        """Set the handlers, also again: PySpark puts one of its own for SIGINT when a session starts."""
        for number in _SIGNALS:
            signal.signal(number, self._note)

    def close(self) -> None:
        """From now on signals are noted and nothing is raised: what is left is the clean-up."""
        self._is_closing = True

    def is_set(self) -> bool:
        """Say whether a signal has come."""
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for a signal for at most `seconds`; say whether one has come."""
        return self._event.wait(seconds)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        is_second = self._event.is_set()
        self.signal = number
        self._event.set()
        if is_second and not self._is_closing:
            raise KeyboardInterrupt
