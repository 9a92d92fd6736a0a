"""One source, from nothing to streaming, and back there after every failure.

    connect ─> look at tables ─> publication ─> slot ─┬─ new: copy all tables from its snapshot ──> reader
                                                      └─ known: reader ── copy new tables beside it

A table that is copied while the stream runs is *held*: nothing beyond the stream's place at that time is confirmed.
When its copy is committed, the reader goes back to the confirmed LSN; every other table skips what it has by its
position (invariant 3 in ARCHITECTURE.md), this one begins at the position of its snapshot.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kuvasz import failpoints, lsn
from kuvasz.config.sources import Source, SourceTableSpec
from kuvasz.errors import (
    ConfigError,
    CopyNeeded,
    ExpressionRefused,
    InternalError,
    KuvaszError,
    LakeError,
    MapMismatch,
    SchemaError,
    SchemaHeld,
    SlotLost,
    SourceError,
    SourceRefused,
    TableError,
)
from kuvasz.model import PgType, Position, TableName
from kuvasz.ports import Inbox, Lake, Routes, Target
from kuvasz.source import conninfo, failure, inserts, introspect, partitions, publication, slots, snapshot
from kuvasz.source.look import wal_end
from kuvasz.source.reader import Reader, ReaderOptions
from kuvasz.source.table import SourceTable, TableKind
from kuvasz.state.budget import Budget
from kuvasz.state.progress import Progress
from kuvasz.state.tables import State, TableStates
from kuvasz.sync import keyless
from kuvasz.sync.plan import copy_ranges
from kuvasz.sync.schema_watch import SchemaWatch, tell
from kuvasz.sync.targets import feed_of, narrowed, target_of, why_not_taken

_log = logging.getLogger(__name__)

_FIRST_BACKOFF_S = 0.5
_LAST_BACKOFF_S = 30.0

#: Seconds between two looks whether tables that wait may be streamed.
_LOOK_S = 1.0

#: Seconds between two looks at the partitions of partitioned tables.
_PARTITIONS_S = 5.0
#: Between two looks at what the stream does not tell: a table that was dropped, or that lost or got its key.
PATROL_S = 30.0

#: Bytes at the source of one range of a copy: some seconds of work, so that progress shows and load spreads.
_RANGE_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all sources share."""

    lake: Lake
    routes: Routes
    inboxes: Sequence[Inbox]
    progress: Progress
    budget: Budget
    states: TableStates
    spill_bytes: int
    copies: asyncio.Semaphore  #: how many tables are copied at a time, of all sources
    on_copy: Callable[[str, str, int, int, int], None]  #: source, table, ranges done, ranges in all, rows
    mask_secret: bytes = dataclasses.field(default=b"", repr=False)  #: key of the pseudonyms


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """What was found and done before the stream begins."""

    tables: tuple[tuple[SourceTableSpec, SourceTable], ...]  #: usable ones
    snapshot: slots.ExportedSnapshot | None  #: of a slot that was created just now
    publications: tuple[str, ...]
    is_waiting: bool  #: tables wait until the stream may name the publication of INSERTs alone
    system_id: str


class SourceSync:
    """Keeps one source replicated until `stop`.

    Args:
        source: From the map.
        around: What all sources share.
    """

    def __init__(self, source: Source, around: Surroundings) -> None:
        self.source = source
        self.error: KuvaszError | None = None  #: why it does not stream now
        self.target_lsn: int | None = None  #: where the source's WAL ended when it was first reached
        self.reader: Reader | None = None
        self._around = around
        self._url = source.url.get()
        self._slot = source.object_name
        self._epoch = 0  #: of the last connection: numbers are never used twice
        self._stopping = asyncio.Event()
        self.has_started = False  #: it passed its checks at least once
        self._refused: set[str] = set()  #: targets in error that never got as far as the lake's own work
        self._unread: set[str] = set()  #: partitions that the role may not read
        self._unprepared: set[str] = set()  #: targets that the lake would not take: what it has of them is unknown
        self._unfit: set[str] = set()  #: targets whose source table cannot be replicated as it is
        self._approved: set[str] = set()  #: targets that follow a schema change because a person said so
        self._stale: set[str] = set()  #: targets to be copied again whatever their columns say
        self._is_starting = False
        self._again = asyncio.Event()  #: set: try again now
        self._loop: asyncio.AbstractEventLoop | None = None
        self._restart: asyncio.Task[None] | None = None
        self._watch = SchemaWatch(
            source,
            around.lake,
            around.states,
            target_of=self._target_of,
            checked=self._checked,
            on_trouble=self._on_trouble,
            on_followed=lambda spec: self._approved.discard(spec.identifier),
        )
        for spec in source.tables:
            around.states.add(spec.identifier, source.name, str(spec.table))

    @property
    def is_streaming(self) -> bool:
        """Whether the reader runs and every table is past its copy or in error."""
        settled = {State.STREAMING, State.CATCHING_UP, State.ERROR, State.PAUSED}
        mine = [state for state in self._around.states.snapshot() if state.source == self.source.name]
        return self.reader is not None and all(state.state in settled for state in mine)

    async def run(self) -> None:
        """Replicate until stopped; ends early only with an error that a person has to mend.

        Raises:
            SlotLost: A person is needed.
        """
        self._loop = asyncio.get_running_loop()
        wait = _FIRST_BACKOFF_S
        while not self._stopping.is_set():
            begin = time.monotonic()
            try:
                await self._once()
            except (KuvaszError, BaseExceptionGroup) as caught:
                error = _ours(caught)
                self.error = error
                self.reader = None
                if isinstance(error, (SlotLost, ConfigError)):
                    raise error from caught
                _log.warning("a source is not replicated now", extra={
                    "event": "source_failed", "source": self.source.name, "error": str(error)})  # fmt: skip
            if time.monotonic() - begin > _LAST_BACKOFF_S:
                wait = _FIRST_BACKOFF_S
            if not self._stopping.is_set():
                self._again.clear()
                await _either(self._again, wait * (0.5 + random.random()))  # noqa: S311 (jitter)
            wait = min(2 * wait, _LAST_BACKOFF_S)

    def quiesce(self) -> None:
        """Stop reading, go on confirming."""
        self._stopping.set()
        self._again.set()
        if self.reader is not None:
            self.reader.quiesce()

    def stop(self) -> None:
        """Confirm what is durable and end."""
        self._stopping.set()
        self._again.set()
        if self.reader is not None:
            self.reader.stop()

    async def _once(self) -> None:
        self._is_starting = True
        try:
            await self._begin()
        finally:
            self._is_starting = False

    async def _begin(self) -> None:
        start = await asyncio.to_thread(self._start)
        self.error = None
        self.has_started = True
        positions = {spec.identifier: self._position(spec) for spec, _ in start.tables}
        new = [(spec, table) for spec, table in start.tables if positions[spec.identifier] is None]
        try:
            if start.snapshot is not None:
                for spec, table in new:
                    await self._copy(spec, table, start.snapshot, start.system_id)
                new = []
        finally:
            if start.snapshot is not None:
                start.snapshot.close()
        # Before a hold is released: until the next connection nothing counts as received beyond the confirmable LSN.
        self._epoch += 1
        self._around.progress.restarted(self.source.name, self._epoch)
        waiting = {spec.identifier for spec, _ in new}
        for spec, _ in start.tables:
            is_stopped = self._state(spec) in {State.PAUSED, State.ERROR}
            if self._position(spec) is not None and not is_stopped:
                self._around.states.activate(spec.identifier, self.source.name, self._epoch + 1)
                self._around.progress.release(self.source.name, spec.identifier)
            elif self._position(spec) is not None or spec.identifier in waiting:
                self._around.progress.hold(self.source.name, spec.identifier)
        usable = {spec.identifier for spec, _ in start.tables}
        for spec in self.source.tables:
            is_known = self._position(spec) is not None or spec.identifier in self._unprepared
            if spec.identifier not in usable and is_known:
                # It is in error and may have been copied before: what comes now must come again when it is mended.
                self._around.progress.hold(self.source.name, spec.identifier)
        await self._stream(start, [(spec, table) for spec, table in new if self._state(spec) is not State.ERROR])

    async def _stream(self, start: _Start, new: Sequence[tuple[SourceTableSpec, SourceTable]]) -> None:
        around = self._around
        reader = Reader(
            self.source.name,
            conninfo.replication_conninfo(self._url),
            self._slot,
            ",".join(start.publications),
            routes=around.routes,
            inboxes=around.inboxes,
            progress=around.progress,
            budget=around.budget,
            types=self._types,
            follow=self._watch.follow,
            system_id=start.system_id,
            options=ReaderOptions(spill_bytes=around.spill_bytes),
        )
        reader.epoch = self._epoch
        self.reader = reader
        self._is_starting = False
        if self._stopping.is_set():
            return
        async with asyncio.TaskGroup() as tasks:
            copying = tasks.create_task(self._copy_beside(reader, new, start.system_id), name=f"copy {self._slot}")
            waiting = tasks.create_task(self._await_inserts(reader, start), name=f"inserts {self._slot}")
            watching = tasks.create_task(self._watch_partitions(start.tables), name=f"partitions {self._slot}")
            patrol = tasks.create_task(self._patrol(), name=f"patrol {self._slot}")
            try:
                await reader.run()
            finally:
                self.reader = None
                self._epoch = reader.epoch
                copying.cancel()
                waiting.cancel()
                watching.cancel()
                patrol.cancel()

    async def _patrol(self) -> None:
        """Look now and then at what the stream does not tell."""
        while not self._stopping.is_set():
            await _either(self._stopping, PATROL_S)
            try:
                is_fit = await asyncio.to_thread(self._watch.patrol, lambda spec: spec.identifier in self._unfit)
            except KuvaszError as error:  # the stream itself will tell, if it lasts
                _log.debug("the catalog cannot be looked at", extra={
                    "event": "patrol_failed", "source": self.source.name, "error": str(error)})  # fmt: skip
            else:
                if is_fit:
                    self._restart_soon()

    async def _await_inserts(self, reader: Reader, start: _Start) -> None:
        """Begin again when the stream may name the publication of INSERTs alone, and tables wait for that."""
        while start.is_waiting:
            await _either(self._stopping, _LOOK_S)
            from_lsn = await asyncio.to_thread(self._inserts_since)
            if from_lsn is not None and reader.confirmed_lsn >= from_lsn and not self._is_copying():
                reader.stop()
                return

    def _inserts_since(self) -> int | None:
        try:
            with contextlib.closing(conninfo.connect(self._url)) as connection:
                return inserts.since(connection, inserts.object_name(self._slot))
        except SourceError:
            return None  # the reader finds out that the source is gone

    async def _copy_beside(
        self, reader: Reader, new: Sequence[tuple[SourceTableSpec, SourceTable]], system_id: str
    ) -> None:
        """Copy tables that are new to a running stream, each with a snapshot of its own."""
        for spec, table in new:
            wait = _FIRST_BACKOFF_S
            while self._position(spec) is None and self._state(spec) is not State.ERROR:
                try:
                    taken = await asyncio.to_thread(self._temporary_snapshot, spec)
                    with taken:
                        await self._copy(spec, table, taken, system_id)
                except SourceError as error:
                    _log.warning("a copy failed and is tried again", extra={
                        "event": "copy_retry", "source": self.source.name, "table": str(spec.table),
                        "error": str(error)})  # fmt: skip
                    await asyncio.sleep(wait)
                    wait = min(2 * wait, _LAST_BACKOFF_S)
            if self._position(spec) is not None:
                await self.rejoin(spec.identifier, reader)

    async def _watch_partitions(self, tables: Sequence[tuple[SourceTableSpec, SourceTable]]) -> None:
        """Look now and then which partitions came and went: the stream does not tell."""
        roots = [(spec, table) for spec, table in tables if table.kind is TableKind.PARTITIONED]
        while roots:
            await asyncio.sleep(_PARTITIONS_S)
            try:
                await asyncio.to_thread(self._look_at_partitions, roots)
            except KuvaszError as error:
                _log.debug("the partitions could not be looked at", extra={
                    "event": "partitions_unseen", "source": self.source.name, "error": str(error)})  # fmt: skip

    async def rejoin(self, target: str, reader: Reader) -> None:
        """Let a table follow the stream again from its position on: the reader goes back to the confirmed LSN."""
        around = self._around
        around.progress.hold(self.source.name, target)
        epoch = reader.epoch + 1
        around.states.activate(target, self.source.name, epoch)
        reader.rewind()
        while reader.epoch < epoch and reader is self.reader and not self._stopping.is_set():
            await _either(self._stopping, 0.05)
        if reader is not self.reader:
            return  # the source begins anew: it looks at all of its tables
        if around.states.is_streaming(target, self.source.name):  # else someone has stopped it meanwhile
            around.progress.release(self.source.name, target)

    async def retry(self, target: str) -> None:
        """Try a table again that is in error."""
        if self._around.lake.positions(target).get(self.source.name) is None:
            # It was never copied, so the cause is in the source's catalog.
            await self._begin_anew()
            return
        self._approved.add(target)
        await asyncio.to_thread(self._around.lake.resume, target)
        while self._is_starting and not self._stopping.is_set():
            await _either(self._stopping, 0.05)
        if self.reader is not None:
            await self.rejoin(target, self.reader)
        else:
            self._again.set()

    async def _begin_anew(self) -> None:
        """Look at the catalog anew, publish and copy what is due; no copy that runs is torn."""
        while self._is_copying() and not self._stopping.is_set():
            await _either(self._stopping, 0.2)
        self._again.set()
        if self.reader is not None:
            self.reader.stop()

    def _on_trouble(self, spec: SourceTableSpec, error: TableError) -> None:
        """Take a table out of the stream because of what happened to it at the source; from any thread."""
        # Hold first: what comes from now on is not applied, and must come again.
        self._around.progress.hold(self.source.name, spec.identifier)
        if isinstance(error, CopyNeeded):
            self._stale.add(spec.identifier)
            self._around.states.set(spec.identifier, self.source.name, State.NEW)
            _log.info("a table is copied again", extra={
                "event": "copied_again", "source": self.source.name, "table": spec.identifier,
                "reason": error.message})  # fmt: skip
        else:
            self._fail(spec, error)
        if not isinstance(error, SchemaHeld) and self._loop is not None:
            self._loop.call_soon_threadsafe(self._restart_soon)

    def _restart_soon(self) -> None:
        if self._restart is None or self._restart.done():
            self._restart = asyncio.ensure_future(self._begin_anew())

    def _is_copying(self) -> bool:
        mine = [state for state in self._around.states.snapshot() if state.source == self.source.name]
        return any(state.state is State.COPYING for state in mine)

    # In threads

    def _start(self) -> _Start:
        with (
            contextlib.closing(conninfo.connect(self._url)) as connection,
            failure.translated(f"source {self.source.name}", "look at the database"),
        ):
            facts = introspect.server(connection)
            if facts.wal_level != "logical":
                raise SourceRefused(
                    f"source {self.source.name}: wal_level is {facts.wal_level}, needed is logical",
                    hint="ALTER SYSTEM SET wal_level = logical; then restart the server",
                )
            if self.target_lsn is None:
                (row,) = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()
                self.target_lsn = lsn.parse(row[0])
            seen_at = wal_end(connection)
            found = introspect.load_relations(connection, [spec.table for spec in self.source.tables])
            usable = [
                (spec, table) for spec in self.source.tables if (table := self._usable(spec, found)) is not None
            ]
            prepared = [(spec, table) for spec, table in usable if self._prepare(spec, table, seen_at)]
            self._watch.begin(prepared, seen_at)
            held = [spec for spec, _ in usable if self._state(spec) is State.PAUSED]
            if not prepared and not held:
                if publication.load(connection, self._slot) is not None:
                    # A table without key must not stay published: the application's own UPDATE would fail.
                    full = [_narrowed(spec, table) for spec, table in usable if not keyless.has_only_inserts(table)]
                    self._publish(connection, self._slot, full, [])
                told = [str(state.error) for state in self._around.states.snapshot()
                        if state.source == self.source.name and state.error is not None]  # fmt: skip
                raise SourceRefused(f"source {self.source.name}: none of its tables can be replicated: {told[0]}")
            system_id = str(facts.system_identifier)
            self._check_partitions(connection, prepared)
            has_slot = self._check_slot(connection, [*(spec for spec, _ in prepared), *held], system_id)
            specs = [spec for spec, _ in prepared]
            # A column list made by hand may leave out what the map does.
            full = [_narrowed(spec, table) for spec, table in usable if not keyless.has_only_inserts(table)]
            partial = [_narrowed(spec, table) for spec, table in usable if keyless.has_only_inserts(table)]
            self._publish(connection, self._slot, full, specs)
            name = inserts.object_name(self._slot)
            if partial or publication.load(connection, name) is not None:
                self._publish(connection, name, partial, specs, inserts.OPERATIONS)
            # After the publications: they must be there at the slot's first LSN.
            taken = None if has_slot else self._new_slot(self._slot, temporary=False)
            is_named = bool(partial) and self._may_name(connection, name, taken)
            streamed = [(spec, table) for spec, table in prepared if is_named or not keyless.has_only_inserts(table)]
            return _Start(
                tables=tuple(streamed), snapshot=taken, system_id=system_id,
                publications=(self._slot, *([name] if is_named else [])), is_waiting=bool(partial) and not is_named,
            )  # fmt: skip

    def _may_name(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        name: str,
        taken: slots.ExportedSnapshot | None,
    ) -> bool:
        """Whether the stream may name the publication of INSERTs alone from where it goes on."""
        if taken is not None:
            inserts.mark(connection, name, taken.consistent_point)
            return True
        from_lsn = inserts.since(connection, name)
        state = slots.describe(connection, self._slot)
        confirmed = None if state is None else state.confirmed_flush_lsn
        return from_lsn is not None and confirmed is not None and confirmed >= from_lsn

    def _publish(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        name: str,
        tables: Sequence[SourceTable],
        specs: Sequence[SourceTableSpec],
        operations: Sequence[str] = publication.ALL_OPERATIONS,
    ) -> None:
        """Make a publication fit; tables that were copied once and are not in it now missed changes."""
        planned = publication.plan(publication.load(connection, name), name, tables, operations)
        for spec in specs:
            if spec.table in planned.added and self._position(spec) is not None:
                _log.warning("a table was not published for a while and is copied again", extra={
                    "event": "copied_again", "source": self.source.name, "table": spec.identifier})  # fmt: skip
                # Before it is published again: after a crash nothing else would tell of the gap.
                self._around.lake.forget(spec.identifier, self.source.name)
        done = publication.reconcile(connection, name, tables, operations)
        if done.statements or done.tidying:
            _log.info("publication changed", extra={"event": "publication", "source": self.source.name,
                      "statements": [*done.statements, *done.tidying]})  # fmt: skip

    def _usable(self, spec: SourceTableSpec, found: Mapping[TableName, SourceTable]) -> SourceTable | None:
        try:
            table = self._checked(spec, found.get(spec.table))
        except TableError as error:
            self._unfit.add(spec.identifier)
            self._fail(spec, error)
            return None
        self._unfit.discard(spec.identifier)
        return table

    def _checked(self, spec: SourceTableSpec, table: SourceTable | None) -> SourceTable:
        """Return a table with its key.

        Raises:
            SchemaError: It cannot be replicated.
        """
        place = f"source {self.source.name}, table {spec.table}"
        if table is None:
            raise SchemaError(f"{place}: there is no such table", hint="create it, or take it out of the map")
        if table.why_unsupported:
            message = f"{place} cannot be replicated: {table.why_unsupported}"
            raise SchemaError(message, hint="take it out of the map")
        keyed = table
        if not table.relation.key:
            if why := keyless.why_not(table, spec.config):
                raise SchemaError(f"{place}: {why}", hint=table.mend or None)
            keyed = keyless.with_key(table, spec.config)
        if why := why_not_taken(spec, keyed.relation):
            raise SchemaError(f"{place}: {why}", hint="mend the entry in the map")
        return keyed

    def _target_of(self, spec: SourceTableSpec) -> Target:
        target = target_of(spec, self._around.mask_secret)
        is_approved = spec.identifier in self._approved and target.on_schema_change == "hold"
        return dataclasses.replace(target, on_schema_change="evolve") if is_approved else target

    def _prepare(self, spec: SourceTableSpec, table: SourceTable, at: int) -> bool:
        lake = self._around.lake
        try:
            done = lake.prepare(self._target_of(spec), feed_of(self.source, spec), table.relation)
            tell(self.source, spec, done, at)
            if spec.identifier in self._stale and self._position(spec) is not None:
                lake.forget(spec.identifier, self.source.name)
        except TableError as error:
            if isinstance(error, ExpressionRefused) and not self.has_started:
                raise MapMismatch(
                    error.message, hint=error.hint, database=self.source.database, table=str(spec.table),
                    option=error.option,
                ) from error  # fmt: skip
            self._unprepared.add(spec.identifier)
            self._fail(spec, error)
            return False
        self._unprepared.discard(spec.identifier)
        self._stale.discard(spec.identifier)
        self._approved.discard(spec.identifier)
        if self._state(spec) in {State.ERROR, State.PAUSED}:
            if spec.identifier not in self._refused:
                # The lake ignores what is written behind a failure: it must know that the table begins again.
                self._around.lake.resume(spec.identifier)
            self._around.states.set(spec.identifier, self.source.name, State.NEW)
        self._refused.discard(spec.identifier)
        return True

    def _look_at_partitions(self, roots: Sequence[tuple[SourceTableSpec, SourceTable]]) -> None:
        with contextlib.closing(conninfo.connect(self._url)) as connection:
            self._check_partitions(connection, roots)

    def _check_partitions(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        tables: Sequence[tuple[SourceTableSpec, SourceTable]],
    ) -> None:
        """Stop tables that were given partitions with rows in them: those rows are in no stream."""
        states = {State.COPYING, State.ERROR, State.PAUSED}
        roots = {
            table.relation.oid: spec
            for spec, table in tables
            if table.kind is TableKind.PARTITIONED
            and self._position(spec) is not None
            and self._state(spec) not in states
        }
        for oid, found in partitions.load(connection, roots).items() if roots else ():
            spec = roots[oid]
            known = self._around.lake.parts(spec.identifier, self.source.name)
            now = frozenset(partition.links for partition in found)
            fresh = [partition for partition in found if known is not None and partition.links not in known]
            filled = {part: self._is_filled(connection, spec, part) for part in fresh}
            if any(filled.values()):
                self._stop_for(spec, [str(part.table) for part, is_filled in filled.items() if is_filled])
                continue
            now -= {part.links for part, is_filled in filled.items() if is_filled is None}
            if known is not None and known - now:
                _log.warning("a partition left its table; its rows stay in the lake", extra={
                    "event": "partition_left", "source": self.source.name, "table": str(spec.table),
                    "target": spec.identifier, "partitions": len(known - now)})  # fmt: skip
            if known != now:
                self._around.lake.remember_parts(spec.identifier, self.source.name, now)

    def _is_filled(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        spec: SourceTableSpec,
        partition: partitions.Partition,
    ) -> bool | None:
        """Say whether a new partition was attached with rows in it; None: it cannot be read, and is asked again."""
        try:
            return partitions.has_earlier_rows(connection, partition)
        except SourceRefused as error:
            if partition.links not in self._unread:
                self._unread.add(partition.links)
                _log.warning("a new partition cannot be read; nobody knows whether it was attached with rows", extra={
                    "event": "partition_unread", "source": self.source.name, "table": str(spec.table),
                    "partition": str(partition.table), "error": str(error)})  # fmt: skip
            return None

    def _stop_for(self, spec: SourceTableSpec, names: Sequence[str]) -> None:
        message = (
            f"source {self.source.name}, table {spec.table}: partition {', '.join(names)} was attached with rows in"
            " it, which the stream does not carry"
        )
        error = TableError(message, hint=f"copy the table again: kuvasz resync --table {spec.identifier}")
        # Hold first: what is dropped from now on must come again.
        self._around.progress.hold(self.source.name, spec.identifier)
        self._around.states.set(spec.identifier, self.source.name, State.ERROR, error)
        _log.error("a table stops", extra={
            "event": "table_failed", "source": self.source.name, "table": spec.identifier,
            "error": str(error)})  # fmt: skip

    def _check_slot(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        specs: Sequence[SourceTableSpec],
        system_id: str,
    ) -> bool:
        """Return whether there is a slot that the lake's positions can go on from; False: nothing was copied yet.

        Raises:
            SlotLost: There is none, and something was copied.
            SourceError: It is in use.
        """
        known = [(spec, position) for spec in specs if (position := self._position(spec)) is not None]
        for spec, position in known:
            if position.system_id and position.system_id != system_id:
                raise SlotLost(
                    f"source {self.source.name}: cluster {system_id} answers, but table {spec.identifier} holds rows"
                    f" of cluster {position.system_id}",
                    hint="check the url; if the cluster was replaced, copy the source again (kuvasz resync)",
                )
        state = slots.describe(connection, self._slot)
        if state is None:
            if known:
                last = max(position.lsn for _, position in known)
                raise SlotLost(
                    f"source {self.source.name}: slot {self._slot} is gone, and with it the changes"
                    f" after {lsn.render(last)}",
                    hint="copy the source again (kuvasz resync), or set `on_slot_lost: resync`",
                )
            return False
        if state.why_foreign or state.why_lost:
            raise SlotLost(
                f"source {self.source.name}: slot {self._slot} cannot be used: {state.why_foreign or state.why_lost}",
                hint=f"drop it (SELECT pg_drop_replication_slot('{self._slot}')) and copy the source again",
            )
        if state.active_pid is not None:
            user = slots.user(connection, state.active_pid)
            raise SourceError(
                f"source {self.source.name}: slot {self._slot} is in use by {user}",
                hint="stop that process, if it is another kuvasz with the same map; this one waits for the slot",
            )
        return True

    def _temporary_snapshot(self, spec: SourceTableSpec) -> slots.ExportedSnapshot:
        name = f"{self._slot[:50]}_copy_{random.getrandbits(24):06x}"
        _log.info("snapshot for a new table", extra={"event": "snapshot", "source": self.source.name,
                                                     "table": str(spec.table)})  # fmt: skip
        return self._new_slot(name, temporary=True)

    def _new_slot(self, name: str, *, temporary: bool) -> slots.ExportedSnapshot:
        def waiting(blockers: tuple[slots.Blocker, ...]) -> None:
            _log.warning("the slot waits for transactions to end", extra={
                "event": "slot_waits", "source": self.source.name,
                "blockers": [blocker.describe() for blocker in blockers]})  # fmt: skip
            if self._stopping.is_set():
                raise SourceError("stopped while the slot was being created")

        taken = slots.create(conninfo.replication_conninfo(self._url), name, temporary=temporary, on_waiting=waiting)
        failpoints.hit("slot_created", SourceError)
        return taken

    def _types(self, oids: list[int]) -> dict[int, PgType]:
        with contextlib.closing(conninfo.connect(self._url)) as connection:
            return introspect.load_types(connection, oids)

    async def _copy(
        self, spec: SourceTableSpec, table: SourceTable, taken: slots.ExportedSnapshot, system_id: str
    ) -> None:
        async with self._around.copies:
            if self._stopping.is_set():
                raise SourceError(f"source {self.source.name}: stopped while copying")
            self._around.states.set(spec.identifier, self.source.name, State.COPYING)
            try:
                await asyncio.to_thread(self._copy_now, spec, table, taken, system_id)
            except (TableError, InternalError) as error:
                self._fail(spec, error)
            except LakeError as error:
                raise SourceError(error.message, hint=error.hint) from error

    def _copy_now(
        self, spec: SourceTableSpec, table: SourceTable, taken: slots.ExportedSnapshot, system_id: str
    ) -> None:
        plain = taken.pinned(conninfo.conninfo(self._url))
        with snapshot.session(plain, taken.snapshot_name) as connection:
            failpoints.hit("snapshot_taken", SourceError)
            seen = introspect.load_relation(connection, spec.table)
            parts = self._partitions_of(connection, seen)
        table = _narrowed(spec, self._changed_since(spec, table, self._checked(spec, seen), taken.consistent_point))
        if table.kind is TableKind.PARTITIONED:
            # The partitions that the snapshot knows, not those of an earlier look.
            self._around.lake.remember_parts(spec.identifier, self.source.name, parts)
        ranges = copy_ranges(table, conninfo=plain, snapshot_name=taken.snapshot_name, target_bytes=_RANGE_BYTES)
        begin = time.monotonic()
        total = len(ranges)
        note = self._around.states.note
        note(spec.identifier, self.source.name, copy_total=total, copy_done=0)

        def progress(done: int, rows: int) -> None:
            note(spec.identifier, self.source.name, copy_done=done, copied_rows=rows)
            self._around.on_copy(self.source.name, spec.identifier, done, total, rows)
            if self._stopping.is_set():
                raise SourceError(f"source {self.source.name}: stopped while copying")

        receipt = self._around.lake.copy(
            feed_of(self.source, spec),
            table.relation,
            ranges,
            Position(lsn=taken.consistent_point, system_id=system_id),
            progress,
        )
        _log.info("table copied", extra={
            "event": "copied", "source": self.source.name, "table": spec.identifier, "rows": receipt.rows,
            "seconds": round(time.monotonic() - begin, 3), "lsn": lsn.render(taken.consistent_point)})  # fmt: skip

    def _partitions_of(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        table: SourceTable | None,
    ) -> frozenset[str]:
        if table is None or table.kind is not TableKind.PARTITIONED:
            return frozenset()
        oid = table.relation.oid
        return frozenset(partition.links for partition in partitions.load(connection, [oid])[oid])

    def _changed_since(self, spec: SourceTableSpec, before: SourceTable, now: SourceTable, at: int) -> SourceTable:
        """Return the table as the snapshot of its copy has it, after the lake followed what changed meanwhile."""
        if now.relation != before.relation:
            done = self._around.lake.prepare(self._target_of(spec), feed_of(self.source, spec), now.relation)
            tell(self.source, spec, done, at)
        self._watch.begin([(spec, now)], at)
        return now

    def _position(self, spec: SourceTableSpec) -> Position | None:
        return self._around.lake.positions(spec.identifier).get(self.source.name)

    def _state(self, spec: SourceTableSpec) -> State:
        return next(
            state.state
            for state in self._around.states.snapshot()
            if state.source == self.source.name and state.target == spec.identifier
        )

    def _fail(self, spec: SourceTableSpec, error: KuvaszError) -> None:
        self._refused.add(spec.identifier)
        state = State.PAUSED if isinstance(error, SchemaHeld) else State.ERROR
        self._around.states.set(spec.identifier, self.source.name, state, error)
        _log.error("a table stops", extra={
            "event": "table_failed", "source": self.source.name, "table": spec.identifier,
            "error": str(error)})  # fmt: skip


def _narrowed(spec: SourceTableSpec, table: SourceTable) -> SourceTable:
    """Return a table with the columns that the map takes."""
    return dataclasses.replace(table, relation=narrowed(spec, table.relation))


def _ours(caught: KuvaszError | BaseExceptionGroup[BaseException]) -> KuvaszError:
    """Return the one error of ours in a group; raises the group if it holds anything else."""
    error: BaseException = caught
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if not isinstance(error, KuvaszError):
        raise caught
    return error


async def _either(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


__all__ = ["SourceSync", "Surroundings"]
