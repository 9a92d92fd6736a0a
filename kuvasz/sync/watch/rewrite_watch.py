"""Looks now and then whether tables were written anew, perhaps while they had no WAL: no stream has such rows.

Only tables that are published with their schema, or with all tables, can be made unlogged. The file of one that a
publication names is kept as well: it may be named no more at the next look. What a look finds is mended by a
comparison, as every gap is; a TRUNCATE of the stream gives a table another file as well, and is no gap.

Called in threads, never on the event loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import SourceError, SourceLocked
from kuvasz.events import Event, EventLog
from kuvasz.model import Relation
from kuvasz.source.catalog import partitions, relation_files
from kuvasz.source.catalog.look import end_to_send, wal_end
from kuvasz.source.catalog.relation_files import RelationFile
from kuvasz.source.catalog.table import SourceTable
from kuvasz.state.ports import KnownFile
from kuvasz.sync.context.gap_starts import Evidence
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.rules import rewrites

_log = EventLog(__name__)


class RewriteWatch:
    """The watch over rewrites of one source's tables.

    Args:
        context: The context of the source.
    """

    def __init__(self, context: SourceContext) -> None:
        self._source_tables = context.source_tables
        self._troubles = context.troubles
        self._put_off = context.source_tables.put_off[Evidence.FILE]
        self._current = context.current
        self._files = context.shared.state.files(context.source.name)
        self._lock = threading.Lock()
        self._horizons: dict[int, int] = {}  #: by OID: of the last look that found the known file
        self._suspected: dict[int, tuple[int, int]] = {}  #: by OID: another file, and where the WAL ended then
        self._is_given_up = False  #: what the files were truncated by is of a past that is given up
        context.pasts.whenever_given_up(self._give_up)

    def _give_up(self, _: int) -> None:
        self._horizons.clear()
        self._suspected.clear()
        self._is_given_up = True  # what is stored of that is dropped in a thread, before it is asked or added to

    def _known(self) -> Mapping[int, KnownFile]:
        """Return the known files, by OID; under the lock."""
        if self._is_given_up:
            self._is_given_up = False
            self._files.put({oid: rewrites.untold(known) for oid, known in self._files.all().items()})
        return self._files.all()

    def begin(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        tables: Sequence[tuple[SourceTableSpec, SourceTable]],
    ) -> None:
        """Take note of tables that are about to be copied or compared, or were never looked at.

        Raises:
            SourceError: The catalog cannot be read.
        """
        specs: dict[int, list[SourceTableSpec]] = {}  # several, where a table has routes
        for spec, table in tables:
            specs.setdefault(table.relation.oid, []).append(spec)
        found = relation_files.load(connection, specs)
        with self._lock:
            known = self._known()
            fresh = {oid: now for oid, now in found.items() if oid not in known or self._are_to_come(specs[oid])}
            self._files.put({oid: rewrites.known(now) for oid, now in fresh.items()})
            for oid in found:
                for spec in specs[oid]:
                    if oid in fresh or self._is_to_come(spec):
                        self._source_tables.gap_starts.disprove(Evidence.FILE, spec)
                        self._put_off.discard(spec.key)
            for oid in fresh:
                for seen in (self._horizons, self._suspected):
                    seen.pop(oid, None)
            before = {oid: known[oid] for oid in found if oid not in fresh}
            doubtful = {
                oid: found[oid] for oid, file in before.items() if not rewrites.was_always_logged(file, found[oid])
            }
        self._doubt(connection, specs, doubtful)

    def _doubt(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        specs: Mapping[int, Sequence[SourceTableSpec]],
        found: Mapping[int, RelationFile],
    ) -> None:
        """Have the next look say what became of tables with another file: the stream may tell until then."""
        end = wal_end(connection) if found else 0
        for oid, now in found.items():
            if self._suspected.get(oid, (0, 0))[0] != now.file:
                self._suspected[oid] = now.file, end
            for spec in specs[oid]:
                if not self._is_to_come(spec):
                    self._put_off.add(spec.key)

    def _are_to_come(self, specs: Sequence[SourceTableSpec]) -> bool:
        """Whether all of a table is: what other routes have of it comes from the file that is known."""
        if not all(map(self._is_to_come, specs)):
            return False
        # Only where there are routes: a source may have many thousands of tables, each of which is asked about.
        tables = self._source_tables.source.tables if specs[0].route is not None else ()
        return all(self._is_to_come(one) for one in tables if one.is_beside(specs[0]))

    def _is_to_come(self, spec: SourceTableSpec) -> bool:
        return self._source_tables.position(spec) is None or self._source_tables.look(spec).is_resync_due

    def truncated(self, relation: Relation, xid: int) -> None:
        """Take note of a TRUNCATE that the stream brings."""
        with self._lock:
            known = self._known().get(relation.oid)
            if known is not None:
                self._files.put({relation.oid: rewrites.truncated(known, xid)})

    def look(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        end: int,
    ) -> bool:
        """Have tables that stream follow what no stream has.

        Args:
            connection: To the source.
            end: Where its WAL ended a moment ago.

        Returns:
            Whether it is sure that there was nothing of that.

        Raises:
            SourceError: The catalog cannot be read.
        """
        tables: dict[int, list[SourceTableSpec]] = {}  # several, where a table has routes
        for spec, table in self._source_tables.usable():
            if self._source_tables.is_streaming(spec) and not self._is_to_come(spec):
                tables.setdefault(table.relation.oid, []).append(spec)
        found = relation_files.load(connection, tables)
        logged = self._note_logged(found)
        for oid in logged:
            self._horizons[oid] = found[oid].horizon
            for spec in tables[oid]:
                self._source_tables.gap_starts.prove(Evidence.FILE, spec, end)
                self._put_off.discard(spec.key)
        proved = [self._has_all(connection, tables[oid], oid, now) for oid, now in found.items() if oid not in logged]
        return all(proved)

    def _note_logged(self, found: Mapping[int, RelationFile]) -> set[int]:
        """Return the tables that were always logged, by OID, and note all of them at once."""
        with self._lock:
            known = self._known()
            logged = {
                oid: rewrites.looked_at(known[oid], now)
                for oid, now in found.items()
                if oid in known and rewrites.was_always_logged(known[oid], now)
            }
            self._files.put(logged)
        return set(logged)

    def _has_all(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        specs: Sequence[SourceTableSpec],
        oid: int,
        now: RelationFile,
    ) -> bool:
        """Whether a table's rows are known to be the stream's; a table that is locked is left to the next look."""
        try:
            return self._compare(connection, specs, oid, now)
        except SourceLocked:
            return False

    def _compare(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        specs: Sequence[SourceTableSpec],
        oid: int,
        now: RelationFile,
    ) -> bool:
        """Compare a table's file with another known one; returns whether its rows are known to be the stream's."""
        spec = specs[0]
        if oid in self._files.all() and self._may_be_told(connection, oid, now):
            return False
        with self._lock:
            known = self._known().get(oid)  # what the stream has told by now
            is_truncated = known is not None and rewrites.is_explained(spec, known, now)
        if known is None:
            has_all = True
        elif is_truncated:
            has_all = not rewrites.is_doubtful(spec, now) or self._begins_with_an_insert(connection, spec, oid, now)
        else:
            has_all = self._has_rows_from_before(connection, spec, oid, known.horizon)
        if has_all:
            with self._lock:
                self._files.put({oid: rewrites.known(now)})
            for one in specs:
                self._put_off.discard(one.key)
            return True
        for one in specs:
            _log.tell(Event.GAP_FOUND, source=self._source_tables.source.name, table=one.identifier)
            self._troubles.miss_rows(one)  # what it is compared with has this file, which `begin` takes note of
        for one in specs:
            self._troubles.interrupt(one)
            self._put_off.discard(one.key)  # last: until it is out of the stream, a job would end with it as it is
        return False

    def _may_be_told(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        oid: int,
        now: RelationFile,
    ) -> bool:
        """Whether the stream may yet say that a table was truncated; it is looked at again then."""
        file, end = self._suspected.get(oid, (0, 0))
        if file != now.file:
            self._suspected[oid] = now.file, end_to_send(connection)
            return True
        if self._current.heard_lsn < end:
            return True
        self._suspected.pop(oid, None)
        return False

    def _begins_with_an_insert(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        spec: SourceTableSpec,
        oid: int,
        now: RelationFile,
    ) -> bool:
        return _answered(lambda: relation_files.begins_with_an_insert(connection, spec.table, oid, now))

    def _has_rows_from_before(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        spec: SourceTableSpec,
        oid: int,
        horizon: int,
    ) -> bool:
        since = self._horizons.get(oid, horizon)
        return _answered(lambda: partitions.has_rows_from_before(connection, spec.table, since))


def _answered(look: Callable[[], bool]) -> bool:
    """Return what a look into a table's rows proves.

    Raises:
        SourceLocked: Somebody has locked it, so that nobody can say yet.
    """
    try:
        return look()
    except SourceLocked:
        raise
    except SourceError:  # it may not be read, or not within the time of an answer: that proves nothing
        return False


__all__ = ["RewriteWatch"]
