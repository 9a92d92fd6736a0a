"""The index of a cluster's log in its coordinator: a few rows for each object, and one for each source.

Its tables are made where a log is asked for, so that a coordinator without one is as it was.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from kuvasz.config.model import ClusterRole
from kuvasz.state.coordinator.database import make_once
from kuvasz.state.staged import log_groups, slice_removal
from kuvasz.state.staged.holders import ARE_MADE, COLUMNS, NEXT_PAST, SourceHolders
from kuvasz.state.staged.orders import GivenOrder, KnownPast, StreamAnswer, StreamOrder, orders_of
from kuvasz.state.staged.ports import (
    LogGroup,
    LogIndex,
    LogLease,
    RemovalRound,
    SharedSources,
    SourcesMoved,
    StagedPosition,
    StagedSlice,
    still_staged,
)

if TYPE_CHECKING:
    from kuvasz.state.coordinator.database import CoordinatorDatabase, Session
    from kuvasz.state.coordinator.lease import ClusterLease
    from kuvasz.state.ports import LeaseHolder

#: See `make_once`: one that reads and one that applies may both begin for the first time.
_MAKING: Final = 0x6B757661737C

_TABLES: Final = f"""
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
ALTER TABLE kuvasz.log_source
    ADD COLUMN IF NOT EXISTS past bigint NOT NULL DEFAULT 0,     -- grows when what was received before counts no more
    ADD COLUMN IF NOT EXISTS given_up bigint NOT NULL DEFAULT 0, -- how often staged parts of a transaction were
    ADD COLUMN IF NOT EXISTS wanted jsonb,                       -- the order; null: nobody is to read it
    ADD COLUMN IF NOT EXISTS known jsonb,                        -- what proves the source
    ADD COLUMN IF NOT EXISTS answer jsonb;                       -- what came of the order
ALTER TABLE kuvasz.log_word ADD COLUMN IF NOT EXISTS place text; -- the folder of its objects
{COLUMNS}
{log_groups.TABLES}
{slice_removal.INDEXES}
"""
_IS_MADE: Final = f"""
SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('kuvasz.log_source') AND attname = 'answer')
    AND EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('kuvasz.log_word') AND attname = 'place')
    AND {ARE_MADE} AND {log_groups.ARE_MADE} AND {slice_removal.ARE_MADE}
"""
_ANEW: Final = f"past = {NEXT_PAST.format('s.past')}, wanted = NULL, answer = NULL"
_ADD_WORD: Final = "INSERT INTO kuvasz.log_word (cluster, word) VALUES (%s, %s) ON CONFLICT DO NOTHING"
_WORD: Final = "SELECT word FROM kuvasz.log_word WHERE cluster = %s"
_UNAPPLIED: Final = """
SELECT source FROM kuvasz.log_source AS s WHERE s.cluster = %s
    AND EXISTS (SELECT FROM kuvasz.log_slice AS l WHERE l.cluster = s.cluster AND l.source = s.source)
"""
_RETIRE: Final = "DELETE FROM kuvasz.log_source WHERE cluster = %s"
_POSITIONS: Final = """
SELECT source, lsn, ended, number, applied, past, given_up FROM kuvasz.log_source WHERE cluster = %s
"""
_ADD_OBJECT: Final = (
    "INSERT INTO kuvasz.log_object (cluster, name) VALUES (%s, %s) ON CONFLICT DO NOTHING RETURNING 1"
)
_ADD_SLICES: Final = """
INSERT INTO kuvasz.log_slice (cluster, source, last, first, through, is_open, object, at, size)
SELECT %s, * FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::boolean[], %s::text[],
    %s::bigint[], %s::bigint[])
"""
#: In the order of their names, before any of them is changed: two processes would else wait for each other.
_LOCKED: Final = """
WITH locked AS MATERIALIZED (
    SELECT source FROM kuvasz.log_source WHERE cluster = %(cluster)s AND source = ANY(%(sources)s)
    ORDER BY source FOR NO KEY UPDATE
)
"""
#: One that stands where it is to go was moved by an attempt of which no answer came.
_MOVE: Final = f"""
{_LOCKED}
UPDATE kuvasz.log_source AS s SET lsn = m.lsn, ended = m.ended, number = m.number
FROM unnest(%(sources)s::text[], %(was_lsn)s::bigint[], %(was_number)s::bigint[], %(past)s::bigint[],
    %(lsn)s::bigint[], %(ended)s::bigint[], %(number)s::bigint[])
    AS m (source, was_lsn, was_number, past, lsn, ended, number), locked
WHERE s.cluster = %(cluster)s AND s.source = m.source AND locked.source = m.source AND m.past IN (0, s.past)
    AND (s.lsn, s.number) IN ((m.was_lsn, m.was_number), (m.lsn, m.number))
RETURNING s.source
"""
_BEGIN_ANEW: Final = f"""
INSERT INTO kuvasz.log_source AS s (cluster, source, lsn, ended, number, applied, past, begun)
VALUES (%(cluster)s, %(source)s, %(lsn)s, 0, 0, %(lsn)s, {NEXT_PAST.format(0)}, {NEXT_PAST.format(0)})
ON CONFLICT (cluster, source) DO UPDATE SET lsn = excluded.lsn, ended = 0, applied = excluded.applied,
    begun = {NEXT_PAST.format("s.begun")}, {_ANEW}
"""
_SET_BACK: Final = f"""
UPDATE kuvasz.log_source AS s SET lsn = least(lsn, %(lsn)s), applied = least(applied, %(lsn)s), {_ANEW}
WHERE cluster = %(cluster)s AND source = %(source)s
"""
_WITHDRAW: Final = f"UPDATE kuvasz.log_source AS s SET {_ANEW} WHERE cluster = %s AND source = %s"
_WITHDRAW_ALL: Final = f"UPDATE kuvasz.log_source AS s SET {_ANEW} WHERE cluster = %s AND wanted IS NOT NULL"
_GIVE: Final = f"""
UPDATE kuvasz.log_source AS s SET wanted = %(wanted)s::jsonb, known = %(known)s::jsonb,
    past = CASE WHEN wanted = %(wanted)s::jsonb THEN past ELSE {NEXT_PAST.format("past")} END,
    answer = CASE WHEN wanted = %(wanted)s::jsonb THEN answer END
WHERE cluster = %(cluster)s AND source = %(source)s AND (wanted = %(wanted)s::jsonb OR NOT %(is_again)s)
"""
_ORDERS: Final = """
SELECT source, past, wanted, known FROM kuvasz.log_source WHERE cluster = %s AND wanted IS NOT NULL
"""
_ANSWER: Final = "UPDATE kuvasz.log_source SET answer = %s::jsonb WHERE cluster = %s AND source = %s AND past = %s"
_ANSWERS: Final = """
SELECT source, past, answer FROM kuvasz.log_source WHERE cluster = %s AND wanted IS NOT NULL AND answer IS NOT NULL
"""
#: Shared with who begins it anew: that has happened before this, or happens only after it.
_IS_OF_NOW: Final = """
SELECT FROM kuvasz.log_source WHERE cluster = %s AND source = %s AND past = %s FOR SHARE
"""
_GAVE_UP: Final = "UPDATE kuvasz.log_source SET given_up = given_up + 1 WHERE cluster = %s AND source = %s"
_DROP_ALL: Final = "DELETE FROM kuvasz.log_slice WHERE cluster = %s AND source = %s"
_DROP_OPEN: Final = "DELETE FROM kuvasz.log_slice WHERE cluster = %s AND source = %s AND is_open AND through > %s"
_SLICES: Final = """
SELECT source, first, last, through, is_open, object, at, size FROM kuvasz.log_slice
WHERE cluster = %s AND source = %s AND last > %s AND through > %s ORDER BY last LIMIT %s
"""
#: The same where nothing is known but the LSN: before it may be millions that another group of the log lacks, and by
#: their numbers they would all be looked at. In a stream both orders are one.
_SLICES_FROM: Final = _SLICES.replace("ORDER BY last", "ORDER BY through, last")
_APPLIED: Final = f"""
{_LOCKED}
UPDATE kuvasz.log_source AS s SET applied = greatest(s.applied, m.lsn)
FROM unnest(%(sources)s::text[], %(lsns)s::bigint[]) AS m (source, lsn), locked
WHERE s.cluster = %(cluster)s AND s.source = m.source AND locked.source = m.source
"""
#: From one object to the next in their index, however many slices each of them has.
_NEEDED: Final = """
WITH RECURSIVE found AS (
    SELECT (SELECT min(object) FROM kuvasz.log_slice WHERE cluster = %(cluster)s) AS object, 1 AS number
    UNION ALL
    SELECT (SELECT min(object) FROM kuvasz.log_slice WHERE cluster = %(cluster)s AND object > found.object),
        number + 1
    FROM found WHERE object IS NOT NULL AND number < %(most)s
)
SELECT object FROM found WHERE object IS NOT NULL
"""
_LIES_IN: Final = "SELECT place FROM kuvasz.log_word WHERE cluster = %s"
_LAY: Final = "UPDATE kuvasz.log_word SET place = %s WHERE cluster = %s"
_OBJECTS: Final = "SELECT name FROM kuvasz.log_object WHERE cluster = %s AND name > %s ORDER BY name LIMIT %s"
_COUNT: Final = "SELECT count(*) FROM (SELECT FROM kuvasz.log_object WHERE cluster = %s LIMIT %s) AS counted"
#: Names that are asked for at a time.
_MOST_NAMES: Final = 50_000
#: Objects that are counted: a second's work.
_MOST_COUNTED: Final = 1_000_000
#: Whatever holds it: those who apply have it together, and who does everything has it alone.
_IS_APPLIED: Final = """
SELECT FROM kuvasz.lease WHERE cluster = %s AND owner IS NOT NULL AND until > clock_timestamp()
"""
_FORGET: Final = "DELETE FROM kuvasz.log_source WHERE cluster = %s AND source = %s"


class CoordinatedIndex(LogIndex):
    """The index.

    Large because it is all that is known of a log, each answer with a statement of its own.

    Args:
        database: The coordinator.
        cluster: Whose it is.
        lease: What a write names.
    """

    def __init__(self, database: CoordinatorDatabase, cluster: str, lease: ClusterLease) -> None:
        self._database = database
        self._cluster = cluster
        self._lease = lease
        self._holders = SourceHolders(database, lease)
        self._removal = slice_removal.SliceRemoval(cluster)

    @property
    @override
    def place(self) -> str:
        """See `LogIndex.place`."""
        return f"{self._database.place}, cluster {self._cluster}"

    @property
    @override
    def group(self) -> str | None:
        """See `LogIndex.group`."""
        return None

    @override
    def open(self) -> LogLease:
        """See `LogIndex.open`: the number of the lease."""
        with self._database.session("make the tables of the log") as session:
            make_once(session, _IS_MADE, _MAKING, lambda: self._make(session))
            return self._begin(session)

    def _make(self, session: Session) -> None:
        session.execute("SET LOCAL statement_timeout = 0")  # there may be millions of rows to index
        session.execute(_TABLES)
        self._lease.prove(session)  # behind it: who proves it keeps it from being renewed

    def _begin(self, session: Session) -> LogLease:
        with session.transaction():
            self._lease.prove(session)
            session.execute(_ADD_WORD, (self._cluster, uuid.uuid4().hex[:12]))
            if self._lease.role is ClusterRole.ALL:
                session.execute(_WITHDRAW_ALL, (self._cluster,))
            ((word,),) = session.execute(_WORD, (self._cluster,)).fetchall()
            return LogLease(word, self._lease.number, self._holders.others(session))

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
            return dict(map(staged_position, session.execute(_POSITIONS, (self._cluster,))))

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
        given = dict(zip(("was_lsn", "was_number", "past"), _columns(before, "lsn", "number", "past"), strict=True))
        given |= dict(zip(("lsn", "ended", "number"), _columns(after, "lsn", "ended", "number"), strict=True))
        given |= {"cluster": self._cluster, "sources": list(moves)}  # type: ignore[dict-item]
        moved = {source for (source,) in session.execute(_MOVE, given)}
        if len(moved) != len(moves):
            raise self._moved(moves.keys() - moved, len(moves))

    def _moved(self, sources: Collection[str], among: int) -> SourcesMoved:
        return SourcesMoved(
            f"{self.place}: {len(sources)} of {among} sources stand elsewhere in the log than here",
            hint="another process has staged more of them, or begins them anew: `kuvasz cluster nodes` says which",
            sources=sources,
        )

    @override
    def begin_anew(self, source: str, lsn: int) -> None:
        """See `LogIndex.begin_anew`."""
        with self._database.session("begin a source's log anew") as session, session.transaction():
            session.execute(_BEGIN_ANEW, {"cluster": self._cluster, "source": source, "lsn": lsn})
            self._drop_all(session, source)

    def _drop_all(self, session: Session, source: str) -> None:
        """Forget all that is staged of a source: as the last thing, for it may take longer than a lease."""
        session.execute("SET LOCAL statement_timeout = 0")
        session.execute(_DROP_ALL, (self._cluster, source))
        self._lease.prove(session)  # behind it: who proves it keeps it from being renewed

    @override
    def set_back(self, source: str, lsn: int) -> None:
        """See `LogIndex.set_back`."""
        with self._database.session("set a source back in the log") as session, session.transaction():
            self._lease.prove(session)
            given = {"cluster": self._cluster, "source": source, "lsn": lsn}
            for query in (_SET_BACK, log_groups.SET_BACK):
                session.execute(query, given)

    @override
    def abandon_open(self, source: str, ended: int, past: int = 0) -> None:
        """See `LogIndex.abandon_open`."""
        with self._database.session("abandon a transaction") as session, session.transaction():
            self._lease.prove(session)
            if past and session.execute(_IS_OF_NOW, (self._cluster, source, past)).fetchone() is None:
                raise self._moved([source], 1)
            if session.execute(_DROP_OPEN, (self._cluster, source, ended)).rowcount:
                session.execute(_GAVE_UP, (self._cluster, source))

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
                    _SLICES if after else _SLICES_FROM, (self._cluster, source, after, through, most)
                )
            ]  # fmt: skip

    @override
    def applied(self, lsns: Mapping[str, int], removed: Collection[str] = (), most: int = 1000) -> RemovalRound:
        """See `LogIndex.applied`."""
        with self._database.session("shorten the log") as session, session.transaction():
            self._lease.prove(session)
            given = {
                "cluster": self._cluster, "name": self.group, "sources": list(lsns), "lsns": list(lsns.values()),
                "removed": list(removed),
            }  # fmt: skip
            session.execute(self._noting, given)
            return self._removal.round(session, given, most)

    @property
    def _noting(self) -> str:
        """What notes how far the lake is."""
        return _APPLIED

    @override
    def objects(self) -> Collection[str]:
        """See `LogIndex.objects`: some at a time, for there may be millions."""
        found: set[str] = set()
        last: str | None = ""
        with self._database.session("list the log's objects") as session:
            while last is not None:
                names = [name for (name,) in session.execute(_OBJECTS, (self._cluster, last, _MOST_NAMES))]
                found.update(names)
                last = names[-1] if len(names) == _MOST_NAMES else None
        return found

    @override
    def count(self) -> int:
        """See `LogIndex.count`."""
        with self._database.session("count the log's objects") as session:
            ((count,),) = session.execute(_COUNT, (self._cluster, _MOST_COUNTED)).fetchall()
        return int(count)

    @override
    def needed(self, most: int = 1000) -> Collection[str]:
        """See `LogIndex.needed`."""
        with self._database.session("look what the log's objects are needed for") as session:
            return [name for (name,) in session.execute(_NEEDED, {"cluster": self._cluster, "most": most})]

    @override
    def lies_in(self) -> str | None:
        """See `LogIndex.lies_in`."""
        with self._database.session("ask where the log is") as session:
            found = session.execute(_LIES_IN, (self._cluster,)).fetchone()
        return None if found is None else found[0]

    @override
    def word(self) -> str | None:
        """See `LogIndex.word`."""
        with self._database.session("ask what the log's objects are called") as session:
            found = session.execute(_WORD, (self._cluster,)).fetchone()
        return None if found is None else found[0]

    @override
    def lay(self, place: str) -> None:
        """See `LogIndex.lay`."""
        with self._database.session("say where the log is") as session, session.transaction():
            self._lease.prove(session)
            session.execute(_LAY, (place, self._cluster))

    @override
    def forget(self, source: str) -> None:
        """See `LogIndex.forget`."""
        with self._database.session("forget a source's log") as session, session.transaction():
            session.execute(_FORGET, (self._cluster, source))
            self._drop_all(session, source)

    @override
    def give(self, source: str, order: StreamOrder, known: KnownPast, *, is_again: bool = False) -> bool:
        """See `LogIndex.give`."""
        given = {
            "cluster": self._cluster, "source": source, "wanted": json.dumps(order.as_json()),
            "known": json.dumps(known.as_json()), "is_again": is_again,
        }  # fmt: skip
        with self._database.session("order a source's stream") as session, session.transaction():
            self._lease.prove(session)
            return session.execute(_GIVE, given).rowcount > 0

    @override
    def wanted(self) -> Collection[str]:
        """See `LogIndex.wanted`."""
        return self.orders().keys()

    @override
    def withdraw(self, source: str) -> None:
        """See `LogIndex.withdraw`."""
        with self._database.session("withdraw an order") as session, session.transaction():
            self._lease.prove(session)
            session.execute(_WITHDRAW, (self._cluster, source))

    @override
    def orders(self) -> dict[str, GivenOrder]:
        """See `LogIndex.orders`."""
        with self._database.session("ask what is to be read") as session:
            return orders_of(session.execute(_ORDERS, (self._cluster,)).fetchall())

    @override
    def answer(self, source: str, past: int, answer: StreamAnswer) -> None:
        """See `LogIndex.answer`."""
        with self._database.session("answer an order") as session, session.transaction():
            self._lease.prove(session)
            session.execute(_ANSWER, (json.dumps(answer.as_json()), self._cluster, source, past))

    @override
    def answers(self) -> dict[str, StreamAnswer]:
        """See `LogIndex.answers`."""
        with self._database.session("ask what is read") as session:
            found = session.execute(_ANSWERS, (self._cluster,)).fetchall()
        return {source: StreamAnswer.of_json(past, answer) for source, past, answer in found}

    @override
    def reader(self) -> LeaseHolder | None:
        """See `LogIndex.reader`."""
        return self._lease.reader()

    @override
    def is_applied(self) -> bool:
        """See `LogIndex.is_applied`."""
        with self._database.session("ask who applies") as session:
            return session.execute(_IS_APPLIED, (self._lease.cluster,)).fetchone() is not None

    @override
    def shared(self) -> SharedSources:
        """See `LogIndex.shared`."""
        return self._holders.shared()

    @override
    def hold(self, pasts: Mapping[str, int]) -> Collection[str]:
        """See `LogIndex.hold`."""
        return self._holders.hold(pasts)

    @override
    def release(self, sources: Collection[str]) -> None:
        """See `LogIndex.release`."""
        self._holders.release(sources)

    @override
    def unread(self) -> Collection[str]:
        """See `LogIndex.unread`."""
        return self._holders.unread()

    @override
    def rejoin(self, source: str) -> bool:
        """See `LogIndex.rejoin`: it hears no other group."""
        return source in self.positions()

    @override
    def groups(self) -> Sequence[LogGroup]:
        """See `LogIndex.groups`."""
        with self._database.session("list the groups of the log") as session:
            return log_groups.groups_of(session, self._cluster)


def staged_position(row: tuple[Any, ...]) -> tuple[str, StagedPosition]:
    """Return a source, and how far it is staged, from a row of the index."""
    source, lsn, ended, number, applied, past, given_up = row
    return source, StagedPosition(
        lsn=lsn, ended=ended, number=number, applied=applied, past=past, given_up=given_up
    )  # fmt: skip


def _columns(values: Sequence[Any], *names: str) -> list[list[Any]]:
    return [[getattr(value, name) for value in values] for name in names]


__all__ = ["CoordinatedIndex", "staged_position"]
