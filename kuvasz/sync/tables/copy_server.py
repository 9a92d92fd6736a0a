"""Where tables of one source are read from while they are copied: at its server, or at a standby of that.

Called in threads, never on the event loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from kuvasz import lsn
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import SourceError
from kuvasz.events import Event, EventLog
from kuvasz.shown import figures
from kuvasz.source import conninfo, slots, standby
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.watch.schema_watch import publications_of

_log = EventLog(__name__)


class CopyServer:
    """The server that tables of one source are copied from, as the map that runs says.

    Args:
        context: The context of the source.
    """

    def __init__(self, context: SourceContext) -> None:
        self._context = context

    def snapshot(
        self, made: slots.ExportedSnapshot, tables: Sequence[SourceTableSpec]
    ) -> slots.ExportedSnapshot:  # fmt: skip
        """Return the snapshot that tables are copied under: that of a slot, or one of a standby in its place.

        Args:
            made: The snapshot of a slot which was created just now; it goes where there is a standby.
            tables: What is to be copied.

        Raises:
            SourceError: The standby does not answer, is none of this server, or is not that far.
        """
        context = self._context
        url = context.copy_url() if tables else None
        if url is None or context.copies_from is None:
            return made

        def waiting(lacks: int) -> None:
            self._note(tables, f"the standby, {figures.size(lacks)} behind" if lacks else "")
            if context.lifetime.is_ending:
                raise SourceError("stopped while a standby was waited for")

        try:
            with made:
                role, publications = context.source.replication_url, publications_of(context.source)
                taken = standby.take(made, context.url(), url, publications, waiting, role)
        finally:
            self._note(tables, "")
        at = lsn.render(taken.snapshot.consistent_point)
        _log.tell(
            Event.STANDBY_SNAPSHOT, source=context.source.name, server=conninfo.location(url), lsn=at,
            seconds=round(taken.waited_s, 3), tries=taken.tries,
        )  # fmt: skip
        return taken.snapshot

    def _note(self, tables: Sequence[SourceTableSpec], waits_for: str) -> None:
        for spec in tables:
            self._context.source_tables.note(spec, waits_for=waits_for)


__all__ = ["CopyServer"]
