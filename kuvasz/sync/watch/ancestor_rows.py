"""Changes of a table that came as those of an ancestor: they are in the stream, and nobody takes them.

A partition whose ancestor is published has its changes sent as those of the topmost published one (manual, "CREATE
PUBLICATION", ``publish_via_partition_root``). Where someone publishes an ancestor and withdraws it again between two
looks, or attaches the table to a published one and detaches it, no catalog row is left that would tell of it. The
stream does.
"""

from __future__ import annotations

from kuvasz.config.sources import SourceTableSpec
from kuvasz.events import Event, EventLog
from kuvasz.model import Relation
from kuvasz.sync.context.source_tables import SourceTables
from kuvasz.sync.context.troubles import Troubles
from kuvasz.sync.watch.last_looks import LastLooks

_log = EventLog(__name__)


class AncestorRows:
    """The tables of one source whose rows come as an ancestor's. Called by whoever routes the stream.

    Args:
        source_tables: The source's tables.
        looks: Says which table of the map a relation is.
        troubles: Has a table looked at anew.
    """

    def __init__(self, source_tables: SourceTables, looks: LastLooks, troubles: Troubles) -> None:
        self._source_tables = source_tables
        self._looks = looks
        self._troubles = troubles

    def missed(self, relation: Relation, commit_lsn: int) -> None:
        """Have a table come over changes that it did not get, unless the lake has what was committed by then.

        A table that is copied meanwhile has no position, or one that a repair will move: the stream is heard again
        from there on when the copy has ended.
        """
        for spec in self._looks.specs(relation):
            self._missed(spec, commit_lsn)

    def _missed(self, spec: SourceTableSpec, commit_lsn: int) -> None:
        position = self._source_tables.position(spec)
        if position is None or commit_lsn < position.lsn or self._source_tables.look(spec).is_resync_due:
            return
        _log.tell(Event.GAP_FOUND, source=self._source_tables.source.name, table=spec.identifier)
        self._troubles.miss_rows(spec)
        if self._source_tables.is_streaming(spec):
            self._troubles.interrupt(spec)


__all__ = ["AncestorRows"]
