"""Looks now and then at what the stream does not tell of tables: whatever a copy depends on, of all tables at once.

Called in threads, never on the event loop.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import LakeError, SchemaError, SourceError, TableError, place_of
from kuvasz.events import Event, EventLog
from kuvasz.model import NOTHING, TableName
from kuvasz.source.catalog import fingerprint
from kuvasz.source.catalog.look import Look, tables, wal_end
from kuvasz.source.catalog.table import SourceTable
from kuvasz.state.tables import State
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.rules import eligibility
from kuvasz.sync.rules.containment import unforeseen
from kuvasz.sync.rules.left_out import column_lists, row_filters
from kuvasz.sync.watch.last_looks import LastLooks
from kuvasz.sync.watch.rewrite_watch import RewriteWatch
from kuvasz.sync.watch.schema_watch import SchemaWatch, publications_of

_log = EventLog(__name__)

#: Tables that are looked at by one set of queries, and the longest rest between two.
_AT_ONCE = 500
_LONGEST_REST_S = 0.5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """What one patrol knows of all tables."""

    found: Mapping[TableName, SourceTable]
    oids: Mapping[str, int]  #: `SourceTableSpec.key` -> OID as last seen
    looks: Mapping[int, Look]  #: before the catalog was read
    connection: Any  #: psycopg's, which is known to `source` alone


class Patrol:
    """One source's patrol.

    Args:
        context: The context of the source.
        looks: What was seen of its tables.
        watch: Has the lake follow.
        rewrites: Looks whether tables were written anew.
    """

    def __init__(
        self, context: SourceContext, looks: LastLooks, watch: SchemaWatch, rewrites: RewriteWatch
    ) -> None:  # fmt: skip
        self._source = context.source
        self._source_tables = context.source_tables
        self._troubles = context.troubles
        self._caveats = context.caveats
        self._lifetime = context.lifetime
        self._looks = looks
        self._watch = watch
        self._rewrites = rewrites
        #: where the WAL ended before the last look, if no table's rows may have missed the stream then; 0: they may
        self.proved_lsn = 0
        #: where the WAL ended before the last look, if that saw whatever had committed by then; 0: perhaps not
        self.seen_lsn = 0
        #: paused tables, by key, whose UPDATEs fail as they are published: what identifies their rows is gone, or is
        #: not in their list of columns
        self.bare: frozenset[str] = NOTHING

    def look(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        unfit: Callable[[SourceTableSpec], bool],
    ) -> list[str]:
        """Look at all tables at once.

        A table that streams follows what changed, as it does before a row. One that is in error is tried again when
        its source changed.

        Args:
            connection: To the source.
            unfit: Whether a table was found unfit to be replicated.

        Returns:
            The tables to be looked at anew, by `SourceTableSpec.key`.

        Raises:
            SourceError: The catalog cannot be read.
            LakeError: The source ends meanwhile.
        """
        self.proved_lsn = self.seen_lsn = 0
        source_tables = self._source_tables.source.tables
        end = wal_end(connection)
        looks = self._looks.all()  # first: what is looked at meanwhile is newer than what is found here
        round_ = _Round(
            found=self._found(connection, [spec.table for spec in source_tables]),
            oids=self._looks.oids(),
            looks=looks,
            connection=connection,
        )
        self.seen_lsn = 0 if _may_lack_commits(round_.found.values()) else end
        self._caveats.tell(round_.found)
        bare = (spec.key for spec in source_tables if self._is_bare(spec, round_.found.get(spec.table)))
        self.bare = frozenset(bare) or NOTHING
        # First: what is found due below is not found again, should this fail.
        self.proved_lsn = end if self._rewrites.look(connection, end) else 0
        return [spec.key for spec in source_tables if self._compare(spec, round_, is_unfit=unfit(spec))]

    def _found(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        names: Sequence[TableName],
    ) -> dict[TableName, SourceTable]:
        """Look at tables, of many some at a time, with rests that leave Python to those that apply rows.

        Raises:
            SourceError: The catalog cannot be read.
        """
        found: dict[TableName, SourceTable] = {}
        for place in range(0, len(names), _AT_ONCE):
            begun = time.monotonic()
            found |= tables(connection, names[place : place + _AT_ONCE], publications_of(self._source))
            if place + _AT_ONCE < len(names) and not self._lifetime.is_ending:
                time.sleep(min(time.monotonic() - begun, _LONGEST_REST_S))
        return found

    def _compare(self, spec: SourceTableSpec, round_: _Round, *, is_unfit: bool) -> bool:
        """Compare one table with its last look; returns whether it is to be looked at anew."""
        is_streaming = self._source_tables.is_streaming(spec)
        table, oid = round_.found.get(spec.table), round_.oids.get(spec.key, 0)
        if spec.member:
            oid = spec.oid
            if table is None or table.relation.oid != oid:
                return False  # who looks for members sees it go
        try:
            if not is_unfit and not is_streaming:
                return self._is_due_again(spec, table, oid, round_)
            if table is None or table.relation.oid != oid:
                spec, seen, _ = self._watch.see(round_.connection, spec, oid, 0)
                table = seen.table
            usable = eligibility.checked(self._source.name, spec, table)
            self._refuse_keyless(spec, table)
            if is_streaming and not is_unfit and self._has_changed(spec, table, round_):
                self._watch.catch_up(spec, usable, round_.looks.get(usable.relation.oid))
        except LakeError as error:  # the next round tries again
            _log.tell(Event.PATROL_FAILED_AT_TABLE, source=self._source.name, table=str(spec.table), error=str(error))
        except TableError as error:
            self._looks.drop(oid)
            if not is_unfit:
                self._troubles.stop(spec, error)
            return False
        except SourceError:
            raise
        except Exception as error:  # noqa: BLE001 (one table's, whatever it is)
            self._troubles.stop(spec, unforeseen(self._source.name, spec, error, is_ending=self._lifetime.is_ending))
            return False
        return is_unfit

    def _is_due_again(self, spec: SourceTableSpec, table: SourceTable | None, oid: int, round_: _Round) -> bool:
        """Say whether a table that does not follow is to be looked at anew, once for each change of it."""
        if table is not None and not table.is_logged:  # it may be logged again when it is taken up
            self._troubles.miss_rows(spec)
        if self._source_tables.state(spec) is not State.ERROR or not self._has_changed(spec, table, round_):
            return False
        self._looks.drop(oid)
        return True

    def _has_changed(self, spec: SourceTableSpec, table: SourceTable | None, round_: _Round) -> bool:
        """Whether a table is not what it was when it was looked at last."""
        seen = None if table is None else round_.looks.get(table.relation.oid)
        if table is None or seen is None or seen.table is None:
            return False
        try:
            return fingerprint.of(eligibility.checked(self._source.name, spec, table)) != fingerprint.of(seen.table)
        except TableError:  # it is in error for what it is
            return False

    def _refuse_keyless(self, spec: SourceTableSpec, table: SourceTable | None) -> None:
        """Refuse a table that may do without a key, but whose UPDATEs fail at the source while they are published.

        As the publications were made to fit it: a copy may have seen the table since, and changes none of them.
        """
        if table is None or not self._has_lost_identity(spec, table):
            return
        message = f"{place_of(self._source.name, spec.table)}: it has lost what identifies its rows"
        raise SchemaError(f"{message}: {table.why_no_key}", hint=table.mend or None)

    def _is_bare(self, spec: SourceTableSpec, table: SourceTable | None) -> bool:
        is_paused = self._source_tables.state(spec) is State.PAUSED
        if not is_paused or table is None:
            return False
        is_broken = column_lists.breaks_updates(spec, table) or row_filters.breaks_updates(table)
        return self._has_lost_identity(spec, table) or is_broken

    def _has_lost_identity(self, spec: SourceTableSpec, table: SourceTable) -> bool:
        published = self._source_tables.tables.get(spec.key)
        if published is None or published.relation.oid != table.relation.oid:
            return False
        return published.can_update and not table.can_update


def _may_lack_commits(found: Collection[SourceTable]) -> bool:
    """Whether a transaction may have committed before a look that does not show it: see `catalog.look`."""
    seen = [table.relation.seen for table in found]
    return not seen or any(one is None or one.running for one in seen)


__all__ = ["Patrol"]
