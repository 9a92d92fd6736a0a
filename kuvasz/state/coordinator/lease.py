"""The lease of a cluster: whoever holds it replicates, and everybody else stands by.

With a log there may be two: one of who reads sources, under a name of its own, and that of the cluster, of who
applies. Whoever does both has the cluster's, for as long as nobody reads.

The coordinator's clock says when it ends. Its holder goes by a clock of its own that runs on while the machine
sleeps, from before it asked for more time, so it never believes in the lease for longer than the coordinator does.
"""

from __future__ import annotations

import datetime
import functools
import time
from collections.abc import Callable, Mapping
from typing import Final

from kuvasz import __version__
from kuvasz.config.model import ClusterRole
from kuvasz.errors import StateTaken
from kuvasz.state.coordinator.database import CoordinatorDatabase, Session
from kuvasz.state.ports import ClusterNode, LeaseHolder

#: A node that was not heard of for so many leases is forgotten.
_GONE_LEASES: Final = 30

#: Of the cluster's name: who reads has a lease of its own. It ends no name of a cluster (`kuvasz.config.check`).
READS: Final = "/read"

#: What the one that does everything does with the cluster's lease.
REPLICATES: Final = "replicates"

#: Two that must not both have theirs ask one after the other.
_TURN = "SELECT pg_advisory_xact_lock(hashtextextended('kuvasz ' || %s, 0))"
_BOTH = """
SELECT cluster, owner, does, map, since, until < clock_timestamp() FROM kuvasz.lease
WHERE cluster = ANY(%s) AND owner IS NOT NULL
"""
#: One number for both: objects of the log are named by it, and who came later has the greater one.
_TAKE = """
INSERT INTO kuvasz.lease AS held (cluster, number, owner, does, map, since, until)
SELECT %(key)s, coalesce(max(number), 0) + 1, %(node)s, %(does)s, %(map)s, clock_timestamp(),
    clock_timestamp() + %(lease)s
FROM kuvasz.lease WHERE cluster = ANY(%(keys)s)
ON CONFLICT (cluster) DO UPDATE SET number = excluded.number, owner = excluded.owner, does = excluded.does,
    map = excluded.map, since = excluded.since, until = excluded.until
RETURNING number
"""
#: Of one that is late: whatever it still asks for is refused.
_END = "UPDATE kuvasz.lease SET owner = NULL WHERE cluster = %s AND owner = %s"
_HOLDER = """
SELECT owner, does, map, since, until < clock_timestamp() FROM kuvasz.lease WHERE cluster = %s AND owner IS NOT NULL
"""
#: Shared with who takes the lease over: it has changed hands before this, or only after it.
#: The owner as well: a coordinator that was restored gives numbers away once more.
HELD = "SELECT FROM kuvasz.lease WHERE cluster = %(key)s AND number = %(number)s AND owner = %(node)s FOR SHARE"
_RENEW = """
UPDATE kuvasz.lease SET until = clock_timestamp() + %s, map = %s
WHERE cluster = %s AND number = %s AND owner = %s RETURNING 1
"""
_GIVE_BACK = "UPDATE kuvasz.lease SET owner = NULL, until = clock_timestamp() WHERE cluster = %s AND number = %s"
_SEEN = """
INSERT INTO kuvasz.node (cluster, name, host, pid, version, map, since, seen, role)
VALUES (%(cluster)s, %(node)s, %(host)s, %(pid)s, %(version)s, %(map)s, clock_timestamp(), clock_timestamp(),
    %(role)s)
ON CONFLICT (cluster, name) DO UPDATE SET seen = excluded.seen, pid = excluded.pid, version = excluded.version,
    map = excluded.map, role = excluded.role,
    since = CASE WHEN node.pid = excluded.pid THEN node.since ELSE excluded.since END
"""
_FORGET = "DELETE FROM kuvasz.node WHERE cluster = %s AND (name = %s OR seen < clock_timestamp() - %s)"
_NODES = """
SELECT name, host, pid, version, map, extract(epoch FROM since)::float8,
    extract(epoch FROM clock_timestamp() - seen)::float8,
    EXISTS (SELECT FROM kuvasz.lease WHERE lease.cluster = ANY(%s) AND owner = name AND until > clock_timestamp()),
    role
FROM kuvasz.node WHERE cluster = %s ORDER BY 1
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
        self.role = ClusterRole.ALL  #: what for: that of who reads is another one
        self.number = 0  #: of the lease that this node holds, or held last; 0: it never held one
        self.is_held = False
        self.was_killed = False  #: the one before left without a word
        self.ends_at = 0.0  #: by `clock_s`

    @functools.cached_property
    def node(self) -> str:
        """This node's name, which is made where it is needed: who only looks leaves no trace."""
        return self._node()

    @property
    def _key(self) -> str:
        return self._reads if self.role is ClusterRole.READ else self.cluster

    @property
    def _reads(self) -> str:
        return f"{self.cluster}{READS}"

    def take(self, does: str, map_digest: str) -> LeaseHolder | None:
        """Take the lease if it is free, and nobody has the other one whom this one excludes; return who does if not.

        Raises:
            StateError: The coordinator does not answer.
        """
        begin = clock_s()
        with self._database.session("take the lease") as session:
            # Who only tries would write each time.
            if (blocker := self._blocker(self._both(session), does)) is not None:
                return blocker
            with session.transaction():
                session.execute(_TURN, (self.cluster,))
                both = self._both(session)
                if (blocker := self._blocker(both, does)) is not None:
                    return blocker
                before = both.get(self._key)
                for key, late in both.items():
                    if key != self._key and self._excludes(key, late, does):
                        session.execute(_END, (key, late.node))
                        before = before or late
                taken = session.execute(
                    _TAKE, {"key": self._key, "keys": [self.cluster, self._reads], "node": self.node, "does": does,
                            "map": map_digest, "lease": _interval(self.lease_s)},
                ).fetchone()  # fmt: skip
        assert taken is not None
        self.number, self.is_held, self.ends_at = taken[0], True, begin + self.lease_s
        self.was_killed = before is not None and before.node != self.node
        return None

    def _both(self, session: Session) -> dict[str, LeaseHolder]:
        found = session.execute(_BOTH, ([self.cluster, self._reads],))
        return {key: _holder_of(*facts) for key, *facts in found}

    def _blocker(self, both: Mapping[str, LeaseHolder], does: str) -> LeaseHolder | None:
        """Return who lives and has what is asked for, or the other lease, and this one excludes that."""
        ordered = sorted(both.items(), key=lambda one: one[0] != self._key)
        mine = (one for key, one in ordered if key == self._key or self._excludes(key, one, does))
        return next((one for one in mine if not one.is_late and one.node != self.node), None)

    def _excludes(self, key: str, other: LeaseHolder, does: str) -> bool:
        """Whether the holder of the other lease reads sources, or would, as this one is to do."""
        if self.role is ClusterRole.READ:
            return key == self.cluster and other.does == REPLICATES
        return key == self._reads and does == REPLICATES

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
        return {"cluster": self.cluster, "key": self._key, "number": self.number, "node": self.node}

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
        found = session.execute(_HOLDER, (self._key,)).fetchone()
        return None if found is None else _holder_of(*found)

    def reader(self) -> LeaseHolder | None:
        """Return who has the lease of those that read; None: nobody.

        Raises:
            StateError: The coordinator does not answer.
        """
        with self._database.session("ask who reads") as session:
            found = session.execute(_HOLDER, (self._reads,)).fetchone()
        return None if found is None else _holder_of(*found)

    def renew(self, session: Session, map_digest: str) -> bool:
        """Ask for more time, and say which map is in use; return whether the lease is still this node's.

        Raises:
            psycopg.Error: The coordinator does not answer.
        """
        begin = clock_s()
        given = (_interval(self.lease_s), map_digest, self._key, self.number, self.node)
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
                session.execute(_GIVE_BACK, (self._key, self.number))

    def sign(self, session: Session, map_digest: str) -> None:
        """Say that this node lives.

        Raises:
            psycopg.Error: The coordinator does not answer.
        """
        session.execute(
            _SEEN, {"cluster": self.cluster, "node": self.node, "host": self._host, "pid": self._pid,
                    "version": __version__, "map": map_digest, "role": self.role},
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
                    silent_s=max(0.0, silent_s), is_holder=is_holder, role=role,
                )
                for name, host, pid, version, digest, since, silent_s, is_holder, role in session.execute(
                    _NODES, ([self.cluster, self._reads], self.cluster)
                )
            ]  # fmt: skip


def _holder_of(node: str, does: str, digest: str, since: datetime.datetime, is_late: bool) -> LeaseHolder:  # noqa: FBT001
    return LeaseHolder(
        node=node, does=does, map_digest=digest, since=since.isoformat(timespec="seconds"), is_late=is_late
    )  # fmt: skip


def _interval(seconds: float) -> datetime.timedelta:
    return datetime.timedelta(seconds=seconds)


__all__ = ["HELD", "READS", "REPLICATES", "ClusterLease", "clock_s"]
