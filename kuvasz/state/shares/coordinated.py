"""Who applies which group of the map, in the coordinator: a row for each that is held.

A process that left without a word is ended, in the coordinator, before anything of it is taken: whatever it still
writes there is refused, for it names its lease. What it still commits to a table is refused by Iceberg, for it names
the state of the table that it was worked out on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from kuvasz.state.coordinator.database import make_once
from kuvasz.state.shares.ports import ApplierNode, GroupHolders, HeldGroup, SharedGroups

if TYPE_CHECKING:
    from kuvasz.state.coordinator.database import CoordinatorDatabase, Session
    from kuvasz.state.coordinator.lease import ClusterLease

#: See `make_once`.
_MAKING: Final = 0x6B757661736D

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS kuvasz.applied_group (
    cluster text NOT NULL,
    name text NOT NULL,           -- of an entry of `databases`
    holder text NOT NULL,         -- a node that applies it, or left without a word
    held bigint NOT NULL,         -- the number of that one's lease
    map text NOT NULL,            -- the digest of its map
    targets int NOT NULL,         -- how many it has there
    PRIMARY KEY (cluster, name)
)
"""
_IS_MADE: Final = "SELECT to_regclass('kuvasz.applied_group') IS NOT NULL"
#: Of a group: its holder's lease. One that has another number by now is another process's.
_LEASE: Final = "l.cluster = %(appliers)s || g.holder AND l.number = g.held AND l.owner = g.holder"
_LIVES: Final = "l.until > clock_timestamp()"
_NODES: Final = f"""
SELECT l.owner, coalesce(n.drains, false), l.map FROM kuvasz.lease AS l
LEFT JOIN kuvasz.node AS n ON n.cluster = %(cluster)s AND n.name = l.owner
WHERE starts_with(l.cluster, %(appliers)s) AND l.owner IS NOT NULL AND {_LIVES}
"""
_HELD: Final = f"""
SELECT g.name, g.holder, EXISTS (SELECT FROM kuvasz.lease AS l WHERE {_LEASE} AND {_LIVES}), g.map, g.targets
FROM kuvasz.applied_group AS g WHERE g.cluster = %(cluster)s
"""
#: Who is late itself takes nothing: it may be about to be ended.
_LIVES_ITSELF: Final = """
SELECT FROM kuvasz.lease WHERE cluster = %(key)s AND number = %(number)s AND owner = %(node)s
    AND until > clock_timestamp() FOR SHARE
"""
_END_LATE: Final = """
UPDATE kuvasz.lease SET owner = NULL
WHERE starts_with(cluster, %(appliers)s) AND owner IS NOT NULL AND until < clock_timestamp()
"""
#: One at a time, so that each sees the leases of all who held before it.
_TURN: Final = "SELECT pg_advisory_xact_lock(hashtextextended('kuvasz groups ' || %(cluster)s, 0))"
_HOLD: Final = f"""
INSERT INTO kuvasz.applied_group AS g (cluster, name, holder, held, map, targets)
SELECT %(cluster)s, m.name, %(node)s, %(number)s, %(map)s, m.targets
FROM unnest(%(groups)s::text[], %(targets)s::int[]) AS m (name, targets)
ON CONFLICT (cluster, name) DO UPDATE SET holder = excluded.holder, held = excluded.held, map = excluded.map,
    targets = excluded.targets
WHERE (g.holder = excluded.holder AND g.held = excluded.held)
    OR NOT EXISTS (SELECT FROM kuvasz.lease AS l WHERE {_LEASE})
RETURNING g.name
"""
_RELEASE: Final = """
DELETE FROM kuvasz.applied_group
WHERE cluster = %(cluster)s AND name = ANY(%(groups)s) AND holder = %(node)s AND held = %(number)s
"""
_FORGET: Final = "DELETE FROM kuvasz.applied_group WHERE cluster = %(cluster)s AND holder = %(node)s"
_COUNTS: Final = f"""
SELECT g.holder, sum(g.targets)::int FROM kuvasz.applied_group AS g JOIN kuvasz.lease AS l ON {_LEASE}
WHERE g.cluster = %(cluster)s GROUP BY 1
"""


class CoordinatedGroups(GroupHolders):
    """The record.

    Args:
        database: The coordinator.
        lease: The lease of this process, which applies.
    """

    def __init__(self, database: CoordinatorDatabase, lease: ClusterLease) -> None:
        self._database = database
        self._lease = lease

    @property
    def _given(self) -> dict[str, object]:
        return {**self._lease.claim, "appliers": self._lease.appliers}

    @override
    def open(self) -> None:
        """See `GroupHolders.open`."""
        with self._database.session("make the table of who applies what") as session:
            make_once(session, _IS_MADE, _MAKING, lambda: session.execute(_TABLE))

    @override
    def shared(self) -> SharedGroups:
        """See `GroupHolders.shared`."""
        with self._database.session("ask who applies what") as session:
            nodes = session.execute(_NODES, self._given).fetchall()
            held = session.execute(_HELD, self._given).fetchall()
        return SharedGroups(
            node=self._lease.node,
            nodes={name: ApplierNode(drains=drains, map=digest) for name, drains, digest in nodes},
            held={
                name: HeldGroup(node=node, lives=lives, map=digest, targets=targets)
                for name, node, lives, digest, targets in held
            },
        )

    @override
    def hold(self, targets: Mapping[str, int], map_digest: str) -> Collection[str]:
        """See `GroupHolders.hold`."""
        given = {
            **self._given, "groups": list(targets), "targets": list(targets.values()), "map": map_digest
        }  # fmt: skip
        with self._database.session("take groups") as session:
            with session.transaction():
                if session.execute(_LIVES_ITSELF, given).fetchone() is None:
                    return []
                session.execute(_END_LATE, given)
            # Another snapshot: what they were in the middle of is there by now.
            with session.transaction():
                session.execute(_TURN, given)
                self._lease.prove(session)
                return [name for (name,) in session.execute(_HOLD, given)]

    @override
    def release(self, groups: Collection[str]) -> None:
        """See `GroupHolders.release`."""
        with self._database.session("give groups back") as session, session.transaction():
            given = {**self._given, "groups": list(groups)}
            session.execute(_TURN, given)
            self._lease.prove(session)
            session.execute(_RELEASE, given)


def forget_holder(session: Session, given: Mapping[str, object]) -> int:
    """Have what a node held be nobody's, whichever map it had; return how many groups that are."""
    if session.execute(_IS_MADE).fetchone() != (True,):
        return 0
    session.execute(_TURN, given)
    return session.execute(_FORGET, given).rowcount


def held_targets(session: Session, lease: ClusterLease) -> dict[str, int]:
    """Return how many targets each node holds, of a coordinator where none may ever have been shared."""
    if session.execute(_IS_MADE).fetchone() != (True,):
        return {}
    return dict(session.execute(_COUNTS, {"cluster": lease.cluster, "appliers": lease.appliers}).fetchall())


__all__ = ["CoordinatedGroups", "forget_holder", "held_targets"]
