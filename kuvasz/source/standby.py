"""Snapshots of a standby: tables are read there, and the stream comes from the primary as always.

On a standby a transaction is seen as soon as its commit record is replayed, and records are replayed in the order of
the WAL. So what a snapshot there shows is what committed before some LSN, as it is for a slot's snapshot. But the
server does not say which: it tells where its replay is, before a snapshot is taken and after it. All commit records
that end at or before the first place are seen, and none that start behind the second. What starts in between may be,
and so may what starts at the second: what a record does is seen before the place moves on (xlogrecovery.c,
ApplyWalRecord). Whether a transaction of what is published has a commit record there, the slot at the primary tells,
which is looked into and not moved. If none has, the first place is the LSN of the snapshot; else another is taken.

Measured with 1,100 commits a second on two cores that also ran both servers: 40 snapshots took 47 tries. With no look
at the slot, one of the first 40 showed a transaction that its LSN does not promise.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from typing import TYPE_CHECKING, NamedTuple

from psycopg import pq

from kuvasz import lsn
from kuvasz.errors import SourceError, SourceRefused
from kuvasz.shown import figures
from kuvasz.source import conninfo as conninfos
from kuvasz.source import failure, slots, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kuvasz.config.secrets import SecretUrl

#: A standby that replays nothing for so long, or has not reached the slot after so much longer, is left for later:
#: the slot at the primary holds WAL meanwhile.
_STILL_S = 60.0
_LONGEST_S = 300.0
_LOOK_S = 0.05
#: Between two snapshots, and for how long they are taken again.
_AGAIN_S = 0.005
_TRIES_S = 60.0

_DOING = "take a snapshot of the standby"
#: What is to be done about one that is none, or is late.
STANDBY_HINT = "copy.from has to lead to a standby of the server that is replicated, or is left out"
LATE_HINT = (
    "it is tried again; look at pg_stat_replication of the primary, and at the standby's recovery_min_apply_delay and"
    " at sessions that its replay waits for"
)

_DATABASE = "SELECT oid::text FROM pg_database WHERE datname = current_database()"
_REPLAYED = "SELECT pg_is_in_recovery(), pg_last_wal_replay_lsn()"

# In READ COMMITTED each statement has a snapshot of its own. The last one's is exported, and stays.
_TAKE = """
BEGIN READ ONLY;
SELECT set_config('kuvasz.replayed', pg_last_wal_replay_lsn()::text, true);
SELECT pg_export_snapshot(), current_setting('kuvasz.replayed'), pg_last_wal_replay_lsn(), pg_is_in_recovery()
"""


class Cluster(NamedTuple):
    """What a server is one of: a primary and its standbys have the same."""

    system_id: str
    timeline: int
    past: str  #: the history of its timeline: two servers that were promoted may have one number for theirs


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A snapshot of a standby, and how it came about."""

    snapshot: slots.ExportedSnapshot
    tries: int
    waited_s: float  #: until the standby had what the slot begins with


def take(
    made: slots.ExportedSnapshot,
    primary: str,
    url: str,
    publications: Sequence[str],
    on_waiting: Callable[[int], None],
    role: SecretUrl | None = None,
) -> Taken:
    """Take a snapshot at a standby: it shows all that committed before its LSN, and the stream brings the rest.

    Args:
        made: The snapshot of a slot of the primary which was created just now, and which nobody reads yet.
        primary: The url of the primary.
        url: The url of the standby.
        publications: The names of those that the stream may have; one that the slot does not know does no harm.
        on_waiting: Called now and then with the bytes of WAL that the standby still lacks. What it raises ends it.
        role: Who asks which cluster a server is of, if that is another role (`kuvasz.source.slots`).

    Raises:
        SourceRefused: It is no standby of this primary.
        SourceError: It does not answer, or is not that far.
    """
    began = time.monotonic()
    own = made.pinned(conninfos.conninfo(primary))
    with snapshot.session(own, made.snapshot_name) as session:
        known = "SELECT pubname::text FROM pg_publication WHERE pubname = ANY(%s) ORDER BY pubname"
        with failure.translated(conninfos.place(session), "look at its publications"):
            named = [name for (name,) in session.execute(known, (list(publications),)).fetchall()]
            ((database,),) = session.execute(_DATABASE).fetchall()
    place = conninfos.location(url)
    pgconn = conninfos.connect_pq(conninfos.conninfo(url), _DOING)
    try:
        there = conninfos.pinned(url, pgconn)
        ways = slots.laid_over(own, role), slots.laid_over(there, role)
        _compare(*ways, place, is_far=False)
        if _rows(pgconn, place, _DATABASE) != [[database]]:
            raise _refused(place, "it is another database than the one that is replicated")
        _wait(pgconn, place, made.consistent_point, on_waiting)
        waited_s = time.monotonic() - began
        # Now, since one that follows a promoted server comes to its timeline by replay alone.
        _compare(*ways, place, is_far=True)
        name, at, tries = _between_commits(pgconn, place, made, named, on_waiting)
    except BaseException:
        pgconn.finish()
        raise
    found = slots.ExportedSnapshot(
        pgconn, slot=made.slot, snapshot_name=name, consistent_point=at, started_us=made.started_us,
        taken_us=made.taken_us + int((time.monotonic() - began) * 1e6),
    )  # fmt: skip
    return Taken(snapshot=found, tries=tries, waited_s=waited_s)


def cluster(url: str) -> Cluster:
    """Return what a server is one of.

    Raises:
        SourceRefused: The role may not ask for it.
        SourceError: It does not answer.
    """
    conninfo = conninfos.replication_conninfo(url)
    pgconn = conninfos.connect_pq(conninfo, "ask which cluster it is of")
    try:
        place = conninfos.location(conninfo)
        ((system_id, timeline, *_),) = _rows(pgconn, place, "IDENTIFY_SYSTEM")
        past = _rows(pgconn, place, f"TIMELINE_HISTORY {int(timeline)}")[0][1] if int(timeline) > 1 else ""
    finally:
        pgconn.finish()
    return Cluster(system_id=system_id, timeline=int(timeline), past=past)


def why_other(primary: Cluster, standby: Cluster, *, is_far: bool = True) -> str:
    """Return why a server is no standby of a primary; empty if it may be one.

    Args:
        primary: The primary.
        standby: The other one.
        is_far: It has replayed what the primary wrote just now, so it must be on the timeline of that.
    """
    if primary.system_id != standby.system_id:
        return f"it is of cluster {standby.system_id}, and {primary.system_id} is replicated"
    if primary.timeline < standby.timeline or (is_far and primary[1:] != standby[1:]):
        return f"it is on a timeline {standby.timeline} that the primary's, {primary.timeline}, has no part in"
    return ""


def _compare(primary: str, url: str, place: str, *, is_far: bool) -> None:
    if why := why_other(cluster(primary), cluster(url), is_far=is_far):
        raise _refused(place, why)


def _wait(pgconn: pq.abc.PGconn, place: str, until_lsn: int, on_waiting: Callable[[int], None]) -> None:
    """Return when a standby has replayed what lies before an LSN."""
    began = moved = time.monotonic()
    before = -1
    while True:
        ((is_in_recovery, replayed),) = _rows(pgconn, place, _REPLAYED)
        if is_in_recovery != "t":
            raise _promoted(place)
        at = lsn.parse(replayed) if replayed else 0
        if at >= until_lsn:
            return
        now = time.monotonic()
        moved = now if at != before else moved
        before = at
        lacks = f"{figures.size(until_lsn - at)} of WAL behind the slot that the copy begins with"
        if now - moved > _STILL_S:
            message = f"{place}: cannot {_DOING}: it replays nothing, and is {lacks}"
            raise SourceError(message, hint=LATE_HINT)
        if now - began > _LONGEST_S:
            message = f"{place}: cannot {_DOING}: after {now - began:.0f} s it is {lacks}"
            raise SourceError(message, hint=LATE_HINT)
        on_waiting(until_lsn - at)
        time.sleep(_LOOK_S)


def _between_commits(
    pgconn: pq.abc.PGconn,
    place: str,
    made: slots.ExportedSnapshot,
    publications: Sequence[str],
    on_waiting: Callable[[int], None],
) -> tuple[str, int, int]:
    """Take snapshots until it is known of one what it shows; return its name, its LSN and how many it took."""
    end = time.monotonic() + _TRIES_S
    for tries in itertools.count(1):
        ((name, before, after, is_in_recovery),) = _rows(pgconn, place, _TAKE)
        if is_in_recovery != "t":
            raise _promoted(place)
        first, last = lsn.parse(before), lsn.parse(after)
        if not made.commits(publications, first, last):
            return name, first, tries
        if time.monotonic() > end:
            message = f"{place}: cannot {_DOING}: transactions came in between each of {tries} times"
            raise SourceError(message, hint="it is tried again, when the primary has less to do")
        on_waiting(0)
        _rows(pgconn, place, "ROLLBACK")
        time.sleep(_AGAIN_S)
    raise AssertionError


def _rows(pgconn: pq.abc.PGconn, place: str, statements: str) -> list[list[str]]:
    """Return the rows of the last of some statements."""
    with failure.translated(place, _DOING):
        result = conninfos.execute(pgconn, statements)
    if result.status not in {pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK}:
        state = result.error_field(pq.DiagnosticField.SQLSTATE)
        text = result.get_error_message()
        raise failure.of(None if state is None else state.decode(), text, place=place, doing=_DOING)
    return [
        [(result.get_value(row, column) or b"").decode() for column in range(result.nfields)]
        for row in range(result.ntuples)
    ]


def _refused(place: str, why: str) -> SourceRefused:
    return SourceRefused(f"{place}: cannot {_DOING}: {why}", hint=STANDBY_HINT)


def _promoted(place: str) -> SourceRefused:
    return _refused(place, "it is no standby: it is not in recovery")


__all__ = ["LATE_HINT", "STANDBY_HINT", "Cluster", "Taken", "cluster", "take", "why_other"]
