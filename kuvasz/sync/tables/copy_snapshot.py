"""A snapshot that tables of one source are copied under, and what it shows of them.

The catalog is asked about many small tables as fast as about one, and under one snapshot it answers the same
whenever it is asked. So whoever asks about a small table has those looked at that come behind it, too. What is
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
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from kuvasz import failpoints
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import SourceError
from kuvasz.model import Seen, TableName
from kuvasz.source import conninfo, slots, snapshot
from kuvasz.source.catalog import introspect, partitions, sizes
from kuvasz.source.catalog.look import as_seen
from kuvasz.source.catalog.table import SourceTable, TableKind
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.rules import eligibility
from kuvasz.sync.rules.copy_plan import is_small
from kuvasz.sync.watch.schema_watch import publications_of

#: Tables that are looked at together.
_TOGETHER = 100


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CopySight:
    """A table as a snapshot shows it."""

    table: SourceTable  #: with its size
    names: snapshot.Names
    partitions: Sequence[partitions.Partition] = ()
    horizon: int = 0  #: of the look at its partitions
    unsettled: Collection[str] = ()
    types: str = ""  #: of the columns of one that has partitions and is not compared: see `partitions.types`


class CopySnapshot:
    """A snapshot, and sessions in which small tables are read under it; use as a context manager.

    Args:
        context: The context of the source.
        slot: The name of the source's slot.
        taken: The snapshot, which goes with this.
        specs: The tables that are to be copied, one after another.
        sessions: For small tables; none: each range and each check has one of its own.
        is_first: It is that of the slot which the stream begins with.
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
    ) -> None:
        self.taken = taken
        self.taken_at = time.monotonic()
        self.is_first = is_first
        self.sessions = sessions
        self._context = context
        self._source = context.source
        self._slot = slot
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
        with self._session() as connection:
            found = self._load(connection, batch)
            tables = [table for each in batch if (table := found.get(each.table)) is not None and _is_plain(table)]
            names = snapshot.Names.of_all(connection, tables)
            sized = {table.table: table for table in sizes.sized_unless_locked(connection, tables)}
        for each in batch:
            table = sized.get(each.table)
            if table is not None and table.bytes is not None and eligibility.why_unfit(each, table) is None:
                checked = eligibility.checked(self._source.name, each, table)
                self._sights[each.key] = CopySight(table=checked, names=names[table.relation.oid])

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


__all__ = ["CopySight", "CopySnapshot"]
