"""Has tables of one source copied again, in a way that survives a restart: the lake forgets their positions.

Called in threads, never on the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kuvasz import failpoints
from kuvasz.config.model import OnSlotLost, WhenParkedFull
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import ParkedLost, SourceError, TableGone
from kuvasz.state.tables import State
from kuvasz.sync.context.source_context import Basis

_log = logging.getLogger(__name__)


class Forgetting:
    """Of one source.

    Args:
        basis: Of the source.
        drop_parked: Lets go of what is parked of a target.
    """

    def __init__(self, basis: Basis, *, drop_parked: Callable[[str], None]) -> None:
        #: what answers is another source than the lake has rows of: its columns count for nothing either
        self.is_replaced = False
        self.strangers: frozenset[str] = frozenset()  #: the same of single tables, by `SourceTableSpec.key`
        self._basis = basis
        self._around = basis.around
        self._roster = basis.roster
        self._drop_parked = drop_parked

    def forget(self, spec: SourceTableSpec, *, is_other: bool = False) -> None:
        """Have the lake know that a table is to be copied again: from now on that survives the loss of all else.

        Args:
            spec: The table.
            is_other: Another table takes its place: what is known of its columns goes, too.
        """
        around, roster, target, name = self._around, self._roster, spec.identifier, self._roster.name(spec)
        to_repair = roster.look(spec).is_repair
        is_gone = self.is_stranger(spec)
        try:
            around.lake.forget(target, name, to_repair=to_repair and not is_other, is_gone=is_gone or is_other)
        except TableGone as error:
            # Whoever else feeds it lost its rows, too; `prepare` makes the table anew.
            for other in around.states.sources_of(target):
                if other != name and around.states.is_streaming(target, other):
                    around.progress.hold(other, target)
                    around.states.set(target, other, State.ERROR, error)
        self._drop_parked(target)
        failpoints.hit("position_forgotten", SourceError)
        roster.resync(spec, is_due=False)

    def is_stranger(self, spec: SourceTableSpec) -> bool:
        """Whether what the lake has of a table is of another source than the one that answers."""
        return self.is_replaced or spec.key in self.strangers

    def forget_all(self) -> None:
        """Have every table copied again; with `on_slot_lost: repair` only what differs, unless a person wants all.

        Ends the same if it is cut off anywhere and begun again, also after a restart: first it is noted, then the
        lake knows.
        """
        roster = self._roster
        for spec in roster.source.tables:
            state = roster.look(spec)
            is_copy_wanted = state.is_resync_due and not state.is_repair
            is_repair = roster.source.on_slot_lost is OnSlotLost.REPAIR and not is_copy_wanted
            roster.resync(spec, is_due=True, is_repair=is_repair)
        for spec in roster.source.tables:
            self.forget(spec)

    def make_room(self, spec: SourceTableSpec) -> None:
        """Have a table copied again whose changes do not find room in its parking log, if the map says so."""
        if self._around.when_parked_full is WhenParkedFull.HOLD:
            return
        roster, target, name = self._roster, spec.identifier, self._roster.source.name
        _log.warning("too many changes were parked: the table is copied again", extra={
            "event": "copied_again", "source": name, "table": target})  # fmt: skip
        # Members are not parked: the name of a table here is its source's.
        roster.resync(spec, is_due=True)
        self._basis.settle(target)
        self.forget(spec)
        roster.release(spec)  # nothing but a copy brings it back
        if roster.is_paused(spec):
            message = f"source {name}, table {spec.table}: its parked changes found no room and were dropped"
            hint = f"it is copied again when it is resumed: kuvasz resume --table {target}"
            roster.fail(spec, ParkedLost(message, hint=hint))
        self._basis.requests.send(target)


__all__ = ["Forgetting"]
