"""Who holds which source of a log, in its coordinator: each process that reads takes some, and gives them back.

A source that changes hands is of another past from then on. So whatever one who held it before still writes of it is
refused, also if that slept and has not noticed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from kuvasz.state.staged.orders import orders_of
from kuvasz.state.staged.ports import SharedSources

if TYPE_CHECKING:
    from kuvasz.state.coordinator.database import CoordinatorDatabase, Session
    from kuvasz.state.coordinator.lease import ClusterLease

#: No number comes twice, also not of a source that was forgotten meanwhile.
NEXT_PAST: Final = "greatest({0} + 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)"

#: What the log's table has for it.
COLUMNS: Final = """
ALTER TABLE kuvasz.log_source
    ADD COLUMN IF NOT EXISTS holder text,                        -- a node that reads it, or left without a word
    ADD COLUMN IF NOT EXISTS held bigint NOT NULL DEFAULT 0;     -- the number of that one's lease
"""
ARE_MADE: Final = """
EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('kuvasz.log_source') AND attname = 'held')
"""

#: Of a source: its holder's lease. One that has another number by now is another process's.
_LEASE: Final = "l.cluster = %(readers)s || s.holder AND l.number = s.held AND l.owner = s.holder"
_LIVES: Final = "l.until > clock_timestamp()"
_NODES: Final = f"""
SELECT l.owner, coalesce(n.drains, false) FROM kuvasz.lease AS l
LEFT JOIN kuvasz.node AS n ON n.cluster = %(cluster)s AND n.name = l.owner
WHERE starts_with(l.cluster, %(readers)s) AND l.owner IS NOT NULL AND {_LIVES}
"""
#: With the orders of those that this process holds.
_SHARED: Final = f"""
SELECT s.source, s.past, l.owner, CASE WHEN l.number = %(number)s THEN s.wanted END,
    CASE WHEN l.number = %(number)s THEN s.known END
FROM kuvasz.log_source AS s LEFT JOIN kuvasz.lease AS l ON {_LEASE} AND {_LIVES}
WHERE s.cluster = %(cluster)s AND s.wanted IS NOT NULL
"""
#: Who is late itself takes nothing: it may be about to be ended.
_LIVES_ITSELF: Final = """
SELECT FROM kuvasz.lease WHERE cluster = %(key)s AND number = %(number)s AND owner = %(node)s
    AND until > clock_timestamp() FOR SHARE
"""
#: Whatever they still ask for is refused, for all sources that they hold: they are asleep, or dead.
_END_LATE: Final = """
UPDATE kuvasz.lease SET owner = NULL
WHERE starts_with(cluster, %(readers)s) AND owner IS NOT NULL AND until < clock_timestamp()
"""
#: In the order of their names: two that take some at a time would else wait for each other.
_HOLD: Final = f"""
WITH locked AS MATERIALIZED (
    SELECT source FROM kuvasz.log_source WHERE cluster = %(cluster)s AND source = ANY(%(sources)s)
    ORDER BY source FOR NO KEY UPDATE
)
UPDATE kuvasz.log_source AS s
SET holder = %(node)s, held = %(number)s, past = {NEXT_PAST.format("s.past")}, answer = NULL
FROM unnest(%(sources)s::text[], %(pasts)s::bigint[]) AS m (source, past), locked
WHERE s.cluster = %(cluster)s AND s.source = m.source AND locked.source = m.source AND s.past = m.past
    AND s.wanted IS NOT NULL AND NOT EXISTS (SELECT FROM kuvasz.lease AS l WHERE {_LEASE})
RETURNING s.source
"""
_RELEASE: Final = f"""
UPDATE kuvasz.log_source SET holder = NULL, held = 0, answer = NULL, past = {NEXT_PAST.format("past")}
WHERE cluster = %(cluster)s AND source = ANY(%(sources)s) AND holder = %(node)s AND held = %(number)s
"""
_UNREAD: Final = f"""
SELECT s.source FROM kuvasz.log_source AS s
WHERE s.cluster = %(cluster)s AND s.wanted IS NOT NULL
    AND NOT EXISTS (SELECT FROM kuvasz.lease AS l WHERE {_LEASE} AND {_LIVES})
    AND NOT EXISTS (SELECT FROM kuvasz.lease WHERE cluster = %(reads)s AND does = 'reads' AND owner IS NOT NULL)
ORDER BY s.source
"""
_COUNTS: Final = f"""
SELECT s.holder, count(*) FROM kuvasz.log_source AS s JOIN kuvasz.lease AS l ON {_LEASE}
WHERE s.cluster = %(cluster)s AND s.wanted IS NOT NULL GROUP BY 1
"""
_OTHERS: Final = """
SELECT number FROM kuvasz.lease
WHERE starts_with(cluster, %(readers)s) AND owner IS NOT NULL AND cluster <> %(key)s
"""


class SourceHolders:
    """The holders.

    Args:
        database: The coordinator.
        lease: The lease of this process, which reads.
    """

    def __init__(self, database: CoordinatorDatabase, lease: ClusterLease) -> None:
        self._database = database
        self._lease = lease

    def others(self, session: Session) -> frozenset[int]:
        """Return the numbers of others who read, and may still write: also of the dead, until that is known."""
        return frozenset(number for (number,) in session.execute(_OTHERS, self._given))

    @property
    def _given(self) -> dict[str, object]:
        lease = self._lease
        return {**lease.claim, "reads": lease.reads, "readers": lease.readers}

    def shared(self) -> SharedSources:
        """See `LogIndex.shared`."""
        given = self._given
        with self._database.session("ask what is to be read") as session:
            nodes = dict(session.execute(_NODES, given).fetchall())
            found = session.execute(_SHARED, given).fetchall()
        node = self._lease.node
        mine = [(source, past, *order) for source, past, holder, *order in found if holder == node and order[0]]
        return SharedSources(
            node=node, nodes=nodes, orders=orders_of(mine),
            holders={source: holder for source, _, holder, *_ in found},
            pasts={source: past for source, past, *_ in found},
        )  # fmt: skip

    def hold(self, pasts: Mapping[str, int]) -> Collection[str]:
        """See `LogIndex.hold`."""
        given = {**self._given, "sources": list(pasts), "pasts": list(pasts.values())}
        with self._database.session("take sources") as session:
            with session.transaction():
                if session.execute(_LIVES_ITSELF, given).fetchone() is None:
                    return []
                session.execute(_END_LATE, given)
            # Another snapshot: what they were in the middle of is there by now.
            with session.transaction():
                self._lease.prove(session)
                return [source for (source,) in session.execute(_HOLD, given)]

    def release(self, sources: Collection[str]) -> None:
        """See `LogIndex.release`."""
        with self._database.session("give sources back") as session, session.transaction():
            self._lease.prove(session)
            session.execute(_RELEASE, {**self._given, "sources": list(sources)})

    def unread(self) -> Collection[str]:
        """See `LogIndex.unread`."""
        with self._database.session("ask what nobody reads") as session:
            return [source for (source,) in session.execute(_UNREAD, self._given)]


def held_sources(session: Session, lease: ClusterLease) -> dict[str, int]:
    """Return how many sources each node holds, of a coordinator that may have no log."""
    if session.execute(f"SELECT {ARE_MADE}").fetchone() != (True,):
        return {}
    given = {"cluster": lease.cluster, "readers": lease.readers}
    return dict(session.execute(_COUNTS, given).fetchall())


__all__ = ["ARE_MADE", "COLUMNS", "NEXT_PAST", "SourceHolders", "held_sources"]
