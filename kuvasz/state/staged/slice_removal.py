"""What all lakes have of a log goes from its index, some at a time: it may be millions of slices, after a day.

Each round is short, however long the log is: whoever takes it has a lease to renew, and others to let at the rows.
Slices go in the order of their streams, which an index gives. Objects are looked at in the order of their names, some
with each round, one round behind the other, and from the first one again when all were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kuvasz.state.staged.ports import RemovalRound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kuvasz.state.coordinator.database import Session

#: How much of a round: about a tenth of a second on a busy server (docs/cluster.md).
SLICES: Final = 5_000
OBJECTS: Final = 5_000

#: What the log's tables have for it; `log_groups` asks by it, too.
INDEXES: Final = """
CREATE INDEX IF NOT EXISTS log_slice_through ON kuvasz.log_slice (cluster, source, through, last);
CREATE INDEX IF NOT EXISTS log_object_staged ON kuvasz.log_object (cluster, staged);
"""
ARE_MADE: Final = "to_regclass('kuvasz.log_object_staged') IS NOT NULL"

#: Of each source what all have: a group that hears a past of before begins with a copy, and needs none of it.
_HAD_BY_ALL: Final = """
SELECT s.source, least(s.applied, min(g.applied)) AS lsn
FROM kuvasz.log_source AS s LEFT JOIN kuvasz.log_group_source AS g USING (cluster, source, begun)
WHERE s.cluster = %(cluster)s GROUP BY s.source, s.applied
"""
#: What another process is at goes by that one.
_DROP: Final = f"""
WITH had AS MATERIALIZED ({_HAD_BY_ALL}), gone AS MATERIALIZED (
    SELECT l.source, l.last FROM had CROSS JOIN LATERAL (
        SELECT l.source, l.last FROM kuvasz.log_slice AS l
        WHERE l.cluster = %(cluster)s AND l.source = had.source AND l.through <= had.lsn
        ORDER BY l.through LIMIT %(slices)s FOR UPDATE SKIP LOCKED
    ) AS l LIMIT %(slices)s
)
DELETE FROM kuvasz.log_slice AS l USING gone
WHERE l.cluster = %(cluster)s AND l.source = gone.source AND l.last = gone.last
"""
_DROP_OBJECTS: Final = """
DELETE FROM kuvasz.log_object AS o USING (
    SELECT name FROM kuvasz.log_object WHERE cluster = %(cluster)s AND name = ANY(%(removed)s)
    ORDER BY name FOR UPDATE
) AS removed
WHERE o.cluster = %(cluster)s AND o.name = removed.name
"""
#: With how many were looked at, and the last of them.
_UNNEEDED: Final = """
WITH looked AS MATERIALIZED (
    SELECT name FROM kuvasz.log_object WHERE cluster = %(cluster)s AND name > %(behind)s
    ORDER BY name LIMIT %(objects)s
), unneeded AS MATERIALIZED (
    SELECT name FROM looked AS o WHERE NOT EXISTS (
        SELECT FROM kuvasz.log_slice AS l WHERE l.cluster = %(cluster)s AND l.object = o.name)
    ORDER BY name LIMIT %(most)s
)
SELECT (SELECT count(*) FROM looked), (SELECT max(name) FROM looked), ARRAY(SELECT name FROM unneeded ORDER BY name)
"""


class SliceRemoval:
    """The removal, by one process's rounds.

    Args:
        cluster: Whose log it is.
    """

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._behind = ""  #: the name of the object that was looked at last; empty: the first one is next
        self._again = False  #: slices went since that one was: of those before it nothing may be needed any more

    def round(self, session: Session, given: Mapping[str, object], most: int) -> RemovalRound:
        """Take one round, within a transaction that has proved the lease.

        Args:
            session: The transaction's.
            given: The names of `removed` objects.
            most: How many names to return.
        """
        given = {
            **given, "cluster": self._cluster, "slices": SLICES, "objects": OBJECTS, "behind": self._behind,
            "most": most,
        }  # fmt: skip
        dropped = session.execute(_DROP, given).rowcount
        session.execute(_DROP_OBJECTS, given)
        ((looked, last, names),) = session.execute(_UNNEEDED, given).fetchall()
        self._again |= dropped > 0 and self._behind != ""
        is_cut = len(names) == most
        self._behind = names[-1] if is_cut else last if looked == OBJECTS else ""
        is_full = is_cut or dropped == SLICES
        is_all = not (is_full or self._behind or self._again)
        self._again &= self._behind != ""
        return RemovalRound(names, is_full=is_full, is_all=is_all)


__all__ = ["ARE_MADE", "INDEXES", "SliceRemoval"]
