"""What is looked at now and then while one source streams, because its stream does not tell."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import Any

from kuvasz.errors import KuvaszError, SourceTooLarge
from kuvasz.events import Event, EventLog
from kuvasz.source import conninfo
from kuvasz.source.reading.reader import Reader
from kuvasz.sync.beside import Beside, Errand
from kuvasz.sync.context.gap_starts import Evidence
from kuvasz.sync.context.publications import Publications
from kuvasz.sync.context.slot import Slot
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.source_setup import Start
from kuvasz.sync.tables.preparation import Preparation
from kuvasz.sync.tables.source_upgrade import SourceUpgrade
from kuvasz.sync.watch.partition_watch import PartitionWatch
from kuvasz.sync.watch.patrol import Patrol
from kuvasz.sync.watch.standstill import Standstill

_log = EventLog(__name__)

#: Seconds between two looks whether tables that wait may be streamed.
_LOOK_S = 1.0

#: Seconds between two looks at the partitions of partitioned tables.
_PARTITIONS_S = 5.0

#: Times as long until it is looked again whether there are any: a table seldom becomes a partitioned one.
_WHILE_NONE = 4

#: Until the next such look while a table has another file that the stream does not explain: its rows may be wrong.
_SOON_S = 1.0

#: Between two looks at what the stream does not tell: a table that was dropped, or that lost or got its key. Of many
#: sources it is longer, see `SourceThreads.turn_to_look`.
PATROL_S = 30.0

#: Tables of a source that are looked at as often as that: ten thousand take the driver two seconds, and each look at
#: them is five times as far from the next.
_TABLES = 2_000


class Watches:
    """The watches of one source. Methods are called on the loop.

    Args:
        context: The context of the source.
        patrol: Looks at tables.
        partitions: Looks at partitions, and at members of collapses.
        publications: What is published.
        preparation: Knows which tables cannot be replicated.
        slot: Remembers how far all was well.
        upgrade: Remembers the server at rest.
        moving: Held while tables are taken out of the stream or brought back.
    """

    def __init__(
        self,
        context: SourceContext,
        patrol: Patrol,
        partitions: PartitionWatch,
        publications: Publications,
        preparation: Preparation,
        slot: Slot,
        upgrade: SourceUpgrade,
        moving: asyncio.Lock,
    ) -> None:
        self._context = context
        self._patrol = patrol
        self._partitions = partitions
        self._publications = publications
        self._preparation = preparation
        self._slot = slot
        self._upgrade = upgrade
        self._moving = moving
        self._standstill = Standstill(context.current)
        self._is_urgent = False  #: the next look of the patrol is
        self._turn_s = 0.0  #: seconds that the patrol waits for its turn to look; 0: it does not
        self._patrolling: Errand | None = None  #: that has it patrol

    def begin(self, reader: Reader, start: Start, beside: Beside) -> None:
        """Look at all of it, for as long as the reader reads."""
        self.patrol(beside)
        self.partitions(beside)
        if start.is_waiting:
            beside.start("inserts", functools.partial(self.inserts, reader, start))

    def end(self) -> None:
        """Look once more while the stream lasts: the next start knows then that nothing was missing up to here."""
        if self._patrolling is not None and not self._turn_s:
            self._patrolling()

    def patrol(self, beside: Beside) -> None:
        """Look now and then at whatever a copy depends on."""
        self._turn_s = 0.0
        self._patrolling = beside.now_and_then("patrol", self._patrol_once, self._until_patrol_s, self._is_patrol_due)

    def _until_patrol_s(self) -> float | None:
        if self._context.lifetime.is_ending:
            return None
        if self._turn_s:
            return self._turn_s
        self._is_urgent = self._is_file_in_doubt()
        self._upgrade.note_rest()
        share = len(self._context.source_tables.source.tables) / _TABLES
        return (min(PATROL_S, _SOON_S) if self._is_urgent else PATROL_S) * max(1.0, share)

    def _is_patrol_due(self) -> bool:
        return not self._context.lifetime.is_ending

    async def _patrol_once(self) -> None:
        if not await self._has_turn():
            return
        self._standstill.begin()
        try:
            falls = self._context.source_tables.gap_starts.falls
            if await self._context.ask(self._look):
                self._note_look(falls)
            if self._patrol.bare:
                async with self._moving:  # nobody else makes the publications fit meanwhile
                    await self._context.ask(self._withdraw_bare)
        except SourceTooLarge:  # the source waits, rather than go on without them
            raise
        except KuvaszError as error:  # the stream itself will tell, if it lasts
            _log.tell(Event.PATROL_FAILED, source=self._context.source.name, error=str(error))

    async def _has_turn(self) -> bool:
        """Whether to look now, and not when the errand comes round: after a while, or when the turn has come."""
        turn_s, self._turn_s = self._turn_s, 0.0
        if self._is_urgent or turn_s:
            return True
        if self._are_all_streaming() and await self._standstill.lasts():
            return False
        turn_s = self._context.shared.threads.turn_to_look()
        if self._context.lifetime.is_ending:  # it does not come round any more
            await asyncio.sleep(turn_s)
            return True
        self._turn_s = turn_s  # most of a thousand sources wait for it, and a task that does takes 2 kB
        return not turn_s

    def _are_all_streaming(self) -> bool:
        tables = self._context.source_tables
        return not self._preparation.unfit and all(tables.is_streaming(spec) for spec in tables.source.tables)

    def _is_file_in_doubt(self) -> bool:
        """Whether a table follows of whose file a look has doubts that the next one may end."""
        tables = self._context.source_tables
        put_off = tables.put_off[Evidence.FILE]
        return bool(put_off) and any(tables.is_streaming(spec) for spec in tables.known(tuple(put_off)))

    def _look(self) -> bool:
        """Look at everything in one session; returns whether no table was away or missed changes. In a thread."""
        is_whole = not self._publications.are_any_away()
        with contextlib.closing(conninfo.connect(self._context.url())) as connection:
            self._upgrade.look(connection)
            for key in self._patrol.look(connection, lambda spec: spec.key in self._preparation.unfit):
                # At once: what was seen is not told twice, and the next look may fail.
                self._context.requests.send(key)
            self._look_for_tables(connection)
            return self._publications.patrol(connection) and is_whole

    def _look_for_tables(self, connection: Any) -> None:  # noqa: ANN401 (psycopg's, which is `source`'s alone)
        """Look for tables that patterns of the map take in: whoever has the map has it changed by what is found."""
        if self._context.source.patterns and (patterns := self._context.shared.patterns) is not None:
            patterns.look(connection, self._context.source)

    def _withdraw_bare(self) -> None:
        """Publish no UPDATEs of paused tables that would fail: who waits is a person, and not the application."""
        source_tables = self._context.source_tables
        seen = source_tables.known(tuple(self._patrol.bare))  # a member may have gone since
        bare = {spec.key for spec in seen if source_tables.is_paused(spec)}
        with contextlib.closing(conninfo.connect(self._context.url())) as connection, self._publications.turn:
            left = [(spec, table) for spec, table in source_tables.usable() if spec.key not in bare]
            self._publications.fit(connection, left, [])
        for key in bare:
            source_tables.tables.pop(key, None)

    def _note_look(self, falls: int) -> None:
        """Note up to where no table missed changes, whatever is looked at; unless another server answered since."""
        in_partitions = self._partitions.proved_lsn
        at_lsn = self._patrol.proved_lsn if in_partitions is None else min(self._patrol.proved_lsn, in_partitions)
        if at_lsn and falls == self._context.source_tables.gap_starts.falls:
            self._slot.looked(at_lsn)
            self._upgrade.found_whole()
            self._standstill.found(self._patrol.seen_lsn)

    def partitions(self, beside: Beside) -> None:
        """Look now and then which partitions, and which members of collapses, came and went."""
        beside.now_and_then("partitions", self._look_at_partitions, self._until_partitions_s, self._has_partitions)

    def _until_partitions_s(self) -> float:
        return _PARTITIONS_S * (1 if self._partitions.has_any else _WHILE_NONE)

    def _has_partitions(self) -> bool:
        return self._partitions.has_any

    async def _look_at_partitions(self) -> None:
        try:
            await self._context.ask(self._partitions.look)
        except SourceTooLarge:  # the source waits, rather than go on without them
            raise
        except KuvaszError as error:
            _log.tell(Event.PARTITIONS_UNSEEN, source=self._context.source.name, error=str(error))
        if self._partitions.is_stream_stale:
            self._context.current.rewind()

    async def inserts(self, reader: Reader, start: Start) -> None:
        """Begin again when the stream may name the publication of INSERTs alone, and tables wait for that."""
        lifetime, source_tables = self._context.lifetime, self._context.source_tables
        while start.is_waiting and not lifetime.is_ending:
            await lifetime.sleep(_LOOK_S)
            from_lsn = await self._context.ask(self._publications.inserts_since)
            if from_lsn is not None and reader.facts.confirmed_lsn >= from_lsn and not source_tables.is_copying:
                reader.stop()
                return


__all__ = ["PATROL_S", "Watches"]
