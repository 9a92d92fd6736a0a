"""Copies tables of one source, each under a snapshot; of a table that missed something, only what differs.

Methods are called on the loop, and what takes long runs in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Sequence

from kuvasz import lsn
from kuvasz.backoff import FIRST_S, Backoff
from kuvasz.config.model import Initial
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import (
    InternalError,
    KuvaszError,
    LakeError,
    OtherRule,
    SourceError,
    SourceLocked,
    StateError,
    TableError,
    place_of,
)
from kuvasz.events import Event, EventLog
from kuvasz.model import SourcePosition
from kuvasz.own_thread import in_thread
from kuvasz.source import slots, snapshot
from kuvasz.source.catalog.table import SourceTable, TableKind
from kuvasz.state.tables import State
from kuvasz.sync.context.approvals import Approvals
from kuvasz.sync.context.lifetime import ended
from kuvasz.sync.context.slot import Slot
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.context.source_threads import Turn
from kuvasz.sync.rules import lost
from kuvasz.sync.rules.containment import unforeseen
from kuvasz.sync.rules.copy_plan import is_small
from kuvasz.sync.rules.targets import feed_of, narrowed
from kuvasz.sync.tables import earlier_start
from kuvasz.sync.tables.approach import Approach
from kuvasz.sync.tables.copy_hours import CopyHours
from kuvasz.sync.tables.copy_ledgers import CopyFacts, CopyLedgers
from kuvasz.sync.tables.copy_server import CopyServer
from kuvasz.sync.tables.copy_snapshot import CopySight, CopySnapshot
from kuvasz.sync.tables.replaced_rows import ReplacedRows
from kuvasz.sync.watch.last_looks import LastLooks
from kuvasz.sync.watch.partition_notes import PartitionNotes
from kuvasz.sync.watch.schema_watch import tell
from kuvasz.worker.outcomes import tell_rejected

_log = EventLog(__name__)

#: Sessions in which small tables of one source are read at a time at its first start.
_SESSIONS = 8

#: (parts done, rows)
OnProgress = Callable[[int, int], None]


class Copies:
    """One source's copies.

    Large because what a copy needs to know comes from as many places, and each step of it asks several of them.

    Args:
        context: The context of the source.
        slot: Makes snapshots for single tables.
        looks: Told what a snapshot has.
        approvals: What a person has agreed to.
        notes: What the lake remembers of partitions.
        approach: Brings tables to where a snapshot is.
        look: Looks at a table anew; in threads.
        published: Returns by which catalog rows a table was published at its last look.
    """

    def __init__(
        self,
        context: SourceContext,
        slot: Slot,
        looks: LastLooks,
        approvals: Approvals,
        notes: PartitionNotes,
        approach: Approach,
        *,
        look: Callable[[SourceTableSpec], bool],
        published: Callable[[SourceTableSpec], str],
    ) -> None:
        self.hours = CopyHours(context)
        self.server = CopyServer(context)
        self._ledgers = CopyLedgers(context, slot)
        self._replaced = ReplacedRows(context)
        self._source = context.source
        self._context = context
        self._lake = context.shared.lake
        self._source_tables = context.source_tables
        self._slot = slot
        self._looks = looks
        self._approvals = approvals
        self._notes = notes
        self._approach = approach
        self._look = look
        self._published = published

    def under(self, taken: slots.ExportedSnapshot, specs: Sequence[SourceTableSpec]) -> CopySnapshot:
        """Return the snapshot of the slot that the stream begins with, for tables that are copied with it."""
        # A source has few tables, and of a thousand sources each would keep its sessions while it waits for others.
        is_kept = any(spec.tenant for spec in specs)
        sessions = snapshot.Sessions(_SESSIONS if is_kept else 1, is_kept=is_kept)
        now = [spec for spec in specs if not self.hours.is_beside(spec)]
        return CopySnapshot(
            self._context, self._slot.name, taken, now, sessions, is_first=True, reads_ahead=not is_kept
        )  # fmt: skip

    async def first(self, spec: SourceTableSpec, taken: CopySnapshot, system_id: str) -> None:
        """Copy a table with the snapshot of the slot that the stream begins with.

        Raises:
            SourceError: It has to be tried again; what is wrong with the table itself puts it into error.
        """
        # As it was before the slot was created: nobody looks at a table again until the stream begins.
        published = self._published(spec)
        async with Turn(self._permits(spec)) as turn:
            await turn.keep()
            await self._copy(spec, taken, system_id, published, turn)

    async def beside(self, spec: SourceTableSpec, system_id: str) -> bool:
        """Copy a table beside the running stream, with a snapshot of its own.

        Not if it has its rows, is paused or in error; connections that fail are tried again.

        Returns:
            Whether it is to be tried again when others have had their turn: somebody has locked it, or its hours
            are over.
        """
        source_tables = self._source_tables
        backoff = Backoff(FIRST_S)
        while self._is_due(spec):
            # What is read of it later may be of a publication that it was taken out of and put into again since.
            published = self._published(spec)
            try:
                if await self._context.ask(self._has_landed, spec):
                    break
                # A snapshot waits for every transaction that writes at its server: others copy meanwhile.
                async with Turn(self._permits(spec)) as turn:
                    source_tables.hold(spec)
                    with CopySnapshot(self._context, self._slot.name, await self._snapshot(spec, turn)) as taken:
                        if self._is_due(spec) and self._published(spec) == published:
                            await self._copy(spec, taken, system_id, published, turn)
            except SourceError as error:
                _log.tell(Event.COPY_RETRY, source=source_tables.name(spec), table=str(spec.table), error=str(error))
                wait = backoff.next_s()
                source_tables.note(spec, error=error, retry_at=time.monotonic() + wait)
                await asyncio.sleep(wait)
                with contextlib.suppress(SourceError, LakeError):  # its columns may be what changed
                    await self._context.ask(self._look, spec)
                if isinstance(error, SourceLocked) or self.hours.is_over(spec):
                    return True
        if source_tables.position(spec) is None and not await self._context.ask(self._may_have_rows, spec):
            source_tables.release(spec)
        return False

    async def compare(self, spec: SourceTableSpec, system_id: str) -> None:
        """Compare a table that follows, once it has come to where a snapshot is; what fails is not repeated here."""
        published = self._published(spec)
        try:
            await self._context.ask(self._recorded, spec)
            async with Turn(self._permits(spec)) as turn:
                with self._approach.begun(spec) as is_begun:
                    if not is_begun:
                        return
                    with CopySnapshot(self._context, self._slot.name, await self._snapshot(spec, turn)) as taken:
                        at = taken.taken.consistent_point
                        if self._published(spec) == published and await self._approach.up_to(spec, at):
                            await self._copy(spec, taken, system_id, published, turn)
        except SourceError as error:
            name = self._source_tables.name(spec)
            _log.tell(Event.COPY_RETRY, source=name, table=str(spec.table), error=str(error))

    def _permits(self, spec: SourceTableSpec) -> asyncio.Semaphore:
        table, shared = self._source_tables.tables.get(spec.key), self._context.shared
        return shared.small_copies if table is not None and is_small(table) else shared.copies

    def _is_due(self, spec: SourceTableSpec) -> bool:
        """Whether a table lacks its rows, and nothing says that it is not to be copied now."""
        source_tables = self._source_tables
        return source_tables.position(spec) is None and source_tables.state(spec) not in {State.PAUSED, State.ERROR}

    async def _snapshot(self, spec: SourceTableSpec, turn: Turn) -> slots.ExportedSnapshot:
        """Return a snapshot when it is this table's turn to be copied."""
        async with self._context.snapshots:
            made = await self._context.ask(self._slot.snapshot, spec)
            taken = await self._context.ask(self.server.snapshot, made, [spec])
            try:
                await turn.keep()
            except BaseException:
                taken.close()
                raise
            return taken

    async def _copy(
        self, spec: SourceTableSpec, taken: CopySnapshot, system_id: str, published: str, turn: Turn
    ) -> None:
        """Copy a table.

        Args:
            spec: The table.
            taken: What is copied.
            system_id: The system identifier of the source's cluster.
            published: By which catalog rows the table was published before the snapshot was taken.
            turn: Its place among the copies.
        """
        if self._context.lifetime.is_ending:
            raise SourceError(f"{place_of(self._source.name)}: stopped while copying")
        self._source_tables.set(spec, State.COPYING)
        abandoned = threading.Event()
        check = functools.partial(self._check, abandoned, taken.taken)
        copying = asyncio.wrap_future(
            in_thread(functools.partial(self._copy_now, spec, taken, system_id, published, turn, check))
        )
        try:
            await asyncio.shield(copying)
        except asyncio.CancelledError:
            # A thread cannot be cancelled: were it left alone, it might replace rows that are newer by then.
            abandoned.set()
            await ended(copying)
            raise
        except (TableError, InternalError) as error:
            self._context.troubles.fail(spec, error)
        except LakeError as error:
            raise SourceError(error.message, hint=error.hint) from error
        except KuvaszError:
            raise
        except Exception as error:
            if self._context.lifetime.is_ending:  # the lake may have been closed under it
                raise SourceError(f"{place_of(self._source.name)}: stopped while copying") from error
            self._context.troubles.fail(spec, unforeseen(self._source.name, spec, error, is_ending=False))

    async def postpone(self, spec: SourceTableSpec) -> bool:
        """Return whether a table waits for the hours in which it may be copied; its source keeps nothing for it.

        Unless the lake may have it: the stream would have to go on from there.
        """
        is_waiting = (self._is_due(spec) or self._approach.is_due(spec)) and self.hours.is_over(spec)
        self.hours.note(spec, is_waiting=is_waiting)
        is_held = self._context.shared.progress.is_held(self._source_tables.name(spec), spec.identifier)
        if (
            is_waiting
            and is_held
            and not self._ledgers.has(spec)  # what is finished of it goes on from there, too
            and not await self._context.ask(self._may_have_rows, spec)
        ):
            self._source_tables.release(spec)
        return is_waiting

    # In threads

    def _may_have_rows(self, spec: SourceTableSpec) -> bool:
        """Whether the lake may have a copy of a table, from where its stream would have to go on.

        A commit whose answer was lost may have landed, and what was known before does not tell.
        """
        try:
            return self._source_tables.name(spec) in self._lake.stored(spec.identifier)
        except LakeError:
            return True

    def _has_landed(self, spec: SourceTableSpec) -> bool:
        """Whether a copy is there although nobody answered its commit: from then on its position is known.

        Raises:
            SourceError: Nobody can tell now.
        """
        landed = self._recorded(spec)
        try:
            if landed is not None and not self._slot.is_of_now(landed):
                # A repair keeps rows of tables that cannot be compared, and a copy would have no others.
                is_repair = spec.config.type.is_comparable or self._source_tables.look(spec).is_repair
                self._source_tables.resync(spec, is_due=True, is_repair=is_repair)
        except StateError as error:
            raise SourceError(error.message, hint=error.hint) from error
        if landed is not None:
            self._approvals.closed(spec)
        return landed is not None

    def _recorded(self, spec: SourceTableSpec) -> SourcePosition | None:
        """Return how far a table is in the lake, also by a commit that nobody answered.

        Raises:
            SourceError: Nobody can tell now.
        """
        try:
            return self._lake.recorded(spec.identifier).get(self._source_tables.name(spec))
        except LakeError as error:
            raise SourceError(error.message, hint=error.hint) from error

    def _copy_now(
        self,
        spec: SourceTableSpec,
        under: CopySnapshot,
        system_id: str,
        published: str,
        turn: Turn,
        check: Callable[[], None],
    ) -> None:
        taken = under.taken
        if not self._slot.is_of_now(taken):
            raise self._other_server()
        sight, at = under.look(spec), taken.consistent_point
        self._follow(spec, sight.table, at)
        is_near = self._approach.is_under_way(spec) and self._approach.is_due(spec)
        if not is_near:
            self._source_tables.gap_starts.following.discard(spec.key)
            self._note_partitions(spec, sight, at)
        names = sight.names
        table = dataclasses.replace(sight.table, relation=narrowed(spec, sight.table.relation))
        self._replaced.let_go(spec)
        is_skip = _is_skip(self._context, spec, published)
        start = earlier_start.lsn_of(self._context, spec) if is_skip else None
        if start is not None:
            earlier_start.prove(self._context, self._slot.name, spec, table, start)
        begins_at = taken.consistent_point if start is None else start
        ranges = () if is_skip else under.ranges(spec, table, sight.ahead)
        begin = time.monotonic()
        position = SourcePosition(
            lsn=begins_at, system_id=system_id, history=self._slot.history, taken_us=taken.taken_us,
            published=published, started_us=taken.started_us, is_skip=is_skip,
        )  # fmt: skip

        def on_read() -> None:
            if sight.ahead is None or not sight.ahead.is_taken:  # else that was done when it was read
                under.check(names)
            # Not where a slot at the server lives for as long: rows that are read wait for those of others' commits.
            if under.is_first and is_small(table):
                self._context.lifetime.call(turn.give_back)

        if is_near or not self._needs_copy(spec):
            self._ledgers.drop(spec)
            progress = self._begun(spec, ranges, begin, check)
            gap_lsn = self._source_tables.gap_starts.get(spec) if is_near else None
            self._repair(spec, table, ranges, position, progress, on_read, gap_lsn)
            if is_near:  # last: until then, the next look at its partitions would find it as well
                self._note_partitions(spec, sight, at)
                self._source_tables.gap_starts.drop(spec)
            self._take_back(spec, taken, to_repair=True)
            return
        feed = feed_of(self._source, spec)
        facts = CopyFacts(spec=spec, under=under, table=table, names=names, system_id=system_id)
        with self._ledgers.of(facts, ranges) as (ledger, wanted):
            receipt = self._lake.copy(
                feed,
                table.relation,
                wanted,
                position,
                self._begun(spec, wanted, begin, check),
                on_read=on_read,
                pace=self.hours.pace(
                    spec, under.taken_at, turn, check, gets_on=lambda: ledger is not None and ledger.gets_on
                ),
                **({} if ledger is None else {"ledger": ledger}),
            )
        self._take_back(spec, taken, to_repair=False)
        self._approvals.closed(spec)
        self._source_tables.note(spec, copies=1, rejected=sum(receipt.rejected.values()))
        tell_rejected(receipt)
        _log.tell(
            Event.COPY_SKIPPED if is_skip else Event.COPIED,
            source=self._source.name,
            table=spec.identifier,
            rows=receipt.rows,
            seconds=round(time.monotonic() - begin, 3),
            lsn=lsn.render(begins_at),
        )

    def _note_partitions(self, spec: SourceTableSpec, sight: CopySight, at: int) -> None:
        """Have the lake remember the partitions that a snapshot knows, not those of an earlier look."""
        if sight.table.kind is TableKind.PARTITIONED:
            self._notes.copied(
                spec, sight.partitions, sight.horizon, at, unsettled=sight.unsettled, types=sight.types
            )  # fmt: skip

    def _follow(self, spec: SourceTableSpec, now: SourceTable, at: int) -> None:
        """Have the lake follow what the snapshot shows: the last look may have failed before it did."""
        done = self._lake.prepare(self._approvals.target_of(spec), feed_of(self._source, spec), now.relation)
        tell(self._source, spec, done, at)
        self._looks.begin([(spec, now)], at)

    def _take_back(self, spec: SourceTableSpec, taken: slots.ExportedSnapshot, *, to_repair: bool) -> None:
        """Have a table copied again whose source was started anew, or changed over, before its copy was committed.

        The stream had been compared without it, and nothing says whether the new server has what it was read from.
        Should the process end here, the next comparison asks for a proof.

        Raises:
            SourceError: It did: the table is copied again.
        """
        if self._slot.is_of_now(taken):
            return
        try:
            self._source_tables.resync(spec, is_due=True, is_repair=to_repair)
        except StateError as error:
            raise SourceError(error.message, hint=error.hint) from error
        raise self._other_server()

    def _other_server(self) -> SourceError:
        message = f"{place_of(self._source.name)}: its server was started anew, or another took over"
        return SourceError(f"{message}, while a table was copied", hint="it is copied again by itself")

    def _begun(
        self, spec: SourceTableSpec, ranges: Sequence[snapshot.CopyRange], begin: float, check: Callable[[], None]
    ) -> OnProgress:
        """Have it shown that a copy begins; returns what shows how far it is."""
        total = len(ranges)
        self._source_tables.note(spec, copy_total=total, copy_done=0, copy_began=begin)

        def progress(done: int, rows: int) -> None:
            self._source_tables.note(spec, copy_done=done, copied_rows=rows)
            self._context.shared.on_copy(self._source.name, spec.identifier, done, total, rows)
            check()

        return progress

    def _check(self, abandoned: threading.Event, taken: slots.ExportedSnapshot) -> None:
        """Raise if a copy is to end, because nobody waits for it any more, or what it reads is another server's."""
        if self._context.lifetime.is_ending or abandoned.is_set():
            raise SourceError(f"{place_of(self._source.name)}: stopped while copying")
        if not self._slot.is_of_now(taken):
            raise self._other_server()

    def _needs_copy(self, spec: SourceTableSpec) -> bool:
        """Whether a table has no rows yet.

        Raises:
            ChangesLost: A person has to say how it goes on.
        """
        gap = self._lake.notes.gap(spec.identifier, self._source_tables.name(spec))
        if gap is None:
            return True
        lost.cure(self._source.name, spec, gap, is_accepted=self._approvals.is_gap_accepted(spec))
        return False

    def _repair(
        self,
        spec: SourceTableSpec,
        table: SourceTable,
        ranges: Sequence[snapshot.CopyRange],
        position: SourcePosition,
        progress: OnProgress,
        on_read: Callable[[], None],
        gap_lsn: int | None,
    ) -> None:
        feed = feed_of(self._source, spec)
        self._source_tables.note(spec, copy_began=0.0)  # it counts tasks of several kinds, one kind after another

        def tell(phase: str, done: int, total: int) -> None:
            del phase
            self._source_tables.note(spec, copy_total=total)
            progress(done, 0)

        receipt = self._lake.repair(
            feed, table.relation, ranges, position, tell, at_us=position.taken_us, on_read=on_read, gap_lsn=gap_lsn
        )  # fmt: skip
        self._approvals.closed(spec)
        self._source_tables.note(spec, rejected=sum(receipt.rejected.values()))
        tell_rejected(receipt)
        _log.tell(
            Event.REPAIRED,
            source=feed.source,
            table=feed.target,
            keys=receipt.rows,
            snapshot=receipt.snapshot_id,
            lsn=lsn.render(position.lsn),
        )


def _is_skip(context: SourceContext, spec: SourceTableSpec, published: str) -> bool:
    """Whether the rows that a table has are left out: if the map says so, and the lake knows nothing of it yet.

    What has it copied again later on, a person's word or a lost slot, has all of it copied.
    """
    if spec.config.initial is Initial.COPY or context.shared.is_snapshot_only or not published:
        return False
    notes, target, name = context.shared.lake.notes, spec.identifier, context.source_tables.name(spec)
    if _is_known(context, spec) or notes.gap(target, name) is not None:
        return False
    return not any(one.is_beside(spec) and _has_all(context, one) for one in context.source_tables.source.tables)


def _is_known(context: SourceContext, spec: SourceTableSpec) -> bool:
    """Whether a target has taken a table in before."""
    notes, target, name = context.shared.lake.notes, spec.identifier, context.source_tables.name(spec)
    return notes.published(target, name) is not None or notes.skipped(target, name)


def _has_all(context: SourceContext, spec: SourceTableSpec) -> bool:
    """Whether one of a table's routes has, or is to have, all of its rows: without those of a value that is new.

    So a route that is new has to be copied, or the lake would lose what came of its rows since it took the table in.
    """
    if not _is_known(context, spec):
        return False
    source_tables = context.source_tables
    is_copied = not context.shared.lake.notes.skipped(spec.identifier, source_tables.name(spec))
    return (
        is_copied
        or source_tables.position(spec) is None
        or isinstance(source_tables.look(spec).error, OtherRule)  # it waits for a person to have it copied
    )


__all__ = ["Copies"]
