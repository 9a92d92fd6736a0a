"""A source whose server pg_upgrade has made anew: it goes on where the lake is, if nothing can be missing.

Another cluster answers then, with the same tables, and from PostgreSQL 17 on with the slot. That the lake has all of
the old one, and that nothing was written to the new one meanwhile, is proved or not (`source.check.upgraded`). If it
is, each table's position becomes one of the new cluster, where its slot stands, and last the source's record: what is
cut off in between is begun again, and ends the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from kuvasz import failpoints, lsn
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import SourceError, TableError, TableStuck, place_of
from kuvasz.events import Event, EventLog
from kuvasz.evolve import sights
from kuvasz.evolve.known import SourceColumns
from kuvasz.model import Relation, SourcePosition
from kuvasz.source import conninfo, slots
from kuvasz.source.catalog import introspect, look, membership, relation_files
from kuvasz.source.catalog.table import SourceTable, TableKind
from kuvasz.source.check import upgraded
from kuvasz.state.ports import SourceRecord, StoredRecord
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.rules import eligibility, keyless, rewrites
from kuvasz.sync.rules.targets import feed_of
from kuvasz.sync.watch.schema_watch import publications_of

_log = EventLog(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _TakenTable:
    """A table that the lake has rows of."""

    spec: SourceTableSpec
    name: str  #: of the source, as the lake has it
    position: SourcePosition
    table: SourceTable  #: as it is now


class SourceUpgrade:
    """The upgrade of one source's server.

    Args:
        context: The context of the source.
        record: What was confirmed, and of whom.
    """

    def __init__(self, context: SourceContext, record: StoredRecord) -> None:
        self._context = context
        self._source = context.source
        self._lake = context.shared.lake
        self._record = record
        self._seen: upgraded.ServerRest | None = None  #: before a look of which nobody knows yet what it found
        self._rest: upgraded.ServerRest | None = None  #: before one that found no table lacking anything
        self._told = ""  #: why another cluster was not gone on with, the last time

    # The old server

    def look(self, connection: Any) -> None:  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        """Look whether the server is at rest, before its tables are looked at. In a thread.

        Raises:
            SourceError: It does not answer.
        """
        self._seen = upgraded.at_rest(connection)

    def found_whole(self) -> None:
        """Take note that the look at the tables found none lacking anything. On the event loop."""
        self._rest = self._seen
        self.note_rest()

    def note_rest(self) -> None:
        """Note the rest for who asks when another server answers, once the lake has all of it. On the event loop."""
        rest, standing = self._rest, self._record.standing
        if rest is None or standing.confirmed_lsn < rest.lsn or self._context.shared.staged is not None:
            return
        self._rest = None
        if standing.rest_xid != rest.xid:
            self._record.update(dataclasses.replace(standing, rest_xid=rest.xid))

    # The new one

    def take_over(self) -> bool:
        """Go on with another cluster where the lake is, if it is proved that nothing is missing. In a thread.

        Returns:
            Whether it is; else nothing is changed.

        Raises:
            SourceError: The source does not answer.
            LakeError: The lake does not.
        """
        standing = self._record.standing
        with contextlib.closing(conninfo.connect(self._context.url())) as connection:
            facts = introspect.server(connection)
            if standing.system_id in {"", str(facts.system_identifier)}:
                return False
            slot = slots.describe(connection, self._source.object_name)
            found = self._known(connection, standing, str(facts.system_identifier))
            why = found if isinstance(found, str) else self._why_not(connection, slot, facts, found)
            why = why or self._why_unfollowed(found)
            if slot is None or isinstance(found, str) or why:
                if why != self._told:  # it is looked at again and again
                    _log.tell(Event.UPGRADE_UNPROVED, source=self._source.name, reason=why)
                self._told = why
                return False
            self._move(connection, found, slot, facts)
        _log.tell(
            Event.UPGRADED, source=self._source.name, tables=len(found), lsn=lsn.render(slot.confirmed_flush_lsn or 0)
        )
        return True

    def _known(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        standing: SourceRecord,
        system_id: str,
    ) -> list[_TakenTable] | str:
        """Return the tables that the lake has rows of, or why one of them is not as it was."""
        if self._context.shared.staged is not None:
            return "with cluster.log its changes may be staged"
        tables, found = self._context.source_tables.source.tables, list[_TakenTable]()
        if any(
            spec.member or spec.is_collapse or spec.schemas is not None for spec in (*self._source.tables, *tables)
        ):
            return "it has tables that are several at the source"
        seen = look.tables(connection, [spec.table for spec in tables], publications_of(self._source))
        for spec in tables:
            name = self._context.source_tables.name(spec)
            position = self._lake.recorded(spec.identifier).get(name)
            if position is None:
                continue
            try:
                table = eligibility.checked(self._source.name, spec, seen.get(spec.table))
            except TableError as error:
                return error.message
            if position.system_id not in {standing.system_id, system_id} or position.history != standing.history:
                return f"{spec.identifier} has rows of another past"
            if why := self._why_other(spec, name, table):
                return f"{spec.identifier} {why}"
            found.append(_TakenTable(spec=spec, name=name, position=position, table=table))
        return found or "the lake has no rows of it"

    def _why_other(self, spec: SourceTableSpec, name: str, table: SourceTable) -> str:
        """Return why a table may not be what the lake has of it; empty if it is."""
        notes, state = self._lake.notes, self._context.source_tables.look(spec)
        if table.kind is not TableKind.TABLE or table.ancestors:
            return "has partitions, or is one"
        if keyless.has_only_inserts(table) or spec.config.row_filter:
            return "is not published as a whole"
        if notes.parked(spec.identifier, name) or notes.gap(spec.identifier, name) or state.is_resync_due:
            return "lacked changes before"
        known = notes.columns(spec.identifier, name)
        if known is None or not _is_as_known(known, table.relation):
            return "was altered"
        return ""

    def _why_not(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        slot: slots.SlotState | None,
        facts: introspect.ServerFacts,
        tables: Sequence[_TakenTable],
    ) -> str:
        """Return why changes may be missing; empty if none are."""
        name, standing = self._source.object_name, self._record.standing
        if slot is None:
            return f"slot {name} did not come along"
        if why := slot.why_foreign or slot.why_lost:
            return f"slot {name} cannot be used: {why}"
        if slot.active_pid is not None or slot.database != facts.database:
            return f"slot {name} is in use, or another database's"
        if not standing.confirmed_lsn:
            return "nobody knows what was confirmed to the cluster before"
        reached = max(standing.confirmed_lsn, *(one.position.lsn for one in tables))
        if (slot.confirmed_flush_lsn or 0) < reached:
            return f"slot {name} stands before {lsn.render(reached)}, which the lake has"
        published = self._published(connection, tables)
        if any(one.spec.key not in published for one in tables):
            return f"publication {name} does not have all tables"
        return upgraded.why_not(
            standing.rest_xid, upgraded.load(connection, {one.table.relation.oid for one in tables})
        )

    def _published(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        tables: Sequence[_TakenTable],
    ) -> Mapping[str, str]:
        """Return by which catalog rows tables are published as themselves, by `SourceTableSpec.key`."""
        oids = {one.table.relation.oid for one in tables}
        found = membership.load(connection, self._source.object_name, oids, publications_of(self._source))
        members = {one.spec.key: found[one.table.relation.oid] for one in tables if one.table.relation.oid in found}
        return {key: one.render() for key, one in members.items() if not one.above and not one.links}

    def _move(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        tables: Sequence[_TakenTable],
        slot: slots.SlotState,
        facts: introspect.ServerFacts,
    ) -> None:
        """Have the lake's positions, and what is known of the source, be of the new cluster."""
        point, system_id = slot.confirmed_flush_lsn or 0, str(facts.system_identifier)
        published, files = self._published(connection, tables), self._context.shared.state.files(self._source.name)
        found = relation_files.load(connection, {one.table.relation.oid for one in tables})
        files.put({oid: rewrites.known(now) for oid, now in found.items()})
        for one in tables:
            target = one.spec.identifier
            self._lake.notes.remember_published(target, one.name, published[one.spec.key])
            position = SourcePosition(
                lsn=point, system_id=system_id, history=one.position.history, started_us=facts.started_us
            )
            self._lake.relocate(target, one.name, position)
            failpoints.hit("source_relocated", SourceError)
        self._record.update(
            SourceRecord(
                system_id=system_id, timeline=facts.timeline, history=self._record.standing.history,
                confirmed_lsn=point, started_us=facts.started_us, proved_lsn=point, looked_lsn=point,
            )
        )  # fmt: skip

    def _why_unfollowed(self, tables: Sequence[_TakenTable] | str) -> str:
        """Have the lake take tables as they are by their new catalog, and return why it does not; empty if it does.

        Raises:
            SourceError: Rows of one are to be copied again, as the map has it otherwise by now.
            LakeError: Catalog or storage failed.
        """
        context = self._context
        for one in tables if not isinstance(tables, str) else ():
            target, feed = context.approvals.target_of(one.spec), feed_of(self._source, one.spec)
            try:
                done = self._lake.prepare(target, feed, one.table.relation)
            except (TableError, TableStuck) as error:
                return error.message
            if context.source_tables.position(one.spec) is None:
                context.source_tables.note(one.spec, why_copy=done[-1])
                raise SourceError(
                    f"{place_of(self._source.name, one.spec.table)}: it is to be copied again: {done[-1]}"
                )
        return ""


def _is_as_known(known: SourceColumns, now: Relation) -> bool:
    """Whether a table has the columns, and the file, that it had when it was looked at last."""
    sight = sights.of(now)
    if known.oid != now.oid or known.file != now.file or sight is None or not known.sights:
        return False
    last = known.sights[-1]
    before = {number: column._replace(version=0) for number, column in last.columns.items()}
    after = {number: column._replace(version=0) for number, column in sight.columns.items()}
    return (before, last.file, last.attributes) == (after, sight.file, sight.attributes)


__all__ = ["SourceUpgrade"]
