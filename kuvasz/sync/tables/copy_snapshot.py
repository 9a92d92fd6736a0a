"""A snapshot that tables of one source are copied under, and what it shows of them.

The catalog is asked about many small tables as fast as about one, and under one snapshot it answers the same
whenever it is asked. So whoever asks about a small table has those looked at that come behind it, too, and has the
rows read of those that have few: a session costs the server more than a hundred rows do. What is
altered between that look and the reading is found as it is for any copy: by the reading itself, and behind it
(`kuvasz.source.snapshot`).

From any thread.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from kuvasz import failpoints
from kuvasz.config.model import Initial
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import SourceError
from kuvasz.model import Seen, TableName
from kuvasz.source import conninfo, slots, snapshot
from kuvasz.source.catalog import introspect, partitions, sizes
from kuvasz.source.catalog.look import as_seen
from kuvasz.source.catalog.table import SourceTable, TableKind
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.rules import eligibility
from kuvasz.sync.rules.copy_plan import copy_ranges, is_small
from kuvasz.sync.rules.left_out.copy_condition import copy_condition
from kuvasz.sync.rules.targets import narrowed
from kuvasz.sync.watch.schema_watch import publications_of

#: Tables that are looked at together.
_TOGETHER = 100

#: Of rows of one source that are read ahead.
_AHEAD_BYTES = 64 << 10

#: Seconds after which no more is read ahead: whoever looks has a turn to copy, for which other sources wait.
_AHEAD_S = 5.0

#: Bytes at the source of one range of a copy: some seconds of work, so that progress shows and load spreads.
_RANGE_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CopySight:
    """A table as a snapshot shows it."""

    table: SourceTable  #: with its size
    names: snapshot.Names
    partitions: Sequence[partitions.Partition] = ()
    horizon: int = 0  #: of the look at its partitions
    unsettled: Collection[str] = ()
    types: str = ""  #: of the columns of one that has partitions and is not compared: see `partitions.types`
    ahead: snapshot.RowsAhead | None = None


class CopySnapshot:
    """A snapshot, and sessions in which small tables are read under it; use as a context manager.

    Args:
        context: The context of the source.
        slot: The name of the source's slot.
        taken: The snapshot, which goes with this.
        specs: The tables that are to be copied, one after another.
        sessions: For small tables; none: each range and each check has one of its own.
        is_first: It is that of the slot which the stream begins with.
        reads_ahead: Whether small tables are read when one is looked at.
    """

    def __init__(
        self,
        context: SourceContext,
        slot: str,
        taken: slots.ExportedSnapshot,
        specs: Iterable[SourceTableSpec] = (),
        sessions: snapshot.Sessions | None = None,
        *,
        is_first: bool = False,
        reads_ahead: bool = False,
    ) -> None:
        self.taken = taken
        self.taken_at = time.monotonic()
        self.is_first = is_first
        self.sessions = sessions
        self._context = context
        self._source = context.source
        self._slot = slot
        self._reads_ahead = reads_ahead
        self._coming = collections.OrderedDict((spec.key, spec) for spec in specs if self._is_small(spec))
        self._sights: dict[str, CopySight] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> CopySnapshot:
        return self

    def __exit__(self, *_: object) -> None:
        if self.sessions is not None:
            self.sessions.close()
        self.taken.close()

    def conninfo(self) -> str:
        """Return where sessions under the snapshot are opened, as it is now.

        Raises:
            SourceError: A file that holds a part of it cannot be read.
        """
        return self.taken.pinned(conninfo.conninfo(self._context.copy_url()))

    def look(self, spec: SourceTableSpec) -> CopySight:
        """Look at a table.

        Raises:
            TableError: It cannot be replicated as the map wants it.
            SourceLocked: It is locked exclusively for longer than a session waits.
            SourceError: The server or the snapshot is gone.
        """
        with self._lock:
            if spec.key in self._coming:
                self._look_ahead(spec)
            known = self._sights.pop(spec.key, None)
        failpoints.hit("snapshot_taken", SourceError)
        if known is not None:
            return known
        with self._session() as connection:
            return self._look(connection, spec)

    def _is_small(self, spec: SourceTableSpec) -> bool:
        table = self._context.source_tables.tables.get(spec.key)
        return table is not None and _is_plain(table) and is_small(table)

    def check(self, names: snapshot.Names) -> None:
        """Make sure that what was read up to now was read of what the snapshot shows; see `snapshot.Names.check`."""
        if self.sessions is None:
            names.check(self.conninfo())
            return
        with self.sessions.other(self.conninfo) as connection:
            names.check_in(connection)
        self.sessions.rest()

    def ranges(
        self, spec: SourceTableSpec, table: SourceTable, ahead: snapshot.RowsAhead | None = None
    ) -> list[snapshot.CopyRange]:
        """Return what is to be read of a table.

        Args:
            spec: What the map says of the table.
            table: As the snapshot shows it, with the columns that the map takes.
            ahead: What was read of it; of no use for other columns or another condition than are wanted now.
        """
        found = copy_ranges(
            table, conninfo=self.conninfo(), url=self._context.copy_url, snapshot_name=self.taken.snapshot_name,
            target_bytes=_RANGE_BYTES, where=copy_condition(spec, table.relation),
            sessions=self.sessions if is_small(table) else None,
        )  # fmt: skip
        return [one.with_rows(ahead) for one in found] if len(found) == 1 else found

    def _session(self) -> contextlib.AbstractContextManager[Any]:
        return snapshot.session(self.conninfo(), self.taken.snapshot_name)

    def _look(self, connection: Any, spec: SourceTableSpec) -> CopySight:  # noqa: ANN401 (psycopg's)
        found = self._load(connection, [spec]).get(spec.table)
        is_root = found is not None and found.kind is TableKind.PARTITIONED
        horizon = partitions.horizon(connection) if is_root else 0
        parts = partitions.load(connection, [found.relation.oid])[found.relation.oid] if found and is_root else ()
        unsettled = partitions.unsettled(connection, self._slot, parts) if parts else ()
        is_typed = is_root and not spec.config.type.is_comparable  # others are compared whatever their types were
        types = partitions.types(connection, [found.relation.oid]) if found and is_typed else {}
        now = eligibility.checked(self._source.name, spec, found)
        names = snapshot.Names.of(connection, now)
        now = sizes.sized(connection, now)  # last: it waits for whoever has locked the table
        return CopySight(
            table=now, names=names, partitions=parts, horizon=horizon, unsettled=unsettled,
            types=types.get(now.relation.oid, ""),
        )  # fmt: skip

    def _look_ahead(self, spec: SourceTableSpec) -> None:
        """Look at a small table and at those that come next; what is not found so is looked at by itself."""
        first = self._coming.pop(spec.key)
        batch = [first, *itertools.islice(self._coming.values(), _TOGETHER - 1)]
        for each in batch[1:]:
            del self._coming[each.key]
        with self._looking() as connection:
            found = self._load(connection, batch)
            tables = [table for each in batch if (table := found.get(each.table)) is not None and _is_plain(table)]
            names = snapshot.Names.of_all(connection, tables)
            sized = {table.table: table for table in sizes.sized_unless_locked(connection, tables)}
        for each in batch:
            table = sized.get(each.table)
            if table is not None and table.bytes is not None and eligibility.why_unfit(each, table) is None:
                checked = eligibility.checked(self._source.name, each, table)
                self._sights[each.key] = CopySight(table=checked, names=names[table.relation.oid])
        limits = self._context.shared.copy_limits(self._context.servers)
        if self._reads_ahead and limits.rows_per_second is None and limits.sessions is None:
            self._read_ahead(batch)

    @contextlib.contextmanager
    def _looking(self) -> Iterator[Any]:
        """Give a session under the snapshot, one of those for small tables if there are such."""
        if self.sessions is None:
            with self._session() as connection:
                yield connection
            return
        with self.sessions.other(self.conninfo) as connection, snapshot.under(connection, self.taken.snapshot_name):
            yield connection

    def _read_ahead(self, specs: Sequence[SourceTableSpec]) -> None:
        """Read those that have few rows; what cannot be read so is read when it is wanted, and says why it cannot."""
        assert self.sessions is not None
        left, read, end = _AHEAD_BYTES, dict[str, snapshot.RowsAhead](), time.monotonic() + _AHEAD_S
        with contextlib.suppress(SourceError):
            for spec in specs:
                if time.monotonic() > end:
                    break
                sight = self._sights.get(spec.key)
                if sight is None or not is_small(sight.table) or not _is_read_plainly(spec):
                    continue
                table = dataclasses.replace(sight.table, relation=narrowed(spec, sight.table.relation))
                wanted = self.ranges(spec, table)
                rows = wanted[0].hurried().rows_ahead(left) if len(wanted) == 1 else None
                if rows is not None:
                    read[spec.key], left = rows, left - rows.size
            with self.sessions.other(self.conninfo) as connection:
                unchanged = snapshot.Names.unchanged(connection, [self._sights[key].names for key in read])
            for key, rows in read.items():
                if self._sights[key].names.oid in unchanged:
                    self._sights[key] = dataclasses.replace(self._sights[key], ahead=rows)
        self.sessions.rest()

    def _load(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        specs: Sequence[SourceTableSpec],
    ) -> dict[TableName, SourceTable]:
        found = introspect.load_relations(connection, [spec.table for spec in specs], publications_of(self._source))
        at = self.taken.consistent_point
        return {name: as_seen(table, Seen(lsn=at, until=at)) for name, table in found.items()}


def _is_plain(table: SourceTable) -> bool:
    """Whether a table holds its rows itself, whatever other tables there are."""
    return table.kind in {TableKind.TABLE, TableKind.LEAF}


def _is_read_plainly(spec: SourceTableSpec) -> bool:
    """Whether a table's rows are wanted in this process, and now: expressions are Spark's to apply."""
    return spec.config.initial is Initial.COPY and spec.config.filter is None and spec.config.set is None


__all__ = ["CopySight", "CopySnapshot"]
