"""The list of a cluster's processes: each signs it with its heartbeat, also while it only stands by."""

from __future__ import annotations

import datetime
from typing import Final

from kuvasz import __version__
from kuvasz.config.model import ClusterRole
from kuvasz.errors import ConfigError
from kuvasz.state.coordinator.database import CoordinatorDatabase, Session
from kuvasz.state.coordinator.lease import TOGETHER, ClusterLease
from kuvasz.state.ports import ClusterNode
from kuvasz.state.shares.coordinated import forget_holder, held_targets
from kuvasz.state.staged.holders import held_sources

#: A node that was not heard of for so many leases is forgotten.
_GONE_LEASES: Final = 30

#: A process that begins anew gives nothing away: what a person wanted was of the one before.
_SEEN = """
INSERT INTO kuvasz.node (cluster, name, host, pid, version, map, since, seen, role)
VALUES (%(cluster)s, %(node)s, %(host)s, %(pid)s, %(version)s, %(map)s, clock_timestamp(), clock_timestamp(),
    %(role)s)
ON CONFLICT (cluster, name) DO UPDATE SET seen = excluded.seen, pid = excluded.pid, version = excluded.version,
    map = excluded.map, role = excluded.role, drains = node.drains AND node.pid = excluded.pid,
    since = CASE WHEN node.pid = excluded.pid THEN node.since ELSE excluded.since END
"""
_FORGET = "DELETE FROM kuvasz.node WHERE cluster = %s AND (name = %s OR seen < clock_timestamp() - %s)"
#: Its last number is remembered by the lease that all of its role have.
_FORGET_LEASES = """
DELETE FROM kuvasz.lease
WHERE starts_with(cluster, %s) AND (owner IS NULL AND cluster = %s OR until < clock_timestamp() - %s)
"""
_NODES = """
SELECT name, host, pid, version, map, extract(epoch FROM since)::float8,
    extract(epoch FROM clock_timestamp() - seen)::float8,
    EXISTS (SELECT FROM kuvasz.lease WHERE owner = name AND until > clock_timestamp() AND does <> ALL(%(together)s)
        AND lease.cluster IN (%(cluster)s, %(reads)s, %(readers)s || name, %(appliers)s || name)),
    role, drains
FROM kuvasz.node WHERE cluster = %(cluster)s ORDER BY 1
"""
_DRAIN = "UPDATE kuvasz.node SET drains = %s WHERE cluster = %s AND name = %s RETURNING 1"
#: Whoever takes a lease waits for it.
_TURN = "SELECT pg_advisory_xact_lock(hashtextextended('kuvasz ' || %(cluster)s, 0))"
#: The one that several have together names any of them.
_OF_NODE = """
owner = %(node)s
    AND cluster IN (%(cluster)s, %(reads)s, %(readers)s::text || %(node)s::text, %(appliers)s::text || %(node)s::text)
"""
#: It cannot renew what it has meanwhile.
_LOCKED = f"SELECT FROM kuvasz.lease WHERE {_OF_NODE} ORDER BY cluster FOR UPDATE"
_LIVES = f"""
SELECT 1 FROM kuvasz.lease WHERE {_OF_NODE} AND until > clock_timestamp() AND does <> ALL(%(together)s)
UNION ALL SELECT 1 FROM kuvasz.node
WHERE cluster = %(cluster)s AND name = %(node)s AND seen > clock_timestamp() - %(lease)s
"""
#: Whatever it asks for if it wakes is refused.
_END = f"UPDATE kuvasz.lease SET owner = NULL WHERE {_OF_NODE} AND until < clock_timestamp()"
_FORGET_NODE = "DELETE FROM kuvasz.node WHERE cluster = %(cluster)s AND name = %(node)s"


class NodeList:
    """The list.

    Args:
        database: Where it is.
        lease: This process's lease.
        host: This machine's name.
        pid: This process.
    """

    def __init__(self, database: CoordinatorDatabase, lease: ClusterLease, host: str, pid: int) -> None:
        self._database = database
        self._lease = lease
        self._host = host
        self._pid = pid

    def sign(self, session: Session, map_digest: str) -> None:
        """Say that this node lives.

        Raises:
            psycopg.Error: The coordinator does not answer.
        """
        lease = self._lease
        session.execute(
            _SEEN, {"cluster": lease.cluster, "node": lease.node, "host": self._host, "pid": self._pid,
                    "version": __version__, "map": map_digest, "role": lease.role},
        )  # fmt: skip

    def leave(self) -> None:
        """Take this node off the list, and others that are long gone.

        Raises:
            StateError: The coordinator does not answer.
        """
        lease = self._lease
        gone = datetime.timedelta(seconds=_GONE_LEASES * lease.lease_s)
        with self._database.session("leave the cluster") as session:
            session.execute(_FORGET, (lease.cluster, lease.node, gone))
            for members in (lease.readers, lease.appliers):
                session.execute(_FORGET_LEASES, (members, f"{members}{lease.node}", gone))

    def all(self) -> list[ClusterNode]:
        """Return the nodes that are there, or were not long ago.

        Raises:
            StateError: The coordinator does not answer.
        """
        lease, given = self._lease, self._given
        with self._database.session("list the nodes") as session:
            held, targets = held_sources(session, lease), held_targets(session, lease)
            return [
                ClusterNode(
                    name=name, host=host, pid=pid, version=version, map_digest=digest, since=since,
                    silent_s=max(0.0, silent_s), is_holder=is_holder, role=role, is_draining=drains,
                    sources=held.get(name, 0) if role == ClusterRole.READ else None,
                    targets=targets.get(name, 0) if role == ClusterRole.APPLY else None,
                )
                for name, host, pid, version, digest, since, silent_s, is_holder, role, drains in session.execute(
                    _NODES, given
                )
            ]  # fmt: skip

    @property
    def _given(self) -> dict[str, object]:
        lease = self._lease
        return {
            "cluster": lease.cluster, "reads": lease.reads, "readers": lease.readers, "appliers": lease.appliers,
            "together": list(TOGETHER), "lease": datetime.timedelta(seconds=lease.lease_s),
        }  # fmt: skip

    def forget(self, node: str) -> bool:
        """Forget a node that is gone for good; return whether anything was known of it.

        Raises:
            ConfigError: It was heard of in time.
            StateError: The coordinator does not answer.
        """
        given = {**self._given, "node": node}
        with self._database.session("forget a node") as session, session.transaction():
            session.execute(_TURN, given)
            session.execute(_LOCKED, given)
            if session.execute(_LIVES, given).fetchone() is not None:
                raise ConfigError(
                    f"cluster: process {node} was heard of within the last {self._lease.lease_s:g} s",
                    hint="stop it first; one that is dead is not heard of for longer than `cluster.lease`",
                )
            known = [session.execute(query, given).rowcount for query in (_END, _FORGET_NODE)]
            return any([*known, forget_holder(session, given)])

    def drain(self, node: str, *, drains: bool) -> bool:
        """Have a node give away what it holds, or have its share again; return whether there is such a node.

        Raises:
            StateError: The coordinator does not answer.
        """
        with self._database.session("drain a node") as session:
            return session.execute(_DRAIN, (drains, self._lease.cluster, node)).fetchone() is not None


__all__ = ["NodeList"]
