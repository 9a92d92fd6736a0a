"""One source of the staged log: its newest stretches in memory, how far it is staged, and how far the lake is.

Three meet here: the loop adds what came and hands it on, a thread writes objects, and a source that begins anew.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence

from kuvasz.staging.staged_room import StagedRoom
from kuvasz.staging.stretch import Stretch
from kuvasz.staging.stretch_list import StretchList
from kuvasz.state.staged.ports import StagedPosition


class StagedSource:
    """The source. From any thread.

    Large because three meet here, and what each may do follows from what the others have done.

    Args:
        name: Its name.
        position: How far it is staged; None: nothing is known of it.
        room: Told how much of it waits to be staged.
        keep_bytes: What is staged stays in memory up to so much, for whoever has not heard it yet.
    """

    def __init__(self, name: str, position: StagedPosition | None, room: StagedRoom, keep_bytes: int) -> None:
        self.name = name
        self._room = room
        self.position = position
        self.applied = 0 if position is None else position.applied  #: everything before it is in the lake
        self.on_added: Callable[[], None] = lambda: None  #: called on the loop
        self._keep_bytes = keep_bytes
        self._lock = threading.Lock()
        self.is_left = False  #: it was let go of: whoever receives it begins again
        self.is_open = True  #: parts of a transaction that has not ended may be staged, or wait to be
        self._kept = StretchList()
        self._dropped = 0 if position is None else position.number  #: number of the last one that is there no more
        self._added = self._dropped  #: of the last one that was ever there
        self._heard = 0  #: of the last one that was handed on
        #: what is behind this LSN is all in memory; None: the first in memory goes on with a transaction
        self._base_lsn: int | None = 0 if position is None else position.lsn
        self.generation = 0  #: grows when parts of a transaction are given up
        self.past = 0  #: grows when it, or the index, is set back, or it begins: whoever hears it begins again

    @property
    def known(self) -> StagedPosition:
        """How far it is staged."""
        assert self.position is not None, "it begins anew before anything comes"
        return self.position

    @property
    def newest(self) -> tuple[int, int, int]:
        """LSN, end of the last transaction, and number of what was added last, or staged before."""
        with self._lock:
            last = self._kept.last if self._kept else self.known
            return last.lsn, last.ended, self._added

    def begin(self, position: StagedPosition) -> None:
        """Begin at a position, with nothing of before."""
        with self._lock:
            self.position, self.applied = position, position.applied
            self.is_left, self.is_open = False, True
            self._dropped = self._added = max(self._added, position.number)
            self._kept.clear()
            self._base_lsn = position.lsn
            self.generation += 1
            self.past += 1
            self._weigh()

    def set_back(self, lsn: int, past: int) -> None:
        """Take note that what was said to be nothing of ours behind an LSN may be another server's by now.

        Args:
            lsn: The LSN.
            past: As the index has it since.
        """
        with self._lock:
            known = self.known
            self.position = dataclasses.replace(
                known, lsn=min(known.lsn, lsn), applied=min(known.applied, lsn), past=past
            )
            self.applied = min(self.applied, lsn)
            self._kept.hear_until(lsn)
            self.past += 1
            self._base_lsn = None if self._base_lsn is None else min(self._base_lsn, lsn)

    # Whoever hears what another process stages

    def follow(self, position: StagedPosition) -> bool:
        """Take over how far another process has staged it; return whether that is further, or of another past.

        Nothing of it is in memory: all is to be fetched.
        """
        with self._lock:
            known, self.position = self.position, position
            self._dropped = self._added = position.number
            self._base_lsn = None
            if known is None or self.is_left:
                self.applied, self.is_left = position.applied, False
                self.past += known is not None
                return True
            if known.given_up != position.given_up:
                self.generation += 1
            if position.number < known.number or position.lsn < known.lsn:
                # The coordinator was set back: what is staged from now on has numbers that were heard already.
                self.past += 1
            return _moves(known) != _moves(position)

    def lose(self) -> bool:
        """Take note that it is of another past by now; return whether that is news.

        Whoever hears it hears no more, and looks at the source again: what is staged then may be another server's.
        """
        with self._lock:
            if self.position is None or self.is_left:
                return False
            self.is_left = True
            self.past += 1
            return True

    def has(self, lsn: int, past: int) -> None:
        """Take note that everything before an LSN is in the lake, said by who hears it since a past."""
        with self._lock:
            if past == self.past:
                self.applied = max(self.applied, lsn)

    # Whoever receives it

    def leave(self) -> None:
        """Let go of all, and of what still comes: the source begins anew, or is not wanted any more."""
        with self._lock:
            self.is_left = True
            self._kept.clear()
            self._weigh()

    @property
    def is_staged(self) -> bool:
        """Whether nothing waits to be staged any more."""
        with self._lock:
            return not self._kept.waiting_bytes

    def add(self, stretches: Sequence[Stretch]) -> None:
        """Take what came."""
        with self._lock:
            if self.is_left:
                return
            self._kept.add(stretches)
            if stretches:
                self._added, self.is_open = stretches[-1].number, bool(stretches[-1].open_lsn)
                self._weigh()
        self.on_added()

    def abandon_open(self) -> None:
        """Give up the parts of a transaction that has not ended: it begins again."""
        with self._lock:
            is_dropped = not self._kept and self._base_lsn is None
            if self._kept.give_up_open() or is_dropped:
                self.generation += 1
            if not self._kept:
                self._base_lsn, self._dropped = self.known.lsn, self._added
            self.is_open = False
            self._weigh()

    # Whoever stages it

    def unstaged(self, most_bytes: int) -> list[Stretch]:
        """Return what is to be staged next: about so many bytes, of one transaction's parts or of whole ones."""
        with self._lock:
            found: list[Stretch] = []
            size = 0
            for stretch in self._kept.waiting():
                if found and (bool(stretch.open_lsn) != bool(found[0].open_lsn) or size >= most_bytes):
                    break
                found.append(stretch)
                size += len(stretch.data)
            return found

    def staged(self, position: StagedPosition) -> None:
        """Take note that everything up to a position is staged."""
        with self._lock:
            self.position = dataclasses.replace(position, applied=self.known.applied)
            self._kept.staged(position.number)
            self._drop()
            self._weigh()

    def _weigh(self) -> None:
        self._room.note(self.name, self._kept.waiting_bytes)

    def noted(self, applied: int) -> None:
        """Take note that the index knows how far the lake is."""
        with self._lock:
            self.position = dataclasses.replace(self.known, applied=max(self.known.applied, applied))

    # Whoever hears it

    def cursor(self, from_lsn: int) -> int | None:
        """Return the number behind which memory has all that ended after an LSN; None: memory has not all of it."""
        with self._lock:
            return self._dropped if self._base_lsn is not None and from_lsn >= self._base_lsn else None

    @property
    def dropped(self) -> int:
        """Number of the last stretch that is in memory no more."""
        with self._lock:
            return self._dropped

    def after(self, number: int) -> Stretch | None:
        """Return the next stretch in memory behind one, and take note that it is heard; None: there is none now."""
        with self._lock:
            found = None if number < self._dropped else self._kept.behind(number)
            if found is not None:
                self._heard = found.number
                self._drop()
            return found

    def _drop(self) -> None:
        staged = self.known.number
        while self._kept and self._kept.first.number <= staged:
            if self._kept.first.number > self._heard and self._kept.bytes <= self._keep_bytes:
                break
            first = self._kept.drop_first()
            self._dropped = first.number
            self._base_lsn = None if first.open_lsn else first.lsn


def _moves(position: StagedPosition) -> tuple[int, ...]:
    return position.lsn, position.number, position.given_up, position.past


__all__ = ["StagedSource"]
