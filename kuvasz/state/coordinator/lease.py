"""The lease of a cluster: whoever holds it replicates, and everybody else stands by.

With a log there may be more: each process that reads has one of its own, for they share the sources, and so has each
that applies, for they share the targets. All that read have another one together, and all that apply the cluster's.
Whoever does both has the cluster's alone, for as long as nobody reads.

The coordinator's clock says when it ends. Its holder goes by a clock of its own that runs on while the machine
sleeps, from before it asked for more time, so it never believes in the lease for longer than the coordinator does.
"""

from __future__ import annotations

import datetime
import functools
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kuvasz.config.model import ClusterRole
from kuvasz.errors import StateTaken
from kuvasz.state.coordinator.database import CoordinatorDatabase, Session
from kuvasz.state.ports import LeaseHolder

#: Of the cluster's name: one that all have who read, and behind it, with a node's name, the one of each. It is in no
#: name of a cluster (`kuvasz.config.check`).
READS: Final = "/read"

#: What those who read do with the one that they have together. Before they could share, one alone had it: it "reads".
SHARES: Final = "shares"

#: The same of those who apply, but that they have the cluster's together.
APPLIES: Final = "/apply"

#: What those who apply do with the cluster's lease. Before they could share, one alone had it: it "applies".
SHARES_TARGETS: Final = "applies a share"

#: What is done with a lease that several have together.
TOGETHER: Final = frozenset({SHARES, SHARES_TARGETS})

#: What the one that does everything does with the cluster's lease.
REPLICATES: Final = "replicates"

#: What it does from whom rows go for good: what is staged meanwhile might have some of them.
ERASES: Final = "erases rows"

#: What is done with the cluster's lease while nobody reads.
ALONE: Final = frozenset({REPLICATES, ERASES})

#: Two that must not both have theirs ask one after the other.
_TURN = "SELECT pg_advisory_xact_lock(hashtextextended('kuvasz ' || %s, 0))"
_BOTH = """
SELECT cluster, owner, does, map, since, until < clock_timestamp() FROM kuvasz.lease
WHERE cluster = ANY(%s) AND owner IS NOT NULL
"""
#: One number for all: objects of the log are named by it, and who came later has the greater one.
_TAKE = """
INSERT INTO kuvasz.lease AS held (cluster, number, owner, does, map, since, until)
SELECT %(key)s, coalesce(max(number), 0) + 1, %(node)s, %(does)s, %(map)s, clock_timestamp(),
    clock_timestamp() + %(lease)s
FROM kuvasz.lease WHERE cluster = ANY(%(keys)s)
ON CONFLICT (cluster) DO UPDATE SET number = excluded.number, owner = excluded.owner, does = excluded.does,
    map = excluded.map, since = excluded.since, until = excluded.until
RETURNING number
"""
#: Together: it is there for as long as one of those who read is, and remembers the last number of all.
_TAKE_SHARED = """
INSERT INTO kuvasz.lease AS held (cluster, number, owner, does, map, since, until)
VALUES (%(common)s, %(number)s, %(node)s, %(does)s, %(map)s, clock_timestamp(), clock_timestamp() + %(lease)s)
ON CONFLICT (cluster) DO UPDATE SET number = excluded.number, owner = excluded.owner, does = excluded.does,
    map = excluded.map, since = CASE WHEN held.owner IS NULL THEN excluded.since ELSE held.since END,
    until = greatest(held.until, excluded.until)
"""
#: Of one that is late: whatever it still asks for is refused.
_END = "UPDATE kuvasz.lease SET owner = NULL WHERE cluster = %s AND owner = %s"
_END_READERS = "UPDATE kuvasz.lease SET owner = NULL WHERE cluster = %s OR starts_with(cluster, %s)"
_END_APPLIERS = "UPDATE kuvasz.lease SET owner = NULL WHERE starts_with(cluster, %s)"
_HOLDER = """
SELECT owner, does, map, since, until < clock_timestamp() FROM kuvasz.lease WHERE cluster = %s AND owner IS NOT NULL
"""
#: Shared with who takes the lease over: it has changed hands before this, or only after it.
#: The owner as well: a coordinator that was restored gives numbers away once more.
HELD = "SELECT FROM kuvasz.lease WHERE cluster = %(key)s AND number = %(number)s AND owner = %(node)s FOR SHARE"
_RENEW = """
UPDATE kuvasz.lease SET until = clock_timestamp() + %(lease)s, map = %(map)s
WHERE cluster = %(key)s AND number = %(number)s AND owner = %(node)s RETURNING 1
"""
#: With the one that all of its role have: one statement, for each is a round trip.
_RENEW_BOTH = f"""
WITH mine AS ({_RENEW}), shared AS (
    UPDATE kuvasz.lease SET owner = %(node)s, until = greatest(until, clock_timestamp() + %(lease)s)
    WHERE cluster = %(common)s AND does = %(shares)s AND EXISTS (SELECT FROM mine)
)
SELECT 1 FROM mine
"""
#: To whoever else does the same, if there is anybody.
_LEAVE_SHARED = """
UPDATE kuvasz.lease AS held SET owner = other.owner, until = coalesce(other.until, clock_timestamp())
FROM (SELECT NULL) AS nobody LEFT JOIN LATERAL (
    SELECT owner, until FROM kuvasz.lease
    WHERE starts_with(cluster, %s) AND owner IS NOT NULL AND until > clock_timestamp() ORDER BY until DESC LIMIT 1
) AS other ON true
WHERE held.cluster = %s AND held.does = %s
"""
_LIVING = """
SELECT owner FROM kuvasz.lease WHERE starts_with(cluster, %s) AND owner IS NOT NULL AND until > clock_timestamp()
"""
_GIVE_BACK = "UPDATE kuvasz.lease SET owner = NULL, until = clock_timestamp() WHERE cluster = %s AND number = %s"


def clock_s() -> float:
    """Return seconds of a clock that goes on while the machine sleeps (clock_gettime(2), CLOCK_BOOTTIME)."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class _SharedLease(NamedTuple):
    """A lease that several have together."""

    key: str
    members: str  #: what the keys of theirs begin with that each of them has: a node's name follows
    does: str  #: what they do with it


class ClusterLease:
    """The lease as one node sees it.

    Large because it is taken, renewed, proved and given back by one key, and knows those of all other roles.

    Args:
        database: Where it is.
        cluster: Which cluster's.
        node: Returns this node's name, which no other process has while this one lives.
        lease_s: For how long it is taken.
    """

    def __init__(self, database: CoordinatorDatabase, cluster: str, node: Callable[[], str], lease_s: float) -> None:
        self._database = database
        self.cluster = cluster
        self._node = node
        self.lease_s = lease_s
        self.role = ClusterRole.ALL  #: what for: those of who reads, and of who applies, are other ones
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
        return self.cluster if self._common is None else f"{self._common.members}{self.node}"

    @property
    def _common(self) -> _SharedLease | None:
        """The lease that all have together who do what this node does; None: it shares nothing."""
        if self.role is ClusterRole.READ:
            return _SharedLease(key=self.reads, members=self.readers, does=SHARES)
        if self.role is ClusterRole.APPLY:
            return _SharedLease(key=self.cluster, members=self.appliers, does=SHARES_TARGETS)
        return None

    @property
    def reads(self) -> str:
        """The key of the one that all have who read."""
        return f"{self.cluster}{READS}"

    @property
    def readers(self) -> str:
        """What the keys of theirs begin with that each of them has: a node's name follows."""
        return f"{self.reads}/"

    @property
    def appliers(self) -> str:
        """The same of those who apply."""
        return f"{self.cluster}{APPLIES}/"

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
                self.number = self._taken(session, does, map_digest)
        self.is_held, self.ends_at = True, begin + self.lease_s
        self.was_killed = before is not None and before.node != self.node
        return None

    def _taken(self, session: Session, does: str, map_digest: str) -> int:
        """Take what nobody has who lives, and return its number."""
        given = {
            "key": self._key, "keys": [self.cluster, self.reads], "node": self.node, "does": does,
            "map": map_digest, "lease": _interval(self.lease_s),
        }  # fmt: skip
        if self.role is ClusterRole.ALL and does in ALONE:
            session.execute(_END_READERS, (self.reads, self.readers))
        common = self._common
        if common is None:
            session.execute(_END_APPLIERS, (self.appliers,))  # who has the cluster's alone
        ((number,),) = session.execute(_TAKE, given).fetchall()
        if common is not None:
            session.execute(_TAKE_SHARED, {**given, "common": common.key, "does": common.does, "number": number})
        return int(number)

    def _both(self, session: Session) -> dict[str, LeaseHolder]:
        found = session.execute(_BOTH, ([self.cluster, self.reads],))
        return {key: _holder_of(*facts) for key, *facts in found}

    def _blocker(self, both: Mapping[str, LeaseHolder], does: str) -> LeaseHolder | None:
        """Return who lives and has what is asked for, or another lease, and this one excludes that."""
        ordered = sorted(both.items(), key=lambda one: one[0] != self._key)
        mine = (one for key, one in ordered if key == self._key or self._excludes(key, one, does))
        # The one that those have together is not only of whom it names.
        others = (one for one in mine if one.node != self.node or one.does in TOGETHER)
        return next((one for one in others if not one.is_late), None)

    def _excludes(self, key: str, other: LeaseHolder, does: str) -> bool:
        """Whether the holder of another lease does all of what this one is to do, or would."""
        if self.role is ClusterRole.APPLY:
            return key == self.cluster and other.does != SHARES_TARGETS
        if self.role is ClusterRole.READ:
            return other.does in ALONE if key == self.cluster else other.does != SHARES
        return key == self.reads and does in ALONE

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
        """Return one of those that read, who was heard of last; None: there is nobody.

        Raises:
            StateError: The coordinator does not answer.
        """
        with self._database.session("ask who reads") as session:
            found = session.execute(_HOLDER, (self.reads,)).fetchone()
        return None if found is None else _holder_of(*found)

    def living_appliers(self) -> list[str]:
        """Return the nodes that share the targets, and were heard of in time.

        Raises:
            StateError: The coordinator does not answer.
        """
        with self._database.session("ask who applies") as session:
            return [node for (node,) in session.execute(_LIVING, (self.appliers,))]

    def renew(self, session: Session, map_digest: str) -> bool:
        """Ask for more time, and say which map is in use; return whether the lease is still this node's.

        Raises:
            psycopg.Error: The coordinator does not answer.
        """
        begin = clock_s()
        given = {**self.claim, "lease": _interval(self.lease_s), "map": map_digest}
        if (common := self._common) is not None:
            found = session.execute(_RENEW_BOTH, {**given, "common": common.key, "shares": common.does}).fetchone()
        else:
            found = session.execute(_RENEW, given).fetchone()
        if found is None:
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
            common = self._common
            with self._database.session("give the lease back") as session, session.transaction():
                if common is not None:
                    session.execute(_TURN, (self.cluster,))
                session.execute(_GIVE_BACK, (self._key, self.number))
                if common is not None:
                    session.execute(_LEAVE_SHARED, (common.members, common.key, common.does))


def _holder_of(node: str, does: str, digest: str, since: datetime.datetime, is_late: bool) -> LeaseHolder:  # noqa: FBT001
    return LeaseHolder(
        node=node, does=does, map_digest=digest, since=since.isoformat(timespec="seconds"), is_late=is_late
    )  # fmt: skip


def _interval(seconds: float) -> datetime.timedelta:
    return datetime.timedelta(seconds=seconds)


__all__ = [
    "ALONE",
    "APPLIES",
    "ERASES",
    "HELD",
    "READS",
    "REPLICATES",
    "SHARES",
    "TOGETHER",
    "ClusterLease",
    "clock_s",
]
