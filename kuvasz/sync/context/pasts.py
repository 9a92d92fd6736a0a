"""What is remembered of a source's past, in memory, and forgotten where that past is given up.

LSNs and transactions mean something within one history of a source alone. A standby that took over without what the
old primary wrote last, and a server that was put back to an older state, give the same numbers to something else.
"""

from __future__ import annotations

from collections.abc import Callable


class Pasts:
    """The pasts of one source. From any thread, also on the event loop: nobody asks or writes anything then."""

    def __init__(self) -> None:
        self._forgetters: list[Callable[[int], None]] = []

    def whenever_given_up(self, forget: Callable[[int], None]) -> None:
        """Have who remembers LSNs or transactions told of each past that is given up.

        Args:
            forget: Called with the place up to which the source is still what it was; 0: it is another source.
        """
        self._forgetters.append(forget)

    def give_up(self, to_lsn: int) -> None:
        """Have everybody forget what was behind a place: the source went on from there otherwise.

        Args:
            to_lsn: The place; 0: it is another source, or nothing of it counts any more.
        """
        for forget in self._forgetters:
            forget(to_lsn)


__all__ = ["Pasts"]
