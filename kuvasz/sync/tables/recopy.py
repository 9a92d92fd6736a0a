"""Has tables of one source copied again, in a way that survives a restart: the lake forgets their positions.

Called in threads, never on the event loop.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from kuvasz import failpoints
from kuvasz.config.model import OnSlotLost, WhenParkedFull
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import ParkedLost, SourceError, TableGone, place_of, resume_of
from kuvasz.events import Event, EventLog
from kuvasz.model import NOTHING
from kuvasz.state.tables import State
from kuvasz.sync.context.source_context import SourceContext

_log = EventLog(__name__)


class PositionReset:
    """What makes the lake forget the positions of one source's tables.

    Args:
        context: The context of the source.
        drop_parked: Lets go of what is parked of a target.
    """

    def __init__(self, context: SourceContext, *, drop_parked: Callable[[str], None]) -> None:
        #: what answers is another source than the lake has rows of: its columns count for nothing either
        self.is_replaced = False
        self.strangers: frozenset[str] = NOTHING  #: the same of single tables, by `SourceTableSpec.key`
        self._context = context
        self._shared = context.shared
        self._source_tables = context.source_tables
        self._drop_parked = drop_parked

    def forget(self, spec: SourceTableSpec, *, is_other: bool = False) -> None:
        """Have the lake know that a table is to be copied again: from now on that survives the loss of all else.

        Args:
            spec: The table.
            is_other: Another table takes its place: what is known of its columns goes, too.
        """
        shared, source_tables, target, name = (
            self._shared,
            self._source_tables,
            spec.identifier,
            self._source_tables.name(spec),
        )
        if (ledger := shared.state.ledger(target, name)) is not None:
            ledger.remove()  # what is finished of a copy may be of what is not there any more
        to_repair = source_tables.look(spec).is_repair
        is_gone = self.is_stranger(spec)
        try:
            shared.lake.forget(
                target, name, to_repair=to_repair and not is_other, is_gone=is_gone or is_other,
                gap_lsn=source_tables.gap_starts.get(spec),
            )  # fmt: skip
            source_tables.gap_starts.drop(spec)
        except TableGone as error:
            # Whoever else feeds it lost its rows, too; `prepare` makes the table anew.
            for other in shared.states.sources_of(target):
                if other != name and shared.states.is_streaming(target, other):
                    hold = functools.partial(shared.progress.hold, other, target)
                    hold()
                    shared.states.set(target, other, State.ERROR, error, hold=hold)
        self._drop_parked(target)
        self._context.approvals.closed(spec)  # of what it misses from here on nobody was told yet
        failpoints.hit("position_forgotten", SourceError)
        source_tables.resync(spec, is_due=False, is_repair=to_repair)

    def is_stranger(self, spec: SourceTableSpec) -> bool:
        """Whether what the lake has of a table is of another source than the one that answers."""
        return self.is_replaced or spec.key in self.strangers

    def forget_all(self) -> None:
        """Have every table copied again; with `on_slot_lost: repair` only what differs, unless a person wants all.

        Ends the same if it is cut off anywhere and begun again, also after a restart: first it is noted, then the
        lake knows.
        """
        source_tables = self._source_tables
        for spec in source_tables.source.tables:
            state = source_tables.look(spec)
            is_copy_wanted = state.is_resync_due and not state.is_repair
            is_repair = source_tables.source.on_slot_lost is OnSlotLost.REPAIR and not is_copy_wanted
            source_tables.resync(spec, is_due=True, is_repair=is_repair)
        for spec in source_tables.source.tables:
            self.forget(spec)

    def make_room(self, spec: SourceTableSpec) -> None:
        """Have a table copied again whose changes do not find room in its parking log, if the map says so."""
        if self._shared.when_parked_full is WhenParkedFull.HOLD:
            return
        source_tables, target, name = self._source_tables, spec.identifier, self._source_tables.source.name
        _log.tell(Event.COPIED_AGAIN_FULL, source=name, table=target)
        # Members are not parked: the name of a table here is its source's.
        source_tables.resync(spec, is_due=True)
        self._context.settle(target)
        self.forget(spec)
        source_tables.release(spec)  # nothing but a copy brings it back
        if source_tables.is_paused(spec):
            message = f"{place_of(name, spec.table)}: its parked changes found no room and were dropped"
            hint = f"it is copied again when it is resumed: {resume_of(target)}"
            self._context.troubles.fail(spec, ParkedLost(message, hint=hint))
        self._context.requests.send(target)


__all__ = ["PositionReset"]
