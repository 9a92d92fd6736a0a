"""What the threads of one worker, and whoever asks it, tell each other."""

from __future__ import annotations

import threading


class Signals:
    """The signals of one worker. Thread-safe."""

    def __init__(self) -> None:
        self.changed = threading.Condition()  #: something came, was taken, or it stops
        self.is_stopping = False  #: told to, or dead
        self.died: BaseException | None = None  #: of what

    def tell(self) -> None:
        """Wake whoever waits for a change."""
        with self.changed:
            self.changed.notify_all()

    def stop(self) -> None:
        """Have both threads end."""
        with self.changed:
            self.is_stopping = True
            self.changed.notify_all()

    def sleep(self, seconds: float) -> None:
        """Wait for some seconds, or less if it stops."""
        with self.changed:
            self.changed.wait_for(lambda: self.is_stopping, seconds)


__all__ = ["Signals"]
