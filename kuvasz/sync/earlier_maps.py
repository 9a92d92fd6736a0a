"""What maps before had: nothing of them is taken for what the map has now.

The lake knows tables by their definitions, rows by their source's name and sid, and changes that nobody follows any
more are confirmed and in no table.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from kuvasz.config import names
from kuvasz.config.sources import Source
from kuvasz.errors import StateError
from kuvasz.events import Event, EventLog
from kuvasz.sync.context.shared import Shared
from kuvasz.sync.rules.feeders import Feeders, feeders
from kuvasz.sync.rules.map_difference import definitions, refuse_relabelled, sids_of

_log = EventLog(__name__)


Elsewhere: TypeAlias = Callable[[Collection[str]], Collection[str]]


class EarlierMaps:
    """What they had.

    Args:
        mapped: The sources of the map at the start.
        shared: What all sources share.
        elsewhere: Returns those of some sources that another process has, and feeds by a map of before still.
    """

    def __init__(self, mapped: Sequence[Source], shared: Shared, elsewhere: Elsewhere = lambda _: ()) -> None:
        self._mapped = mapped
        self._lake = shared.lake
        self._lot = shared.lot
        self._feeds = shared.state.feeds
        #: target -> its definition, of all that were mapped since the start: the lake has their tables loaded by it
        self.defined = definitions(mapped)
        self._redefined: set[str] = set()  # those whose tables are to be loaded by another one
        self.sids = sids_of(mapped)  #: source -> that of its rows in the lake, of all that were ever mapped
        self._elsewhere = elsewhere
        self._letting_go = threading.Lock()  # what is noted of one must not be lost by another

    def add(self, mapped: Sequence[Source]) -> None:
        """Take note of a map that is put into use."""
        wanted = definitions(mapped)
        self._redefined |= {target for target, now in wanted.items() if self.defined.get(target, now) != now}
        self.defined |= wanted
        self.sids |= sids_of(mapped)

    def leave(self, mapped: Sequence[Source]) -> set[str]:
        """Forget what targets are that no source of the map feeds here, since the start or any more; return them."""
        left = self.defined.keys() - definitions(mapped).keys()
        for target in left:
            del self.defined[target]
        self._redefined -= left
        return left

    def unload(self, mapped: Sequence[Source]) -> None:
        """Have the lake load tables anew that are defined otherwise than before; blocks.

        Args:
            mapped: Sources that are about to begin, when nobody is left who fed their targets by the map before.
        """
        with self._letting_go:
            for target in sorted(self._redefined & definitions(mapped).keys()):
                self._lake.let_go(target)
                self._redefined.discard(target)

    def read(self) -> None:
        """Learn the sids of sources that other processes have had since.

        Raises:
            StateError: Nobody knows them now.
        """
        self.sids = {**self._feeds.sids(), **self.sids}

    def begin(self, *, is_whole: bool = True) -> None:
        """Have the lake know which tables left the map since the last start; see `let_go`.

        Raises:
            LakeError: The lake cannot be told.
            StateError: Nobody knows what earlier maps had, or another process goes by one of them still.
            ConfigError: A source has another sid than its rows.
        """
        kept = self._feeds.sids()
        refuse_relabelled(self._mapped, kept)
        self.sids = {**kept, **self.sids}
        self.let_go(self._mapped, is_start=is_whole)

    def let_go(self, mapped: Sequence[Source], *, is_start: bool = False) -> None:
        """Have the lake know which tables left the map: from now on their changes are confirmed and in no table.

        Whoever comes back has a gap, which is closed or told as any other. Nothing is confirmed before that is noted;
        blocks, before any of the sources begins.

        Args:
            mapped: Sources that are about to begin.
            is_start: They are all. While others run, those that feed what they fed have nothing that a start did not
                find.

        Raises:
            LakeError: The lake cannot be told.
            StateError: Nobody knows what earlier maps had, or another process goes by one of them still.
        """
        with self._letting_go:
            fed, found = self.left(mapped, is_start=is_start)
            if fed.robbed and (others := self._elsewhere(fed.robbed)):
                told = ", ".join(sorted(others))
                raise StateError(
                    f"another process still feeds rows from {told} that are those of other sources by this map",
                    hint="give it the same map: it follows once its own file has that",
                )
            for target, source in found:
                # Members of a group have files of their own, which nobody compares: they are copied again.
                self._lake.forget(target, source, to_repair=not names.member_of(source))
                self._lot.drop(target, names.source_of(source))
                event = Event.TABLE_BACK if fed.feeds(target, source) else Event.TABLE_UNMAPPED
                _log.tell(event, source=source, table=target)
            self._feeds.keep(fed.now, {source.name: source.sid for source in mapped})

    def left(self, mapped: Sequence[Source], *, is_start: bool = False) -> tuple[Feeders, Sequence[tuple[str, str]]]:
        """Return what sources feed, and which tables with which of their sources have left the map.

        Raises:
            LakeError: The lake cannot be asked.
            StateError: Nobody knows what earlier maps had.
        """
        fed = feeders(mapped, self._feeds.known(), self.sids)
        is_asked = is_start or not fed.are_same
        found = list(self._lake.unmapped(fed.lasting, fed.changed)) if is_asked else []
        return fed, found


__all__ = ["EarlierMaps"]
