"""The lease of a cluster: whoever holds it replicates, and everybody else stands by.

The coordinator's clock says when it ends. Its holder goes by a clock of its own that runs on while the machine
sleeps, from before it asked for more time, so it never believes in the lease for longer than the coordinator does.
"""

from __future__ import annotations

import datetime
import functools
import time
from collections.abc import Callable
from typing import Final

from kuvasz import __version__
from kuvasz.errors import StateTaken
from kuvasz.state.coordinator.database import CoordinatorDatabase, Session
from kuvasz.state.ports import ClusterNode, LeaseHolder

#: A node that was not heard of for so many leases is forgotten.
_GONE_LEASES: Final = 30

_TAKE = """
INSERT INTO kuvasz.lease AS held (cluster, number, owner, does, map, since, until)
VALUES (%(cluster)s, 1, %(node)s, %(does)s, %(map)s, clock_timestamp(), clock_timestamp() + %(lease)s)
ON CONFLICT (cluster) DO UPDATE SET number = held.number + 1, owner = excluded.owner, does = excluded.does,
    map = excluded.map, since = excluded.since, until = excluded.until
WHERE held.owner IS NULL OR held.until < clock_timestamp() OR held.owner = %(node)s
RETURNING number
"""
_HOLDER = """
SELECT owner, does, map, since, until < clock_timestamp() FROM kuvasz.lease WHERE cluster = %s AND owner IS NOT NULL
"""
#: Shared with who takes the lease over: it has changed hands before this, or only after it.
#: The owner as well: a coordinator that was restored gives numbers away once more.
HELD = "SELECT FROM kuvasz.lease WHERE cluster = %(cluster)s AND number = %(number)s AND owner = %(node)s FOR SHARE"
_RENEW = """
UPDATE kuvasz.lease SET until = clock_timestamp() + %s, map = %s
WHERE cluster = %s AND number = %s AND owner = %s RETURNING 1
"""
_GIVE_BACK = "UPDATE kuvasz.lease SET owner = NULL, until = clock_timestamp() WHERE cluster = %s AND number = %s"
_SEEN = """
INSERT INTO kuvasz.node (cluster, name, host, pid, version, map, since, seen)
VALUES (%(cluster)s, %(node)s, %(host)s, %(pid)s, %(version)s, %(map)s, clock_timestamp(), clock_timestamp())
ON CONFLICT (cluster, name) DO UPDATE SET seen = excluded.seen, pid = excluded.pid, version = excluded.version,
    map = excluded.map, since = CASE WHEN node.pid = excluded.pid THEN node.since ELSE excluded.since END
"""
_FORGET = "DELETE FROM kuvasz.node WHERE cluster = %s AND (name = %s OR seen < clock_timestamp() - %s)"
_NODES = """
SELECT node.name, host, pid, version, node.map, extract(epoch FROM node.since)::float8,
    extract(epoch FROM clock_timestamp() - seen)::float8,
    coalesce(lease.owner = node.name AND lease.until > clock_timestamp(), false)
FROM kuvasz.node LEFT JOIN kuvasz.lease USING (cluster) WHERE cluster = %s ORDER BY 1
"""


def clock_s() -> float:
    """Return seconds of a clock that goes on while the machine sleeps (clock_gettime(2), CLOCK_BOOTTIME)."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class ClusterLease:
    """The lease as one node sees it.

    Args:
        database: Where it is.
        cluster: Which cluster's.
        node: Returns this node's name, which no other process has while this one lives.
        host: This machine's name.
        pid: This process.
        lease_s: For how long it is taken.
    """

    def __init__(
        self,
        database: CoordinatorDatabase,
        cluster: str,
        node: Callable[[], str],
        host: str,
        pid: int,
        lease_s: float,
    ) -> None:
        self._database = database
        self.cluster = cluster
        self._node = node
        self._host = host
        self._pid = pid
        self.lease_s = lease_s
        self.number = 0  #: of the lease that this node holds, or held last; 0: it never held one
        self.is_held = False
        self.was_killed = False  #: the one before left without a word
        self.ends_at = 0.0  #: by `clock_s`

    @functools.cached_property
    def node(self) -> str:
        """This node's name, which is made where it is needed: who only looks leaves no trace."""
        return self._node()

    def take(self, does: str, map_digest: str) -> LeaseHolder | None:
        """Take the lease if it is free; return who holds it if not.

        Raises:
            StateError: The coordinator does not answer.
        """
        begin = clock_s()
        with self._database.session("take the lease") as session:
            before = self._holder(session)
            if before is not None and not before.is_late and before.node != self.node:
                return before  # who only tries would write to its row each time
            taken = session.execute(
                _TAKE, {"cluster": self.cluster, "node": self.node, "does": does, "map": map_digest,
                        "lease": _interval(self.lease_s)},
            ).fetchone()  # fmt: skip
            if taken is None:
                return before or self._holder(session)
        self.number, self.is_held, self.ends_at = taken[0], True, begin + self.lease_s
        self.was_killed = before is not None and before.node != self.node
        return None

    def prove(self, session: Session) -> None:
        """Make sure that this node holds the lease for as long as the session's transaction goes on.

        Raises:
            StateTaken: It is somebody else's by now.
            psycopg.Error: The coordinator does not answer.
        """
        if session.execute(HELD, self.claim).fetchone() is None:
            raise self.lost()

    @property
    def claim(self) -> dict[str, object]:
        """Return what `HELD` asks for."""
        return {"cluster": self.cluster, "number": self.number, "node": self.node}

    def lost(self) -> StateTaken:
        """Return the error of who has the lease no more."""
        return StateTaken(
            f"{self._database.place}, cluster {self.cluster}: another process replicates by now",
            hint="`kuvasz cluster nodes` says which; this one ends, or has to be stopped",
        )

    def holder(self) -> LeaseHolder | None:
        """Return who holds the lease, or held it last and left without a word; None: nobody.

        Raises:
            StateError: The coordinator does not answer.
        """
        with self._database.session("ask who replicates") as session:
            return self._holder(session)

    def _holder(self, session: Session) -> LeaseHolder | None:
        found = session.execute(_HOLDER, (self.cluster,)).fetchone()
        if found is None:
            return None
        node, does, digest, since, is_late = found
        return LeaseHolder(
            node=node, does=does, map_digest=digest, since=since.isoformat(timespec="seconds"), is_late=is_late
        )  # fmt: skip

    def renew(self, session: Session, map_digest: str) -> bool:
        """Ask for more time, and say which map is in use; return whether the lease is still this node's.

        Raises:
            psycopg.Error: The coordinator does not answer.
        """
        begin = clock_s()
        given = (_interval(self.lease_s), map_digest, self.cluster, self.number, self.node)
        if session.execute(_RENEW, given).fetchone() is None:
            return False
        self.ends_at = begin + self.lease_s
        return True

    def give_back(self) -> None:
        """Let the next one have the lease.

        Raises:
            StateError: The coordinator does not answer; the lease ends by itself.
        """
        if self.is_held:
            self.is_held = False
            with self._database.session("give the lease back") as session:
                session.execute(_GIVE_BACK, (self.cluster, self.number))

    def sign(self, session: Session, map_digest: str) -> None:
        """Say that this node lives.

        Raises:
            psycopg.Error: The coordinator does not answer.
        """
        session.execute(
            _SEEN, {"cluster": self.cluster, "node": self.node, "host": self._host, "pid": self._pid,
                    "version": __version__, "map": map_digest},
        )  # fmt: skip

    def leave(self) -> None:
        """Take this node off the list, and others that are long gone.

        Raises:
            StateError: The coordinator does not answer.
        """
        with self._database.session("leave the cluster") as session:
            session.execute(_FORGET, (self.cluster, self.node, _interval(_GONE_LEASES * self.lease_s)))

    def nodes(self) -> list[ClusterNode]:
        """Return the nodes that are there, or were not long ago.

        Raises:
            StateError: The coordinator does not answer.
        """
        with self._database.session("list the nodes") as session:
            return [
                ClusterNode(
                    name=name, host=host, pid=pid, version=version, map_digest=digest, since=since,
                    silent_s=max(0.0, silent_s), is_holder=is_holder,
                )
                for name, host, pid, version, digest, since, silent_s, is_holder in session.execute(
                    _NODES, (self.cluster,)
                )
            ]  # fmt: skip


def _interval(seconds: float) -> datetime.timedelta:
    return datetime.timedelta(seconds=seconds)


__all__ = ["HELD", "ClusterLease", "clock_s"]
