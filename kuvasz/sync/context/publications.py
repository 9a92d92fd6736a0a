"""The publications of one source: that of whole tables, and that of tables of which only INSERTs may be published.

That a table was published without interruption is proved by the catalog's own rows
(`kuvasz.source.catalog.membership`), which the lake has beside the table's position. Where it is not proved there is
a gap: nobody knows how many changes are in no stream.

Called in threads, never on the event loop.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import SourceError, SourceLocked, SourceRefused, place_of
from kuvasz.events import Event, EventLog
from kuvasz.model import TableName
from kuvasz.ports import SourceNotes
from kuvasz.source import conninfo, inserts, publication, slots
from kuvasz.source.catalog import membership, partitions
from kuvasz.source.catalog.look import wal_end
from kuvasz.source.catalog.table import SourceTable
from kuvasz.state.tables import State
from kuvasz.sync.context.gap_starts import Evidence
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.context.source_tables import SourceTables
from kuvasz.sync.rules import keyless
from kuvasz.sync.rules.left_out import row_filters
from kuvasz.sync.rules.left_out.column_lists import published

_log = EventLog(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Published:
    """What the catalog showed of how tables are published."""

    end: int = 0  #: where the WAL ended just before
    members: Mapping[str, membership.Membership] = dataclasses.field(default_factory=dict)  #: by tables' keys

    @classmethod
    def of(
        cls,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        names: tuple[str, str],
        tables: Sequence[tuple[SourceTableSpec, SourceTable]],
    ) -> _Published:
        """Look how tables are published, by both publications."""
        return cls(end=wal_end(connection), members=_members(connection, names, tables)) if tables else cls()


class Publications:
    """One source's publications.

    Args:
        context: The context of the source.
        forget: Has a table copied again.
        begin: Takes note of the files of tables that are about to be copied or compared, or were never looked at.
    """

    def __init__(
        self,
        context: SourceContext,
        *,
        forget: Callable[[SourceTableSpec], None],
        begin: Callable[[Any, Sequence[tuple[SourceTableSpec, SourceTable]]], None],
    ) -> None:
        self.name = context.source.object_name
        self.inserts_name = inserts.object_name(self.name)
        self._source = context.source.name
        staged = context.shared.staged
        #: they are the first group's, which makes them fit: this one hears what comes
        self._is_heard = staged is not None and staged.group is not None
        self._lake = context.shared.lake
        self._source_tables = context.source_tables
        self._forget = forget
        self._begin = begin
        self.refused: dict[str, SourceError] = {}  #: why tables are not published, by `SourceTableSpec.key`
        self._context = context
        self.turn = threading.Lock()  #: held by whoever lists what is usable and makes the publications fit that
        self._seen: dict[str, str] = {}  #: `SourceTableSpec.key` -> by which rows it was published at its last look

    def seen(self, spec: SourceTableSpec) -> str:
        """Return by which catalog rows a table was published when it was last looked at; see `Position.published`."""
        return self._seen.get(spec.key, "")

    def fit(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        usable: Sequence[tuple[SourceTableSpec, SourceTable]],
        specs: Sequence[SourceTableSpec],
    ) -> Sequence[SourceTable]:
        """Make both publications fit; returns the tables of which only INSERTs are published.

        Tables that only the map keeps from being replicated are left as they are published. The `turn` is the
        caller's: who knows of one table less than another look would take that one out of the stream.

        Args:
            connection: To the source.
            usable: What is to be published.
            specs: The tables of the map that are looked at: they do not stream now.

        Raises:
            SourceRefused: None of the tables can be published; what keeps one of them from it is in `refused`.
            SourceError: They cannot be changed.
        """
        found = publication.load_all(connection, (self.name, self.inserts_name))
        shown = _Published.of(connection, (self.name, self.inserts_name), usable if found else [])
        interrupted = {spec.key: spec for spec in self._interrupted(connection, usable, shown)}
        keys = {spec.key for spec in specs}
        looked_at = [(spec, table) for spec, table in usable if spec.key in keys]
        self._open_gaps([spec for spec, _ in looked_at if spec.key in interrupted])
        for spec in interrupted.values():
            if spec.key not in keys and self._source_tables.is_streaming(spec):
                self._context.troubles.interrupt(spec)
        version = connection.info.server_version if any(spec.config.column_list for spec, _ in usable) else 0
        once = {table.relation.oid: (spec, table) for spec, table in usable}.values()  # a table with routes is one
        full = [published(spec, table, version) for spec, table in once if not keyless.has_only_inserts(table)]
        partial = [published(spec, table, version) for spec, table in once if keyless.has_only_inserts(table)]
        self._refuse(connection, full, partial, found)
        if self._is_heard:
            self._prove(full, partial, found)
        elif self._make_fit(connection, full, partial, found, looked_at):
            shown = _Published.of(connection, (self.name, self.inserts_name), looked_at)
        self._see(looked_at, shown)
        # Once they are named: until the first look, too, nobody can have them unlogged.
        self._begin(connection, looked_at)
        return partial

    def _refuse(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        full: Sequence[SourceTable],
        partial: Sequence[SourceTable],
        publications: Mapping[str, publication.Publication],
    ) -> None:
        """Find out which tables cannot be published."""
        found: dict[TableName, SourceRefused] = {}
        wanted = {table.relation.oid for table in (*full, *partial)}
        for name, asked, operations in (
            (self.name, full, publication.ALL_OPERATIONS), (self.inserts_name, partial, inserts.OPERATIONS),
        ):  # fmt: skip
            current = publications.get(name)
            tables = asked
            if self._is_heard:  # what is not in it yet is not for this process to put there
                tables = [table for table in asked if current is not None and current.covers(table)]
            if tables:
                found |= publication.refusals(connection, current, name, tables, operations, wanted=wanted)
        if found and len(found) == len(full) + len(partial):
            raise next(iter(found.values()))
        self.refused = {
            spec.key: found[spec.table] for spec in self._source_tables.source.tables if spec.table in found
        }

    def _prove(
        self,
        full: Sequence[SourceTable],
        partial: Sequence[SourceTable],
        publications: Mapping[str, publication.Publication],
    ) -> None:
        """Find out which tables are not published as they have to be, and change nothing.

        Raises:
            SourceError: A publication is not as it has to be for any table.
        """
        hint = f"{publication.HEARD_HINT}; it is tried again"
        missing: dict[TableName | None, str] = {}
        for name, tables, operations in (
            (self.name, full, publication.ALL_OPERATIONS), (self.inserts_name, partial, inserts.OPERATIONS),
        ):  # fmt: skip
            refused = {spec.table for spec in self._source_tables.source.tables if spec.key in self.refused}
            wanted = [table for table in tables if table.table not in refused]
            if not wanted:
                continue
            planned = publication.plan(publications.get(name), name, wanted, operations)
            missing |= publication.unfit(planned, name)
            if (why := missing.get(None)) is not None:
                raise SourceError(f"{place_of(self._source)}: {why}", hint=hint)
        self.refused |= {
            spec.key: SourceError(missing[spec.table], hint=hint)
            for spec in self._source_tables.source.tables
            if spec.table in missing
        }

    def patrol(self, connection: Any) -> bool:  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        """Look whether all tables that follow the stream were published all the time.

        Returns:
            Whether all tables were that the lake has, or is getting, rows of: also that none is away from the stream.

        Raises:
            SourceError: The source does not answer.
        """
        source_tables = self._source_tables
        streaming = [(spec, table) for spec, table in source_tables.usable() if source_tables.is_streaming(spec)]
        if not streaming:
            return False
        interrupted = self._interrupted(
            connection, streaming, _Published.of(connection, (self.name, self.inserts_name), streaming)
        )
        for spec in interrupted:
            self._context.troubles.interrupt(spec)
        return not interrupted and not self.are_any_away()

    def are_any_away(self) -> bool:
        """Whether a look at tables that follow says nothing of some whose rows the lake has, or is getting."""
        tables = self._source_tables
        usable = {spec.key for spec, _ in tables.usable()}
        return any(
            tables.state(spec) is State.COPYING
            or tables.look(spec).is_resync_due
            or (not (spec.key in usable and tables.is_streaming(spec)) and tables.position(spec) is not None)
            for spec in tables.source.tables
        )

    def _interrupted(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        tables: Sequence[tuple[SourceTableSpec, SourceTable]],
        shown: _Published,
    ) -> list[SourceTableSpec]:
        """Return the tables with rows in the lake that are not proved to have been published since."""
        place = functools.cache(lambda: _place(connection))
        followed = [(spec, table) for spec, table in tables if self._is_followed(spec, table)]
        noted = _noted(
            self._lake.notes, self._source_tables, [spec for spec, _ in followed if spec.key in shown.members]
        )
        broken = []
        for spec, table in followed:
            now = shown.members.get(spec.key)
            is_other = now is not None and _has_other_filter(spec, table, now)
            if now is None or is_other or not self._goes_on(spec, now, noted[spec.key], place):
                broken.append(spec)
                self._source_tables.gap_starts.note(Evidence.PUBLICATION, spec)
                continue
            self._source_tables.gap_starts.prove(Evidence.PUBLICATION, spec, shown.end)
        return broken

    def _goes_on(
        self,
        spec: SourceTableSpec,
        now: membership.Membership,
        text: str | None,
        place: Callable[[], tuple[int, int]],
    ) -> bool:
        """Whether a table was published alike since its last look; what is new of that is remembered.

        Args:
            spec: The table.
            now: How it is published.
            text: How it was published then; None: nobody said.
            place: Gives the timeline of the source, and where its WAL ended after the look.
        """
        fresh = now
        if text == now.render():
            return now.goes_on_from(now)
        if text:
            timeline, end = place()
            position = self._source_tables.position(spec)
            earlier = membership.Membership.parse(text).proved(timeline, 0 if position is None else position.lsn)
            if not now.goes_on_from(earlier):
                return False
            fresh = now.beside(earlier, timeline, end)
        if text != fresh.render():
            # An earlier version did not note it, or one of several clauses came or went.
            name = self._source_tables.name(spec)
            self._lake.notes.remember_published(spec.identifier, name, fresh.render())
        return True

    def _is_followed(self, spec: SourceTableSpec, table: SourceTable) -> bool:
        """Whether the lake has rows of a table, and not those of another one that had its name."""
        oid = self._lake.notes.oid(spec.identifier, self._source_tables.name(spec))
        return oid in {None, table.relation.oid} and self._source_tables.position(spec) is not None

    def _see(self, tables: Sequence[tuple[SourceTableSpec, SourceTable]], shown: _Published) -> None:
        """Note by which rows tables are published, for whoever copies them from here on.

        Whoever else may alter a publication may have put an ancestor into it that cannot be taken out.
        """
        keys = {spec.key for spec, _ in tables}
        members = {key: member for key, member in shown.members.items() if key in keys}
        self._seen |= {key: member.render() for key, member in members.items()}
        for spec, _ in tables:
            if spec.key in members:
                self._source_tables.gap_starts.prove(Evidence.PUBLICATION, spec, shown.end)
        self.refused |= {
            spec.key: publication.within_published(self.name, table)
            for spec, table in tables
            if spec.key in members and members[spec.key].above and spec.key not in self.refused
        }

    def _open_gaps(self, specs: Sequence[SourceTableSpec]) -> None:
        """Have tables come over what they missed; the lake remembers the gaps before they are published again."""
        for spec in specs:
            _log.tell(Event.GAP_FOUND, source=self._source, table=spec.identifier)
            # After a crash nothing else would tell of the gap.
            self._source_tables.resync(spec, is_due=True, is_repair=True)
            self._forget(spec)

    def withdraw(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        usable: Sequence[tuple[SourceTableSpec, SourceTable]],
    ) -> None:
        """Publish no more than these tables, none of which can be replicated now.

        Raises:
            SourceError: The publications cannot be changed.
        """
        if publication.exists(connection, self.name):
            # A table without key must not stay published: the application's own UPDATE would fail.
            with self.turn:
                self.fit(connection, usable, [])

    def _make_fit(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        full: Sequence[SourceTable],
        partial: Sequence[SourceTable],
        publications: Mapping[str, publication.Publication],
        looked_at: Sequence[tuple[SourceTableSpec, SourceTable]],
    ) -> bool:
        """Make both publications fit; returns whether anything had to be altered."""
        done = [self._fit(connection, self.name, full, publications)]
        self._relist(connection, done[0], looked_at)
        if partial or self.inserts_name in publications:
            done.append(self._fit(connection, self.inserts_name, partial, publications, inserts.OPERATIONS))
        return any(done)

    def _fit(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        name: str,
        tables: Sequence[SourceTable],
        publications: Mapping[str, publication.Publication],
        operations: Sequence[str] = publication.ALL_OPERATIONS,
    ) -> publication.PublicationChanges:
        """Make a publication fit, but for lists of columns of tables in it: returns what was planned for those."""
        refused = {spec.table for spec in self._source_tables.source.tables if spec.key in self.refused}
        left = [*(table for table in tables if table.table in refused), *self._source_tables.misfits.values()]
        tables = [table for table in tables if table.table not in refused]
        planned = publication.plan(publications.get(name), name, tables, operations, left=left)
        done = publication.carry_out(connection, name, planned)
        self.refused |= {
            spec.key: publication.locked_out(name, spec.table)
            for spec in self._source_tables.source.tables
            if spec.table in done.locked
        }
        if done.statements or done.tidying:
            _log.tell(Event.PUBLICATION, source=self._source, statements=[*done.statements, *done.tidying])
        return done

    def _relist(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        planned: publication.PublicationChanges,
        tables: Sequence[tuple[SourceTableSpec, SourceTable]],
    ) -> None:
        """Give tables that do not stream now the lists of columns and row filters that were planned.

        The row of the catalog by which a table is published becomes another one with that. No transaction sees it
        unpublished: so a table that was published all the time until then has missed nothing.
        """
        due = dict(planned.relisted)
        for spec, table in tables:
            if table.table not in due:
                continue
            try:
                self._relist_one(connection, spec, table, due[table.table])
            except SourceError as error:  # it may be locked; no other table waits for it
                is_locked = isinstance(error, SourceLocked)
                self.refused[spec.key] = publication.locked_out(self.name, table.table) if is_locked else error
            else:
                _log.tell(Event.PUBLICATION, source=self._source, statements=[*due[table.table]])

    def _relist_one(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        spec: SourceTableSpec,
        table: SourceTable,
        statements: Sequence[str],
    ) -> None:
        place = functools.cache(lambda: _place(connection))
        with publication.relisting(connection, self.name, table.table, statements) as alter:
            before = _members(connection, (self.name, self.inserts_name), [(spec, table)]).get(spec.key)
            is_followed = before is not None and self._is_followed(spec, table)
            alter()
            after = _members(connection, (self.name, self.inserts_name), [(spec, table)]).get(
                spec.key
            )  # before anybody else may alter it
        is_other = before is not None and _has_other_filter(spec, table, before)
        if before is None or after is None or not is_followed or is_other:
            return
        if not self._goes_on(spec, before, _noted(self._lake.notes, self._source_tables, [spec])[spec.key], place):
            return  # its next look finds another row, and nothing that proves it
        self._note_list(spec, after.beside(before, *_place(connection)))

    def _note_list(self, spec: SourceTableSpec, published_by: membership.Membership) -> None:
        """Note that the row by which a table is published now follows on another one."""
        name = self._source_tables.name(spec)
        self._lake.notes.remember_published(spec.identifier, name, published_by.render())

    def may_name_inserts(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        taken: slots.ExportedSnapshot | None,
        tables: Sequence[tuple[SourceTableSpec, SourceTable]],
    ) -> bool:
        """Whether the stream may name the publication of INSERTs alone from where it goes on.

        It may if it did before, which a table of it says that the lake has, and that `fit` has found published alike:
        left out for a while, its rows would be missing, and nothing would tell.

        Args:
            connection: To the source.
            taken: The snapshot of the slot, if the slot was created just now.
            tables: The tables that are to stream.

        Raises:
            SourceError: The source does not answer.
        """
        if taken is not None:
            inserts.mark(connection, self.inserts_name, taken.consistent_point)
            return True
        if any(self._is_followed(spec, table) for spec, table in tables if keyless.has_only_inserts(table)):
            return True
        from_lsn = inserts.since(connection, self.inserts_name, self.name)
        state = slots.describe(connection, self.name)
        confirmed = None if state is None else state.confirmed_flush_lsn
        return from_lsn is not None and confirmed is not None and confirmed >= from_lsn

    def inserts_since(self) -> int | None:
        """Return the LSN from which the stream may name the publication of INSERTs alone; None: not known now."""
        try:
            with contextlib.closing(conninfo.connect(self._context.url())) as connection:
                return inserts.since(connection, self.inserts_name, self.name)
        except SourceError:
            return None  # the reader finds out that the source is gone


def _members(
    connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
    names: tuple[str, str],
    tables: Sequence[tuple[SourceTableSpec, SourceTable]],
) -> dict[str, membership.Membership]:
    """Return how tables are published now, by their keys; those that are not are left out."""
    found: dict[str, membership.Membership] = {}
    for name, is_partial in zip(names, (False, True), strict=True):
        mine = [
            (spec.key, table.relation.oid) for spec, table in tables if keyless.has_only_inserts(table) is is_partial
        ]
        oids = {oid for _, oid in mine}  # routes of a table have one
        members = membership.load(connection, name, oids, list(names))
        found |= {key: members[oid] for key, oid in mine if oid in members}
    return found


def _has_other_filter(spec: SourceTableSpec, table: SourceTable, now: membership.Membership) -> bool:
    """Whether rows of a table are sent by another condition than the map's: what it holds back nobody knows."""
    return now.row_filter not in {"", membership.mark_of(row_filters.wanted(spec, table))}


def _noted(notes: SourceNotes, tables: SourceTables, specs: Sequence[SourceTableSpec]) -> Mapping[str, str | None]:
    """Return by which catalog rows tables were published at their last look, by `SourceTableSpec.key`."""
    key_of: dict[str, dict[str, str]] = {}  # target -> name of its source -> key
    for spec in specs:
        key_of.setdefault(spec.identifier, {})[tables.name(spec)] = spec.key
    return {
        keys[name]: text
        for target, keys in key_of.items()
        for name, text in notes.published_of(target, tuple(keys)).items()
    }


def _place(connection: Any) -> tuple[int, int]:  # noqa: ANN401 (psycopg's, which is known to `source` alone)
    """Return a source's timeline, and where its WAL ends."""
    return partitions.timeline_of(partitions.horizon(connection)), wal_end(connection)


__all__ = ["Publications"]
