"""Follows one source's tables while they stream: every Relation message is compared with the catalog.

The server sends a Relation message before a table's first row on a connection and after whatever touched its catalog
entry. A look at the catalog is good for all transactions that committed before it, so a backlog takes few of them.
What may be changed beside a running stream is changed in the lake at once, before the rows behind the message are
applied; for the rest the table stops following, and `SourceSync` begins it anew.

Called in the thread that routes Relation messages, or that reads a parking log, never on the event loop.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kuvasz import lsn
from kuvasz.config.sources import Source, SourceTableSpec
from kuvasz.errors import (
    ColumnsUnclear,
    CopyNeeded,
    KuvaszError,
    LostTrack,
    SchemaError,
    TableError,
    TableStuck,
    place_of,
    resync_of,
    retry_of,
)
from kuvasz.events import Event, EventLog
from kuvasz.evolve.column_numbers import Answer, Time, number
from kuvasz.model import Relation, ReplicaIdentity, TableName, TableType
from kuvasz.source import conninfo, inserts, publication
from kuvasz.source.catalog import fingerprint
from kuvasz.source.catalog.look import Look, look
from kuvasz.source.catalog.table import SourceTable, TableKind
from kuvasz.sync.context.approvals import Approvals
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.rules import eligibility
from kuvasz.sync.rules.containment import unforeseen
from kuvasz.sync.rules.left_out import column_lists, row_filters
from kuvasz.sync.rules.targets import feed_of, narrowed
from kuvasz.sync.watch.last_looks import LastLooks

_log = EventLog(__name__)

#: Tables that a look at one of them looks at besides, if nobody says which are next, and how often that is done.
_AHEAD = 100
_AHEAD_EVERY_S = 1.0

#: The same of those that are said to be next, each time.
_ANNOUNCED = 1000


class SchemaWatch:
    """The watch over the columns and names of one source's tables.

    Large because messages and looks go by the same looks, and a step of either is one of the other's: what is only
    decided of columns is elsewhere (`evolve`).

    Args:
        context: The context of the source.
        looks: What was seen of its tables.
        approvals: What a person has agreed to.
    """

    def __init__(self, context: SourceContext, looks: LastLooks, approvals: Approvals) -> None:
        self._source = context.source
        self._url = context.url
        self._lake = context.shared.lake
        self._source_tables = context.source_tables
        self._troubles = context.troubles
        self._lifetime = context.lifetime
        self._looks = looks
        self._approvals = approvals
        self._following = threading.Lock()  #: what was parked is numbered while the stream goes on
        self._ahead_at = -_AHEAD_EVERY_S  #: when other tables were looked at last, monotonic seconds
        self._announced: Sequence[int] = ()  #: OIDs of tables that the stream describes next

    def announce(self, oids: Sequence[int]) -> None:
        """Hear which tables the stream describes next: if one has to be looked at, all of them are, together."""
        self._announced = oids

    def follow(self, relation: Relation, commit_lsn: int, xid: int) -> Relation:
        """Return a Relation message's relation with numbered columns; see `kuvasz.route.assembler.Follow`.

        Raises:
            SourceError: The catalog cannot be read: the stream has to begin again.
            LakeError: The lake cannot be changed now.
        """
        specs = self._looks.specs(relation)
        following = [spec for spec in specs if self._source_tables.is_streaming(spec)]
        answers = [(spec, self._followed(spec, relation, commit_lsn, xid)) for spec in following]
        found = next((answer for _, answer in answers if answer is not relation), relation)
        for spec, answer in answers:
            if answer is not relation and answer.columns != found.columns:
                what = f"its columns at {lsn.render(commit_lsn)} are not those of its other routes"
                self._troubles.stop(spec, self._lost_track(spec, what))
        if len(following) == len(specs):
            return found
        # Its rows are not applied; when they are, the stream begins again, or they come from a log: each message
        # is for itself there, for the same words may mean something else later.
        return dataclasses.replace(found, described_lsn=commit_lsn)

    def _followed(self, spec: SourceTableSpec, relation: Relation, commit_lsn: int, xid: int) -> Relation:
        """Return the numbered relation of one entry; the same where it has none, also if it stops for that."""
        try:
            with self._following:
                return self._follow(spec, relation, commit_lsn, xid)
        except (TableError, TableStuck) as error:
            self._looks.drop(relation.oid)
            self._troubles.stop(spec, error)
            return relation
        except KuvaszError:
            raise
        except Exception as error:  # noqa: BLE001 (one table's, whatever it is)
            self._looks.drop(relation.oid)
            self._troubles.stop(spec, unforeseen(self._source.name, spec, error, is_ending=self._lifetime.is_ending))
            return relation

    def catch_up(self, spec: SourceTableSpec, table: SourceTable, known: Look | None) -> None:
        """Have the lake follow a change that no message has told.

        Args:
            spec: The table.
            table: As it was found.
            known: The last look at it, as that was before it was found.
        """
        with self._following:
            seen = self._looks.get(table.relation.oid)
            if seen is None or seen is not known:
                return  # a message told meanwhile, and what was found here is older
            # Transactions that committed just before this may not be in it: the LSN stays that of the earlier look.
            self._follow_catalog(spec, dataclasses.replace(seen, table=table), seen.lsn)

    def see(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        spec: SourceTableSpec,
        oid: int,
        xid: int,
        beside: Iterable[TableName] = (),
    ) -> tuple[SourceTableSpec, Look, Mapping[TableName, SourceTable]]:
        """Look at a table under the name that it has now, and at others; return it with that, and those by name.

        Raises:
            SourceError: The catalog cannot be read.
            SchemaError: Another table has its name.
        """
        seen, others = look(connection, spec.table, oid, xid, publications_of(self._source), beside)
        is_free = seen.table is None or seen.table.kind is TableKind.OTHER
        if seen.moved is not None and (spec.member or is_free):
            renamed = dataclasses.replace(spec, table=seen.moved)
            spec = renamed if spec.member else self._source_tables.rename(spec, seen.moved)
            seen, _ = look(connection, spec.table, oid, xid, publications_of(self._source))
        if seen.table is not None and oid not in (0, seen.table.relation.oid):
            raise replaced(self._source, spec, None if seen.moved is None else str(seen.moved))
        return spec, seen, others

    def _refuse_partial(self, spec: SourceTableSpec, table: SourceTable) -> None:
        """Refuse a table whose messages lack columns that the map takes: a column list does not grow by itself."""
        taken, sent = narrowed(spec, table.relation).columns, table.relation.sent
        hidden = [] if sent is None else sorted(column.name for column in taken if column.attnum not in sent)
        if column_lists.is_stale(spec, table):
            raise self._lists_anew(spec, hidden)
        if row_filters.is_stale(spec, table):
            message = f"{place_of(self._source.name, spec.table)}: its row filter in the publication is not the map's"
            raise CopyNeeded(message, hint="kuvasz alters it, and copies the table again by itself")
        if hidden:
            what = f"without its columns {', '.join(hidden)}"
            error = publication.partial(self._source.object_name, table, what)
            raise SchemaError(f"{place_of(self._source.name)}: {error.message}", hint=error.hint)

    def _lists_anew(self, spec: SourceTableSpec, hidden: Sequence[str]) -> SchemaError:
        """Return the error of a table whose list of columns is altered as soon as it is looked at anew."""
        what = f"lacks {', '.join(hidden)}" if hidden else "has UPDATEs of the table fail"
        message = f"{place_of(self._source.name, spec.table)}: its list of columns in the publication {what}"
        if self._approvals.target_of(spec).type is TableType.CLONE:
            return CopyNeeded(message, hint="kuvasz alters it, and copies the table again by itself")
        return SchemaError(message, hint="kuvasz alters it by itself")

    def _follow(self, spec: SourceTableSpec, relation: Relation, commit_lsn: int, xid: int) -> Relation:
        position = self._lake.position(spec.identifier, self._source_tables.name(spec))
        if relation.described_lsn not in (0, commit_lsn):  # of a log: the rows are of a later transaction
            commit_lsn, xid = relation.described_lsn, 0
        # The lake has the rows of a transaction before its position. If the same message counts for later ones, then
        # nothing changed from there to the position: it means what the catalog showed then.
        is_past = position is not None and commit_lsn < position.lsn
        time = Time.at(position.lsn) if position is not None and is_past else Time.of(commit_lsn, xid)
        seen = self._looks.get(relation.oid)
        if seen is None or seen.table is None or not _shows(seen.table.relation, time, seen.lsn):
            seen = self._look(spec, relation, commit_lsn, time.xid)
        assert seen.table is not None
        known = self._lake.notes.columns(spec.identifier, self._source_tables.name(spec))
        if known is None:
            return relation  # the lake goes by names
        now = seen.table.relation
        grids = [column.attnum for column in now.columns if column.is_grid]
        answer = number(relation, known.history(now), time, grids)
        if is_past and answer.relation is None:  # in its own time it may be clear, or a person has agreed to it
            answer = number(relation, known.history(now), Time.of(commit_lsn, xid), grids)
        is_agreed = self._approvals.is_believed(spec, commit_lsn, _said(answer.likely))
        if is_past and answer.relation is None and not is_agreed:
            return relation  # mostly another message comes before any row that counts: if not, the lake refuses it
        numbered = answer.likely if answer.relation is None and is_agreed else answer.relation
        if numbered is None:
            raise self._unclear(spec, answer, commit_lsn, seen.lsn)
        key, key_now = _key(numbered), _key(now)
        if key and key_now and key != key_now and numbered.identity is not ReplicaIdentity.FULL:
            if is_past:
                return relation  # mostly of rows that the lake has: if not, it refuses them
            names = ", ".join(relation.key)
            at = f"the transaction at {lsn.render(commit_lsn)}"
            raise self._lost_track(spec, f"{at} tells its old rows by ({names}), which is not its key")
        if not is_past and not known.is_of(numbered):
            self._make_room(spec, numbered, commit_lsn)
        return numbered

    def _make_room(self, spec: SourceTableSpec, numbered: Relation, at: int) -> None:
        """Have the lake take rows of earlier types where it keeps the past: clones are copied again."""
        if self._approvals.target_of(spec).type is not TableType.CLONE:
            tell(self._source, spec, self._lake.make_room(spec.identifier, feed_of(self._source, spec), numbered), at)

    def _unclear(self, spec: SourceTableSpec, answer: Answer, commit_lsn: int, through: int) -> SchemaError:
        message = (
            f"{place_of(self._source.name, spec.table)}: which of its columns the transaction at"
            f" {lsn.render(commit_lsn)} means is not proved by what the catalog showed before and after it"
        )
        table_type, target = self._approvals.target_of(spec).type, spec.identifier
        if table_type is TableType.CLONE:
            return CopyNeeded(message, hint="kuvasz copies the table again by itself")
        # Of what keeps the past, another copy would lose what happens until it is made, or even what was.
        likely = _said(answer.likely)
        hint = "a column that was dropped in that time has to be told from one that was added: "
        if likely:
            hint += f"its rows probably mean ({likely}): {retry_of(target)} takes them so; or "
        if table_type is TableType.HISTORY:
            hint += f"{resync_of(target)} copies it again, and versions from before stay"
        else:
            hint += f"drop the table {target} from the lake to copy it anew"
        return ColumnsUnclear(message, hint=hint, through=through, likely=likely)

    def _lost_track(self, spec: SourceTableSpec, what: str) -> SchemaError:
        """Return the error of a table whose rows of one transaction cannot be taken as they are."""
        message = f"{place_of(self._source.name, spec.table)}: {what}"
        table_type = self._approvals.target_of(spec).type
        if table_type is TableType.HISTORY:  # a copy would lose what happens until it is made
            hint = f"{resync_of(spec.identifier)} copies it again; versions from before stay"
            return LostTrack(message, hint=hint)
        if table_type is not TableType.CLONE:  # another copy would lose what was
            return LostTrack(message, hint=f"drop the table {spec.identifier} from the lake to copy it anew")
        return CopyNeeded(message, hint="kuvasz copies the table again by itself")

    def _look(self, spec: SourceTableSpec, relation: Relation, commit_lsn: int, xid: int) -> Look:
        """Look at a table, and at others: behind a new connection each is described before its first row."""
        others = self._next(spec, commit_lsn) or self._oldest(spec, commit_lsn)
        beside = [other.table for other, _ in others]
        with contextlib.closing(conninfo.connect(self._url())) as connection:
            spec, seen, found = self.see(connection, spec, relation.oid, xid, beside)
        for other, before in others:
            self._renew(other, found.get(other.table), before)
        fresh = dataclasses.replace(seen, table=eligibility.checked(self._source.name, spec, seen.table))
        self._follow_catalog(spec, fresh, commit_lsn)
        return fresh

    def _next(self, spec: SourceTableSpec, at: int) -> list[tuple[SourceTableSpec, Look]]:
        """Return the tables that were announced, and have to be looked at when it is their turn."""
        announced, self._announced = self._announced[:_ANNOUNCED], self._announced[_ANNOUNCED:]
        looked_at = [(self._looks.entry(oid), self._looks.get(oid)) for oid in announced]
        return [
            (other, seen)
            for other, seen in looked_at
            if other is not None and seen is not None and self._is_stale(other, seen, spec, at)
        ]

    def _oldest(self, spec: SourceTableSpec, at: int) -> list[tuple[SourceTableSpec, Look]]:
        """Return those whose looks are the oldest, now and then."""
        now = time.monotonic()
        if now - self._ahead_at < _AHEAD_EVERY_S:
            return []
        self._ahead_at = now
        oids, looks = self._looks.oids(), self._looks.all()
        looked_at = ((other, looks.get(oids.get(other.key, 0))) for other in self._source_tables.source.tables)
        stale = [
            (other, seen) for other, seen in looked_at if seen is not None and self._is_stale(other, seen, spec, at)
        ]
        return sorted(stale, key=lambda one: one[1].lsn)[:_AHEAD]

    def _is_stale(self, other: SourceTableSpec, seen: Look, spec: SourceTableSpec, at: int) -> bool:
        return other.key != spec.key and seen.lsn < at and self._source_tables.is_streaming(other)

    def _renew(self, spec: SourceTableSpec, table: SourceTable | None, seen: Look) -> None:
        """Take over a look at a table that is as it was, if nobody else has looked meanwhile.

        What changed, or cannot be looked at now, is left to its own message.
        """
        try:
            table = eligibility.checked(self._source.name, spec, table)
            self._refuse_partial(spec, table)
        except Exception:  # noqa: BLE001 (whatever it is, it is not the other table's, and is told with its own)
            return
        oid, now = table.relation.oid, table.relation.seen
        if seen.table is None or now is None or self._looks.get(oid) is not seen:
            return
        if fingerprint.of(table) == fingerprint.of(seen.table):
            self._looks.put(spec, Look(lsn=now.lsn, table=table))

    def _follow_catalog(self, spec: SourceTableSpec, seen: Look, at: int) -> None:
        """Have the lake go to what the catalog shows."""
        assert seen.table is not None
        relation = seen.table.relation
        if not self._is_as_before(seen.table):
            self._prepare_beside(spec, relation, at)
            self._prepare(spec, relation, at)
        self._refuse_partial(spec, seen.table)
        self._looks.put(spec, seen)

    def _prepare_beside(self, spec: SourceTableSpec, relation: Relation, at: int) -> None:
        """Have the table's other routes follow as well: the look counts for all of them."""
        for other in self._looks.specs(relation) if spec.route is not None else ():
            if other.key != spec.key and self._source_tables.is_streaming(other):
                try:
                    self._prepare(other, relation, at)
                except (TableError, TableStuck) as error:
                    self._troubles.stop(other, error)

    def _is_as_before(self, table: SourceTable) -> bool:
        """Whether the lake is where a table is: it need not be asked then, which may not answer for the moment."""
        before = self._looks.get(table.relation.oid)
        return (
            before is not None and before.table is not None and fingerprint.of(before.table) == fingerprint.of(table)
        )

    def _prepare(self, spec: SourceTableSpec, relation: Relation, at: int) -> None:
        target, feed = self._approvals.target_of(spec), feed_of(self._source, spec)
        done = self._lake.prepare(target, feed, relation, is_streaming=True)
        tell(self._source, spec, done, at)
        if done:
            self._approvals.followed(spec)


def _said(likely: Relation | None) -> str:
    """Return an answer as people are told it."""
    columns = () if likely is None else likely.columns
    return ", ".join(f"{column.name} is number {column.attnum}" for column in columns)


def _key(relation: Relation) -> set[int]:
    return {column.attnum for column in relation.columns if column.is_key}


def publications_of(source: Source) -> tuple[str, ...]:
    """Return the names of the publications that a source's stream names."""
    return inserts.with_inserts(source.object_name)


def _shows(now: Relation, time: Time, seen_lsn: int) -> bool:
    """Whether a look shows the catalog of a time, or of later."""
    is_running = now.seen is not None and time.xid in now.seen.running
    return seen_lsn >= time.to_lsn and not is_running


def replaced(source: Source, spec: SourceTableSpec, name: str | None) -> SchemaError:
    """Return the error of a table whose name another one has now; `name` is its own, None if it is gone."""
    place, resync = place_of(source.name, spec.table), resync_of(spec.identifier)
    if name is None:
        return SchemaError(
            f"{place}: it was dropped and created again", hint=f"{resync} copies the new one in its place"
        )
    message = f"{place}: it was renamed to {name}, and another table has its name"
    hint = (
        f"write {name} with `target: {spec.identifier}` into the map; or {resync} copies the other one in its place"
    )
    return SchemaError(message, hint=hint)


def tell(source: Source, spec: SourceTableSpec, done: Iterable[str], at: int) -> None:
    """Log what changed at a table and what was done about it."""
    for what in done:
        _log.tell(
            Event.SCHEMA_CHANGED,
            source=source.name,
            table=str(spec.table),
            target=spec.identifier,
            lsn=lsn.render(at),
            what=what,
        )


__all__ = ["SchemaWatch", "publications_of", "replaced", "tell"]
