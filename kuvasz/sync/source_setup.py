"""Looks at the tables of one source, and makes lake, publications and slot ready: for all at a start, or for one.

Called in threads, never on the event loop.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kuvasz.config.model import Origin
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import KuvaszError, OtherRule, Retry, SourceError, SourceRefused, place_of
from kuvasz.source import conninfo, failure, slots
from kuvasz.source.catalog import introspect, look, sizes
from kuvasz.source.catalog.table import SourceTable
from kuvasz.source.check.server_check import OLDEST_ORIGIN_VERSION, OLDEST_STAGED_VERSION
from kuvasz.state.tables import State
from kuvasz.sync.context.publications import Publications
from kuvasz.sync.context.slot import Slot
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.rules import keyless
from kuvasz.sync.tables.preparation import Preparation
from kuvasz.sync.tables.recopy import PositionReset
from kuvasz.sync.watch.last_looks import LastLooks
from kuvasz.sync.watch.member_watch import MemberWatch
from kuvasz.sync.watch.partition_watch import PartitionWatch
from kuvasz.sync.watch.renames import Renames
from kuvasz.sync.watch.schema_watch import publications_of

#: Targets of a source that are loaded one after another; of more so many at a time: they wait for catalog and store.
_FEW = _LOADED_AT_A_TIME = 8

#: For how long others that begin take what was seen of a lake table.
_SHARED_S = 1.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What was found and done before the stream begins."""

    tables: tuple[tuple[SourceTableSpec, SourceTable], ...]  #: usable ones
    snapshot: slots.ExportedSnapshot | None  #: of a slot that was created just now
    publications: tuple[str, ...]
    is_waiting: bool  #: tables wait until the stream may name the publication of INSERTs alone
    system_id: str


class SourceSetup:
    """What makes one source ready to stream.

    Args:
        context: The context of the source.
        preparation: Admits tables.
        looks: Told what was seen.
        members: The members of the source's collapses.
        partitions: Looks at partitions.
        publications: Made to fit.
        slot: Checked, and created.
        resets: Has tables copied again.
    """

    def __init__(
        self,
        context: SourceContext,
        preparation: Preparation,
        looks: LastLooks,
        members: MemberWatch,
        partitions: PartitionWatch,
        publications: Publications,
        slot: Slot,
        resets: PositionReset,
    ) -> None:
        self.target_lsn: int | None = None  #: where the source's WAL ended when it was first reached
        self._context = context
        self._source = context.source.name
        self._source_tables = context.source_tables
        self._preparation = preparation
        self._looks = looks
        self._members = members
        self._partitions = partitions
        self._publications = publications
        self._slot = slot
        self._resets = resets
        self._renames = Renames(context, preparation.attach)

    def start_once(self) -> Start:
        """Look at all tables, and have everything ready for copies of all of them, but leave nothing at the source.

        Raises:
            SourceRefused: The source is replicated.
            KuvaszError: See `start`.
        """
        return self._start(is_once=True)

    def start(self) -> Start:
        """Look at all tables, and have everything ready for the stream.

        Raises:
            SourceError: The source does not answer, or cannot be replicated as it is.
            SlotLost: It does not go on from where the lake stands.
            LakeError: The lake cannot be reached or written.
            MapMismatch: The map does not fit.
        """
        return self._start(is_once=False)

    def _start(self, *, is_once: bool) -> Start:
        with (
            contextlib.closing(conninfo.connect(self._context.url())) as connection,
            failure.translated(place_of(self._source), "look at the database"),
        ):
            facts = introspect.server(connection)
            self._check_server(connection, facts)
            if (patterns := self._context.shared.patterns) is not None:
                patterns.refuse_many(connection, self._context.source)
            self._attach_all()  # what they follow is no member, whatever its name is
            self._members.refresh(connection)
            for spec in self._source_tables.source.tables:
                self._preparation.attach(spec)
            if is_once:
                self._slot.refuse(connection)
                for spec in self._source_tables.source.tables:
                    self._source_tables.resync(spec, is_due=True)
            # Before anything of the tables is looked at: another source's columns must not be taken for these.
            has_slot = self._slot.check(connection, facts, is_once=is_once)
            self._looks.distrust()  # another server may answer
            self._resets.is_replaced |= self._slot.is_replaced
            self._resets.strangers = self._slot.stale
            usable, prepared = self._admit_all(connection)
            specs = [spec for spec, _ in prepared]
            ready = {spec.key for spec in specs}
            held = [spec for spec, _ in usable if spec.key not in ready and self._waits_for_a_person(spec)]
            if (
                not specs and not held and self._source_tables.source.tables
            ):  # without any, members of a collapse may come
                self._refuse_if_renamed(connection)
                self._publications.withdraw(connection, usable)
                raise self._none_usable()
            locked = self._partitions.check(connection, prepared)
            prepared = [(spec, table) for spec, table in prepared if spec.key not in locked]
            self._resets.is_replaced = False
            self._members.forget_gone()
            if is_once:
                self._size(connection, prepared)
                only = self._slot.create(connection, facts, temporary=True)
                return Start(
                    tables=tuple(prepared), snapshot=only, publications=(), is_waiting=False,
                    system_id=str(facts.system_identifier),
                )  # fmt: skip
            with self._publications.turn:
                partial = self._publications.fit(connection, self._source_tables.usable(), specs)
                prepared = self._without_refused(prepared)
            self._size(connection, prepared)
            # After the publications: they must be there at the slot's first LSN.
            taken = None if has_slot else self._slot.create(connection, facts)
            is_named = bool(partial) and self._publications.may_name_inserts(connection, taken, prepared)
            streamed = [(spec, table) for spec, table in prepared if is_named or not keyless.has_only_inserts(table)]
            named = [self._publications.inserts_name] if is_named else []
            return Start(
                tables=tuple(streamed), snapshot=taken, system_id=str(facts.system_identifier),
                publications=(self._publications.name, *named), is_waiting=bool(partial) and not is_named,
            )  # fmt: skip

    def _waits_for_a_person(self, spec: SourceTableSpec) -> bool:
        """Whether a table is as it should be, and only waits for a word that nobody can say when kuvasz has ended."""
        look = self._source_tables.look(spec)
        return look.state is State.PAUSED or isinstance(look.error, OtherRule)

    def _check_server(self, connection: Any, facts: introspect.ServerFacts) -> None:  # noqa: ANN401 (psycopg's)
        if facts.wal_level != "logical":
            raise SourceRefused(
                f"{place_of(self._source)}: wal_level is {facts.wal_level}, needed is logical",
                hint="ALTER SYSTEM SET wal_level = logical; then restart the server",
            )
        if self._context.shared.staged is not None and facts.version < OLDEST_STAGED_VERSION:
            raise SourceRefused(
                f"{place_of(self._source)}: its version is {facts.version_text}, and cluster.log needs 15 or newer",
                hint="upgrade the server, or leave cluster.log out",
            )
        if self._context.source.origin is Origin.NONE and facts.version < OLDEST_ORIGIN_VERSION:
            raise SourceRefused(
                f"{place_of(self._source)}: its version is {facts.version_text}, `origin: none` needs 16 or newer",
                hint="upgrade the server, or leave `origin: none` out",
            )
        if self.target_lsn is None:
            self.target_lsn = look.end_to_send(connection) if facts.wal_end is None else facts.wal_end

    def _attach_all(self) -> None:
        """Have the lake load the targets of all tables, as far as they are there."""
        specs = self._source_tables.source.tables
        of_target = {spec.identifier: spec for spec in specs}
        if len(of_target) > _FEW:
            with ThreadPoolExecutor(_LOADED_AT_A_TIME, thread_name_prefix="attach") as pool:
                list(pool.map(self._preparation.attach, of_target.values()))
            specs = tuple(spec for spec in specs if of_target[spec.identifier] is not spec)
        for spec in specs:
            self._preparation.attach(spec)

    def _admit_all(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
    ) -> tuple[Sequence[tuple[SourceTableSpec, SourceTable]], Sequence[tuple[SourceTableSpec, SourceTable]]]:
        """Return the tables that are usable, and those of them that the lake is ready for."""
        seen_at = look.wal_end(connection)
        for spec in self._source_tables.source.tables:
            if self._resets.is_stranger(spec):  # what was known of its names goes with the rest
                self._source_tables.rename(spec, self._source_tables.mapped(spec))
        known = [spec for spec in self._source_tables.source.tables if not self._resets.is_stranger(spec)]
        self._renames.learn(connection, known)
        tables = self._source_tables.source.tables
        found = look.tables(connection, [spec.table for spec in tables], publications_of(self._context.source))
        self._context.caveats.tell(found)
        usable = [(spec, table) for spec in tables if (table := self._preparation.usable(spec, found)) is not None]
        self._source_tables.tables = {spec.key: table for spec, table in usable}
        # Sources that begin for the first time share what was seen of a table a moment ago: thousands begin at once.
        since = time.monotonic() - (0.0 if self._context.lifetime.has_started else _SHARED_S)
        prepared = [(spec, table) for spec, table in usable if self._preparation.prepare(spec, table, seen_at, since)]
        self._looks.begin(prepared, seen_at)
        return usable, prepared

    def _size(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        tables: Sequence[tuple[SourceTableSpec, SourceTable]],
    ) -> None:
        """Find out how large the tables are that are to be copied: many small ones are at a time."""
        source_tables = self._source_tables
        due = {spec.key: table for spec, table in tables if source_tables.position(spec) is None}
        found = sizes.sized_unless_locked(connection, list(due.values()))
        source_tables.tables |= dict(zip(due, found, strict=True))

    def _without_refused(
        self, prepared: Sequence[tuple[SourceTableSpec, SourceTable]]
    ) -> list[tuple[SourceTableSpec, SourceTable]]:
        """Put tables that cannot be published into error; return the others."""
        refused = self._publications.refused
        for spec, _ in prepared:
            if spec.key in refused:
                self._context.troubles.refuse(spec, self._refusal(spec))
        return [(spec, table) for spec, table in prepared if spec.key not in refused]

    def _refusal(self, spec: SourceTableSpec) -> SourceError:
        error = self._publications.refused[spec.key]
        return type(error)(f"{place_of(self._source)}: {error.message}", hint=error.hint)

    def _refuse_if_renamed(self, connection: Any) -> None:  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        """Have all be looked at again if members got other names, as with their schema, since they were found."""
        before = self._source_tables.source.tables
        self._members.refresh(connection)
        if self._source_tables.source.tables != before:
            raise SourceError(f"{place_of(self._source)}: its tables got other names while they were looked at")

    def _none_usable(self) -> KuvaszError:
        states = self._context.shared.states.snapshot(self._source)
        errors = [state.error for state in states if state.error is not None]
        for error in errors:
            if error.retry is Retry.TIMED:
                return error
        why = errors[0] if errors else "they are paused, and the lake does not take them"
        return SourceRefused(f"{place_of(self._source)}: none of its tables can be replicated: {why}")

    def look(self, spec: SourceTableSpec) -> bool:
        """Look at one table anew, beside the stream; returns whether it can be replicated.

        Raises:
            SourceError: The source does not answer.
            LakeError: The lake does not.
        """
        source_tables = self._source_tables
        with (
            contextlib.closing(conninfo.connect(self._context.url())) as connection,
            failure.translated(place_of(self._source), f"look at table {spec.table}"),
        ):
            seen_at = look.wal_end(connection)
            self._renames.learn(connection, [spec])
            (spec,) = source_tables.known([spec.key]) or [spec]
            found = look.tables(connection, [spec.table], publications_of(self._context.source))
            self._context.caveats.tell(found)
            table = self._preparation.usable(spec, found)
            if table is None:
                source_tables.tables.pop(spec.key, None)
            else:
                source_tables.tables[spec.key] = table
                self._renames.learn(connection, self._preparation.sharing(spec, table))
            is_ready = table is not None and self._preparation.prepare(spec, table, seen_at)
            if is_ready and table is not None:
                self._looks.begin([(spec, table)], seen_at)
                self._partitions.check(connection, [(spec, table)])
                is_ready = source_tables.state(spec) is not State.ERROR
            with self._publications.turn:
                self._publications.fit(connection, source_tables.usable(), [spec] if is_ready else [])
                if spec.key in self._publications.refused:
                    raise self._refusal(spec)
            if is_ready and table is not None:
                self._size(connection, [(spec, table)])
            return is_ready


__all__ = ["SourceSetup", "Start"]
