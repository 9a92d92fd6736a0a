"""The index of a cluster's log in its coordinator: a few rows for each object, and one for each source.

Its tables are made where a log is asked for, so that a coordinator without one is as it was.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from kuvasz.errors import StateTaken
from kuvasz.state.staged.ports import LogIndex, LogLease, StagedPosition, StagedSlice, still_staged

if TYPE_CHECKING:
    from kuvasz.state.coordinator.database import CoordinatorDatabase, Session
    from kuvasz.state.coordinator.lease import ClusterLease

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS kuvasz.log_source (
    cluster text NOT NULL,
    source text NOT NULL,
    lsn bigint NOT NULL,          -- everything before it is staged
    ended bigint NOT NULL,        -- end of the last whole transaction that is
    number bigint NOT NULL,       -- of the last stretch of its stream that is
    applied bigint NOT NULL,      -- everything before it is in the lake
    PRIMARY KEY (cluster, source)
);
CREATE TABLE IF NOT EXISTS kuvasz.log_slice (
    cluster text NOT NULL,
    source text NOT NULL,
    last bigint NOT NULL,
    first bigint NOT NULL,
    through bigint NOT NULL,
    is_open boolean NOT NULL,
    object text NOT NULL,
    at bigint NOT NULL,
    size bigint NOT NULL,
    PRIMARY KEY (cluster, source, last)
);
CREATE INDEX IF NOT EXISTS log_slice_object ON kuvasz.log_slice (cluster, object);
CREATE TABLE IF NOT EXISTS kuvasz.log_object (
    cluster text NOT NULL,
    name text NOT NULL,
    PRIMARY KEY (cluster, name)
);
CREATE TABLE IF NOT EXISTS kuvasz.log_word (
    cluster text PRIMARY KEY,
    word text NOT NULL            -- that names of its objects begin with, and those of no other log
);
"""
_IS_MADE: Final = "SELECT to_regclass('kuvasz.log_word') IS NOT NULL"
_ADD_WORD: Final = "INSERT INTO kuvasz.log_word (cluster, word) VALUES (%s, %s) ON CONFLICT DO NOTHING"
_WORD: Final = "SELECT word FROM kuvasz.log_word WHERE cluster = %s"
_UNAPPLIED: Final = "SELECT DISTINCT source FROM kuvasz.log_slice WHERE cluster = %s"
_RETIRE: Final = "DELETE FROM kuvasz.log_source WHERE cluster = %s"
_POSITIONS: Final = "SELECT source, lsn, ended, number, applied FROM kuvasz.log_source WHERE cluster = %s"
_ADD_OBJECT: Final = (
    "INSERT INTO kuvasz.log_object (cluster, name) VALUES (%s, %s) ON CONFLICT DO NOTHING RETURNING 1"
)
_ADD_SLICES: Final = """
INSERT INTO kuvasz.log_slice (cluster, source, last, first, through, is_open, object, at, size)
SELECT %s, * FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::boolean[], %s::text[],
    %s::bigint[], %s::bigint[])
"""
#: One that stands where it is to go was moved by an attempt of which no answer came.
_MOVE: Final = """
UPDATE kuvasz.log_source AS s SET lsn = m.lsn, ended = m.ended, number = m.number
FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])
    AS m (source, was_lsn, was_number, lsn, ended, number)
WHERE s.cluster = %s AND s.source = m.source
    AND (s.lsn, s.number) IN ((m.was_lsn, m.was_number), (m.lsn, m.number))
"""
_BEGIN_ANEW: Final = """
INSERT INTO kuvasz.log_source AS s (cluster, source, lsn, ended, number, applied)
VALUES (%(cluster)s, %(source)s, %(lsn)s, 0, 0, %(lsn)s)
ON CONFLICT (cluster, source) DO UPDATE SET lsn = excluded.lsn, ended = 0, applied = excluded.applied
"""
_SET_BACK: Final = """
UPDATE kuvasz.log_source SET lsn = least(lsn, %(lsn)s), applied = least(applied, %(lsn)s)
WHERE cluster = %(cluster)s AND source = %(source)s
"""
_DROP_ALL: Final = "DELETE FROM kuvasz.log_slice WHERE cluster = %s AND source = %s"
_DROP_OPEN: Final = "DELETE FROM kuvasz.log_slice WHERE cluster = %s AND source = %s AND is_open AND through > %s"
_SLICES: Final = """
SELECT source, first, last, through, is_open, object, at, size FROM kuvasz.log_slice
WHERE cluster = %s AND source = %s AND last > %s AND through > %s ORDER BY last LIMIT %s
"""
_APPLIED: Final = """
UPDATE kuvasz.log_source AS s SET applied = greatest(s.applied, m.lsn)
FROM unnest(%s::text[], %s::bigint[]) AS m (source, lsn) WHERE s.cluster = %s AND s.source = m.source
"""
_DROP_APPLIED: Final = """
DELETE FROM kuvasz.log_slice AS l USING kuvasz.log_source AS s
WHERE l.cluster = %s AND s.cluster = l.cluster AND s.source = l.source AND l.through <= s.applied
"""
_DROP_OBJECTS: Final = """
DELETE FROM kuvasz.log_object AS o USING unnest(%s::text[]) AS removed (name)
WHERE o.cluster = %s AND o.name = removed.name
"""
_UNNEEDED: Final = """
SELECT name FROM kuvasz.log_object AS o WHERE o.cluster = %s AND NOT EXISTS (
    SELECT FROM kuvasz.log_slice AS l WHERE l.cluster = o.cluster AND l.object = o.name)
ORDER BY name LIMIT %s
"""
_OBJECTS: Final = "SELECT name FROM kuvasz.log_object WHERE cluster = %s"
_FORGET: Final = "DELETE FROM kuvasz.log_source WHERE cluster = %s AND source = %s"


class CoordinatedIndex(LogIndex):
    """The index.

    Args:
        database: The coordinator.
        cluster: Whose it is.
        lease: What a write names.
    """

    def __init__(self, database: CoordinatorDatabase, cluster: str, lease: ClusterLease) -> None:
        self._database = database
        self._cluster = cluster
        self._lease = lease

    @property
    @override
    def place(self) -> str:
        """See `LogIndex.place`."""
        return f"{self._database.place}, cluster {self._cluster}"

    @override
    def open(self) -> LogLease:
        """See `LogIndex.open`: the number of the lease."""
        with self._database.session("make the tables of the log") as session, session.transaction():
            self._lease.prove(session)
            if session.execute(_IS_MADE).fetchone() != (True,):  # whose role may then do with less
                session.execute(_TABLES)
            session.execute(_ADD_WORD, (self._cluster, uuid.uuid4().hex[:12]))
            ((word,),) = session.execute(_WORD, (self._cluster,)).fetchall()
        return LogLease(word, self._lease.number)

    @override
    def retire(self) -> None:
        """See `LogIndex.retire`."""
        with self._database.session("look for a log") as session:
            if session.execute(_IS_MADE).fetchone() != (True,):
                return
            staged = {source for (source,) in session.execute(_UNAPPLIED, (self._cluster,))}
            if staged:
                raise still_staged(self.place, staged)
            with session.transaction():
                self._lease.prove(session)
                session.execute(_RETIRE, (self._cluster,))

    @override
    def positions(self) -> dict[str, StagedPosition]:
        """See `LogIndex.positions`."""
        with self._database.session("ask how far sources are staged") as session:
            return {
                source: StagedPosition(lsn=lsn, ended=ended, number=number, applied=applied)
                for source, lsn, ended, number, applied in session.execute(_POSITIONS, (self._cluster,))
            }

    @override
    def append(
        self, name: str, slices: Sequence[StagedSlice], moves: Mapping[str, tuple[StagedPosition, StagedPosition]]
    ) -> None:
        """See `LogIndex.append`."""
        with self._database.session("add to the log") as session, session.transaction():
            self._lease.prove(session)
            if slices:
                if session.execute(_ADD_OBJECT, (self._cluster, name)).fetchone() is None:
                    return  # an attempt of which no answer came
                columns = _columns(slices, "source", "last", "first", "through", "is_open", "object", "at", "size")
                session.execute(_ADD_SLICES, (self._cluster, *columns))
            self._move(session, moves)

    def _move(self, session: Session, moves: Mapping[str, tuple[StagedPosition, StagedPosition]]) -> None:
        before, after = ([move[at] for move in moves.values()] for at in (0, 1))
        columns = *_columns(before, "lsn", "number"), *_columns(after, "lsn", "ended", "number")
        moved = session.execute(_MOVE, (list(moves), *columns, self._cluster)).rowcount
        if moved != len(moves):
            raise StateTaken(
                f"{self.place}: {len(moves) - moved} of {len(moves)} sources stand elsewhere in the log than here",
                hint="another process has staged more of them: `kuvasz cluster nodes` says which; this one ends",
            )

    @override
    def begin_anew(self, source: str, lsn: int) -> None:
        """See `LogIndex.begin_anew`."""
        with self._database.session("begin a source's log anew") as session, session.transaction():
            self._lease.prove(session)
            session.execute(_BEGIN_ANEW, {"cluster": self._cluster, "source": source, "lsn": lsn})
            session.execute(_DROP_ALL, (self._cluster, source))

    @override
    def set_back(self, source: str, lsn: int) -> None:
        """See `LogIndex.set_back`."""
        with self._database.session("set a source back in the log") as session, session.transaction():
            self._lease.prove(session)
            session.execute(_SET_BACK, {"cluster": self._cluster, "source": source, "lsn": lsn})

    @override
    def abandon_open(self, source: str, ended: int) -> None:
        """See `LogIndex.abandon_open`."""
        with self._database.session("abandon a transaction") as session, session.transaction():
            self._lease.prove(session)
            session.execute(_DROP_OPEN, (self._cluster, source, ended))

    @override
    def slices(self, source: str, after: int, *, through: int, most: int) -> list[StagedSlice]:
        """See `LogIndex.slices`."""
        with self._database.session("read the log's index") as session:
            return [
                StagedSlice(
                    source=name, first=first, last=last, through=through_, is_open=is_open, object=object_, at=at,
                    size=size,
                )
                for name, first, last, through_, is_open, object_, at, size in session.execute(
                    _SLICES, (self._cluster, source, after, through, most)
                )
            ]  # fmt: skip

    @override
    def applied(self, lsns: Mapping[str, int], removed: Collection[str] = (), most: int = 1000) -> list[str]:
        """See `LogIndex.applied`."""
        with self._database.session("shorten the log") as session, session.transaction():
            self._lease.prove(session)
            session.execute(_APPLIED, (list(lsns), list(lsns.values()), self._cluster))
            session.execute(_DROP_APPLIED, (self._cluster,))
            session.execute(_DROP_OBJECTS, (list(removed), self._cluster))
            return [name for (name,) in session.execute(_UNNEEDED, (self._cluster, most))]

    @override
    def objects(self) -> Collection[str]:
        """See `LogIndex.objects`."""
        with self._database.session("list the log's objects") as session:
            return {name for (name,) in session.execute(_OBJECTS, (self._cluster,))}

    @override
    def forget(self, source: str) -> None:
        """See `LogIndex.forget`."""
        with self._database.session("forget a source's log") as session, session.transaction():
            self._lease.prove(session)
            session.execute(_DROP_ALL, (self._cluster, source))
            session.execute(_FORGET, (self._cluster, source))


def _columns(values: Sequence[Any], *names: str) -> list[list[Any]]:
    return [[getattr(value, name) for value in values] for name in names]


__all__ = ["CoordinatedIndex"]
