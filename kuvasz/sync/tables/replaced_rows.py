"""Whose rows a copy takes the place of: the lake tells rows apart by their sid, and has those of one table for each.

A position says that the rows behind it are there. So whoever else has one for a sid loses it before rows of that sid
are replaced, and is copied again should he get the sid back. Which sources leave the map says the map, and whose sid
another one has is refused (`kuvasz.sync.watch.namesakes`). But a tenant comes and goes without a word of the map, and
may lose its rows while its source does not answer and nobody refuses it.

Called in threads, never on the event loop.
"""

from __future__ import annotations

from collections.abc import Collection

from kuvasz.config import names
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import SourceError, StateError
from kuvasz.events import Event, EventLog
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.rules.targets import feed_of

_log = EventLog(__name__)


class ReplacedRows:
    """The rows that copies of one source's tables replace.

    Args:
        context: The context of the source.
    """

    def __init__(self, context: SourceContext) -> None:
        self._context = context
        self._source = context.source
        self._lake = context.shared.lake

    def let_go(self, spec: SourceTableSpec) -> None:
        """Have the lake forget how far others are whose rows a table's are about to take the place of.

        Raises:
            LakeError: The lake cannot be told.
            SourceError: Nobody can say whose they are, or what is parked of them is there still.
        """
        mine = feed_of(self._source, spec)
        if mine.sid is None or not spec.has_sid or (spec.member and spec.tenant is None):
            return
        try:
            known = self._lake.recorded(spec.identifier)
            found = [name for name in self._of_sid(known, mine.sid, spec) if name != mine.source]
            if found:
                self._context.settle(spec.identifier)  # else what is under way would be refused, and the target stop
            for name in found:
                # As of sources that have left the map (`kuvasz.sync.earlier_maps`). Members are not parked.
                is_whole = not names.member_of(name)
                self._lake.forget(spec.identifier, name, to_repair=is_whole)
                if is_whole:
                    self._context.shared.lot.drop(spec.identifier, name)
                what = f"rows of sid {mine.sid!r} are those of {mine.source} from now on"
                _log.tell(Event.ROWS_TAKEN_OVER, source=name, table=spec.identifier, found=what)
        except StateError as error:
            raise SourceError(error.message, hint=error.hint) from error

    def _of_sid(self, known: Collection[str], sid: str, spec: SourceTableSpec) -> list[str]:
        """Return those whose rows have a sid; for a source of the map, the tenants: the map says who else had it."""
        # There may be thousands, and each of them has a copy.
        alike = [name for name in known if name.endswith(sid)]
        tenants = [name for name in alike if names.tenant_of(names.member_of(name)) == sid]
        sources = [name for name in known if not names.member_of(name)] if spec.tenant is not None else []
        sids = self._context.shared.state.feeds.sids() if sources else {}
        return [*tenants, *(name for name in sources if sids.get(name) == sid)]


__all__ = ["ReplacedRows"]
