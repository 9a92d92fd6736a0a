"""The index of a log as a group of it has it: see `LogIndex.group`, and `log_groups` for its rows."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from kuvasz.errors import StateError
from kuvasz.state.staged.coordinated import CoordinatedIndex, staged_position
from kuvasz.state.staged.holders import SourceHolders
from kuvasz.state.staged.order_proof import prove_order
from kuvasz.state.staged.orders import KnownPast, StreamOrder
from kuvasz.state.staged.ports import LogLease, StagedPosition

if TYPE_CHECKING:
    from kuvasz.state.coordinator.database import CoordinatorDatabase, Session
    from kuvasz.state.coordinator.lease import ClusterLease
    from kuvasz.state.ports import LeaseHolder

#: Who knows nothing of groups would remove what they need, and refuses to begin with it.
_GROUPED: Final = """
INSERT INTO kuvasz.version SELECT 2 WHERE NOT EXISTS (SELECT FROM kuvasz.version WHERE version >= 2)
"""
_BEGIN: Final = "INSERT INTO kuvasz.log_group (cluster, name) VALUES (%(cluster)s, %(name)s) ON CONFLICT DO NOTHING"
_POSITIONS: Final = """
SELECT s.source, s.lsn, s.ended, s.number, g.applied, s.past, s.given_up
FROM kuvasz.log_source AS s JOIN kuvasz.log_group_source AS g USING (cluster, source, past, begun)
WHERE s.cluster = %(cluster)s AND g.name = %(name)s
"""
#: Nobody removes anything of it, or sets it back, between what is read here and what is written.
_LOCKED: Final = """
WITH locked AS MATERIALIZED (
    SELECT cluster, source, applied, past, begun FROM kuvasz.log_source
    WHERE cluster = %(cluster)s AND source = ANY(%(sources)s) ORDER BY source FOR NO KEY UPDATE
)
"""
#: Where the first group is in it: from there on the log has all.
_HEAR: Final = f"""
{_LOCKED}
INSERT INTO kuvasz.log_group_source (cluster, name, source, applied, past, begun)
SELECT cluster, %(name)s, source, applied, past, begun FROM locked
ON CONFLICT (cluster, name, source) DO UPDATE
    SET applied = excluded.applied, past = excluded.past, begun = excluded.begun
RETURNING 1
"""
_REJOIN: Final = f"""
{_LOCKED}
UPDATE kuvasz.log_group_source AS g SET past = locked.past FROM locked
WHERE g.cluster = locked.cluster AND g.name = %(name)s AND g.source = locked.source AND g.begun = locked.begun
"""
_APPLIED: Final = f"""
{_LOCKED}
UPDATE kuvasz.log_group_source AS g SET applied = greatest(g.applied, m.lsn)
FROM unnest(%(sources)s::text[], %(lsns)s::bigint[]) AS m (source, lsn), locked
WHERE g.cluster = locked.cluster AND g.name = %(name)s AND g.source = locked.source AND m.source = locked.source
    AND g.past = locked.past AND g.begun = locked.begun
"""
_SET_BACK: Final = f"""
{_LOCKED}
UPDATE kuvasz.log_group_source AS g SET applied = least(g.applied, %(lsn)s) FROM locked
WHERE g.cluster = locked.cluster AND g.name = %(name)s AND g.source = locked.source
"""
_HEARD: Final = "SELECT source FROM kuvasz.log_group_source WHERE cluster = %(cluster)s AND name = %(name)s"
_LEAVE: Final = """
DELETE FROM kuvasz.log_group_source WHERE cluster = %(cluster)s AND name = %(name)s AND source = ANY(%(sources)s)
"""


class CoordinatedGroupIndex(CoordinatedIndex):
    """The index.

    Args:
        database: The coordinator.
        cluster: Whose log it is: its name without the group.
        group: The group.
        lease: What a write names: one of the group's own.
        readers: Knows the leases of those who read.
    """

    def __init__(
        self, database: CoordinatorDatabase, cluster: str, group: str, lease: ClusterLease, readers: ClusterLease
    ) -> None:
        super().__init__(database, cluster, lease)
        self._group = group
        self._readers = readers
        self._holders = SourceHolders(database, readers)

    @property
    @override
    def group(self) -> str:
        """See `LogIndex.group`."""
        return self._group

    def _given(self, *sources: str) -> dict[str, object]:
        return {"cluster": self._cluster, "name": self._group, "sources": list(sources)}

    @override
    def _begin(self, session: Session) -> LogLease:
        with session.transaction():
            self._lease.prove(session)
            session.execute(_GROUPED)
            session.execute(_BEGIN, self._given())
        return LogLease("", self._lease.number)

    @override
    def positions(self) -> dict[str, StagedPosition]:
        """See `LogIndex.positions`."""
        with self._database.session("ask how far sources are staged") as session:
            return dict(map(staged_position, session.execute(_POSITIONS, self._given())))

    def _write(self, doing: str, query: str, *sources: str, lsn: int = 0) -> int:
        with self._database.session(doing) as session, session.transaction():
            self._lease.prove(session)
            return session.execute(query, {**self._given(*sources), "lsn": lsn}).rowcount

    @override
    def begin_anew(self, source: str, lsn: int) -> None:
        """See `LogIndex.begin_anew`."""
        if not self._write("begin to hear a source", _HEAR, source):
            raise StateError(
                f"{self.place}: nothing is staged of {source}",
                hint="it is as soon as the processes without a group replicate it; it is tried again",
            )

    @override
    def rejoin(self, source: str) -> bool:
        """See `LogIndex.rejoin`."""
        return self._write("go on with a source", _REJOIN, source) > 0

    @override
    def set_back(self, source: str, lsn: int) -> None:
        """See `LogIndex.set_back`."""
        self._write("set a source back", _SET_BACK, source, lsn=lsn)

    @property
    @override
    def _noting(self) -> str:
        return _APPLIED

    @override
    def forget(self, source: str) -> None:
        """See `LogIndex.forget`."""
        self.withdraw(source)

    @override
    def withdraw(self, source: str) -> None:
        """See `LogIndex.withdraw`."""
        self._write("hear a source no more", _LEAVE, source)

    @override
    def wanted(self) -> Collection[str]:
        """See `LogIndex.wanted`."""
        with self._database.session("ask what is heard") as session:
            return {source for (source,) in session.execute(_HEARD, self._given())}

    @override
    def give(self, source: str, order: StreamOrder, known: KnownPast, *, is_again: bool = False) -> bool:
        """See `LogIndex.give`: what becomes of it is told by its past."""
        if not is_again:
            prove_order(source, order, self.orders().get(source), self.positions().get(source))
        return True

    @override
    def reader(self) -> LeaseHolder | None:
        """See `LogIndex.reader`."""
        return self._readers.reader()


__all__ = ["CoordinatedGroupIndex"]
