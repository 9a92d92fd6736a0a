"""Changes of a table that came as those of an ancestor: they are in the stream, and nobody takes them.

A partition whose ancestor is published has its changes sent as those of the topmost published one (manual, "CREATE
PUBLICATION", ``publish_via_partition_root``). Where someone publishes an ancestor and withdraws it again between two
looks, or attaches the table to a published one and detaches it, no catalog row is left that would tell of it. The
stream does.
"""

from __future__ import annotations

from kuvasz.model import Relation
from kuvasz.sync.context.troubles import Troubles
from kuvasz.sync.watch.last_looks import LastLooks


class AncestorRows:
    """The tables of one source whose rows come as an ancestor's. Called by whoever routes the stream.

    Args:
        looks: Says which table of the map a relation is.
        troubles: Has a table looked at anew.
    """

    def __init__(self, looks: LastLooks, troubles: Troubles) -> None:
        self._looks = looks
        self._troubles = troubles

    def missed(self, relation: Relation, commit_lsn: int) -> None:
        """Have a table come over changes that it did not get, unless the lake has what was committed by then."""
        for spec in self._looks.specs(relation):
            self._troubles.miss_changes(spec, commit_lsn)


__all__ = ["AncestorRows"]
