"""Admits tables of one source: they are fit to be replicated, and the lake is ready for them.

Called in threads, never on the event loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kuvasz.config import names
from kuvasz.config.model import OnLakeRewound, OnSlotLost
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import (
    KuvaszError,
    LakeRewound,
    MapMismatch,
    OptionRefused,
    ParkedLost,
    RowsUnlogged,
    SchemaError,
    TableError,
    TableStuck,
    place_of,
)
from kuvasz.events import Event, EventLog
from kuvasz.evolve.known import expressions_of
from kuvasz.model import TableName
from kuvasz.source.catalog.table import SourceTable
from kuvasz.state.tables import State
from kuvasz.sync.context.approvals import Approvals
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.rules import eligibility
from kuvasz.sync.rules.containment import unforeseen
from kuvasz.sync.rules.few_keys import FewKeys
from kuvasz.sync.rules.targets import feed_of
from kuvasz.sync.tables.recopy import PositionReset
from kuvasz.sync.tables.source_logs import SourceLogs
from kuvasz.sync.watch.member_watch import MemberWatch
from kuvasz.sync.watch.namesakes import Namesakes
from kuvasz.sync.watch.schema_watch import tell

_log = EventLog(__name__)


class Preparation:
    """The preparation of one source's tables.

    Args:
        context: The context of the source.
        approvals: What a person has agreed to.
        members: The members of the source's collapses.
        logs: What is parked.
        resets: Has tables copied again.
    """

    def __init__(
        self,
        context: SourceContext,
        approvals: Approvals,
        members: MemberWatch,
        logs: SourceLogs,
        resets: PositionReset,
    ) -> None:
        self._context = context
        self._map = context.source
        self._lake = context.shared.lake
        self._source_tables = context.source_tables
        self._troubles = context.troubles
        self._approvals = approvals
        self._members = members
        self._logs = logs
        self._resets = resets
        self._namesakes = Namesakes(context)
        # By `SourceTableSpec.key`.
        self.unfit: FewKeys[str] = FewKeys()  #: those whose source table cannot be replicated as it is
        #: those that the lake would not take: what it has of them is unknown
        self._unprepared: FewKeys[str] = FewKeys()

    def is_unknown(self, spec: SourceTableSpec) -> bool:
        """Whether nobody knows if the lake has rows of a table; of a member's target another one may have told."""
        return spec.key in self._unprepared and not (spec.member and self._lake.positions(spec.identifier))

    def attach(self, spec: SourceTableSpec) -> int:
        """Have the lake load a table's target; return the OID of the table whose rows it has, 0 if it has none.

        Raises:
            LakeError: The lake cannot be read.
        """
        try:
            is_there = self._lake.attach(self._approvals.target_of(spec), feed_of(self._map, spec))
        except (TableError, TableStuck):  # `prepare` says why
            self._unprepared.add(spec.key)
            return 0
        known = self._lake.notes.columns(spec.identifier, self._source_tables.name(spec)) if is_there else None
        return 0 if known is None else known.oid

    def sharing(self, spec: SourceTableSpec, table: SourceTable) -> list[SourceTableSpec]:
        """Return the other entries of whose targets the lake knows that the rows are of this table."""
        if spec.member or spec.is_collapse:
            return []
        found = []
        for other in self._source_tables.source.tables:
            is_other = other.key != spec.key and not other.is_beside(spec)
            if is_other and not other.member and not other.is_collapse:
                known = self._lake.notes.columns(other.identifier, self._source_tables.name(other))
                if known is not None and known.oid == table.relation.oid:
                    found.append(other)
        return found

    def _followers(self, spec: SourceTableSpec, table: SourceTable) -> list[SourceTableSpec]:
        """Return the other entries that have followed a table until now: its rows go to one target.

        Raises:
            SchemaError: Another entry goes on, under the name that the table has now.
        """
        if self._context.shared.routes.is_bound(self._map.name, spec, table.relation.oid):
            return []
        found = self.sharing(spec, table)
        for other in found:
            if other.table == spec.table:
                message = (
                    f"{place_of(self._map.name, spec.table)}: its rows go to {other.identifier},"
                    f" which follows it under its new name"
                )
                hint = f"take the entry of {other.identifier} or that of {spec.identifier} out of the map"
                raise SchemaError(message, hint=hint)
        return found

    def usable(self, spec: SourceTableSpec, found: Mapping[TableName, SourceTable]) -> SourceTable | None:
        """Return a table with its key; None if it cannot be replicated, which puts it into error.

        Args:
            spec: What the map says of the table.
            found: What there is at the source.

        Raises:
            MapMismatch: An option of the map does not fit, at the first start.
        """
        self._note_misfit(spec, found.get(spec.table))
        try:
            table = eligibility.checked(self._map.name, spec, found.get(spec.table))
            self._namesakes.refuse(spec)
        except TableError as error:
            self._check_map(spec, error)
            self.unfit.add(spec.key)
            if isinstance(error, RowsUnlogged):
                self._troubles.miss_rows(spec)
            known = self._source_tables.look(spec).error
            # Whoever saw it go knows more of it: that it was renamed, and to what.
            is_known = spec.table not in found and isinstance(known, SchemaError)
            self._troubles.refuse(spec, known if is_known and known is not None else error)
            return None
        self.unfit.discard(spec.key)
        return table

    def _note_misfit(self, spec: SourceTableSpec, table: SourceTable | None) -> None:
        """Note whether only the map keeps a table from being replicated: until that is mended it stays published."""
        if table is not None and eligibility.why_unmapped(spec, table) is not None:
            self._source_tables.misfits[spec.key] = table
        else:
            self._source_tables.misfits.pop(spec.key, None)

    def prepare(self, spec: SourceTableSpec, table: SourceTable, at: int, since: float | None = None) -> bool:
        """Have the lake ready for a usable table; returns whether it is, else the table is in error.

        Args:
            spec: What the map says of the table.
            table: As it was seen.
            at: LSN at which it was.
            since: When the first of many tables was prepared; see `kuvasz.ports.Lake.prepare`.

        Raises:
            MapMismatch: An option of the map does not fit, at the first start.
            LakeError: The lake cannot be reached or written.
        """
        source_tables = self._source_tables
        try:
            before = self._followers(spec, table)
            if source_tables.look(spec).is_resync_due and not source_tables.is_paused(spec):
                self._forget(spec, table)
            try:
                self._follow(spec, table, at, since)
            except LakeRewound as error:
                self._mend_rewound(spec, error)
                self._follow(spec, table, at, since)
            self._take_over(spec, table, before)
            self._admit(spec)
        except (TableError, TableStuck) as error:
            self._check_map(spec, error)
            self._unprepared.add(spec.key)
            self._troubles.refuse(spec, error)
            return False
        except KuvaszError:
            raise
        except Exception as error:  # noqa: BLE001 (one table's, whatever it is)
            contained = unforeseen(self._map.name, spec, error, is_ending=self._context.lifetime.is_ending)
            self._unprepared.add(spec.key)
            self._troubles.refuse(spec, contained)
            return False
        self._unprepared.discard(spec.key)
        self._approvals.followed(spec)
        if spec.member:
            try:
                self._members.note(spec)
            except SchemaError as error:
                self._troubles.refuse(spec, error)
                return False
        self._begin_anew(spec)
        return True

    def _forget(self, spec: SourceTableSpec, table: SourceTable) -> None:
        """Have a table begin anew; but only a person has another one take its place."""
        oid = self.attach(spec)
        is_other = oid not in {0, table.relation.oid}
        is_wanted = self._resets.is_stranger(spec) or not self._source_tables.look(spec).is_repair
        if is_wanted or not is_other:
            self._resets.forget(spec, is_other=is_other)

    def _take_over(self, spec: SourceTableSpec, table: SourceTable, before: Iterable[SourceTableSpec]) -> None:
        """Have a table's changes go to an entry; whoever followed it until now misses what comes from here on."""
        for other in before:
            self._troubles.miss_rows(other)
        self._context.shared.routes.bind(self._map.name, spec, table.relation.oid)

    def _follow(self, spec: SourceTableSpec, table: SourceTable, at: int, since: float | None) -> None:
        """Have the lake follow a table, and tell what was done about it, and why it is copied again if so."""
        has_rows = self._source_tables.position(spec) is not None
        target = self._approvals.target_of(spec)
        done = self._lake.prepare(target, feed_of(self._map, spec), table.relation, since=since)
        if has_rows and self._source_tables.position(spec) is None:
            self._source_tables.note(spec, why_copy=done[-1])
        tell(self._map, spec, done, at)

    def _check_map(self, spec: SourceTableSpec, error: KuvaszError) -> None:
        """Have a wrong map end the first start; later, or where the table changed, it puts the table into error."""
        is_first = not self._context.lifetime.has_started
        if isinstance(error, OptionRefused) and is_first and not self._has_followed(spec):
            raise MapMismatch(
                error.message, hint=error.hint, database=self._map.database, table=names.render_table(spec.table),
                option=error.option,
            ) from error  # fmt: skip

    def _has_followed(self, spec: SourceTableSpec) -> bool:
        """Whether the lake followed a table by what the map says now."""
        if not self.attach(spec):
            return False
        known, said = self._lake.notes.columns(spec.identifier, self._source_tables.name(spec)), spec.config
        mask = () if said.set is not None else said.mask  # else it names what `set` does
        return known is not None and known.went_by(expressions_of(said.filter, said.set), mask)

    def _mend_rewound(self, spec: SourceTableSpec, error: LakeRewound) -> None:
        """Have a table compared that someone set back in the lake, if the map says so.

        Raises:
            LakeRewound: The map does not say so.
        """
        if self._context.shared.on_lake_rewound is not OnLakeRewound.REPAIR or self._source_tables.is_paused(spec):
            raise error
        _log.tell(Event.LAKE_REWOUND_MENDED, source=self._map.name, table=spec.identifier, error=str(error))
        self._source_tables.resync(spec, is_due=True, is_repair=not spec.member)
        self._resets.forget(spec)

    def _begin_anew(self, spec: SourceTableSpec) -> None:
        """Let go of what stopped a table before."""
        source_tables = self._source_tables
        name = source_tables.name(spec)
        if self._lake.failure(spec.identifier, name) is not None:
            # The lake ignores what is written behind a failure: it must know that the table begins again.
            self._context.lifetime.complete(self._context.resume(spec.identifier, name))
        is_waiting = source_tables.is_paused(spec) and source_tables.position(spec) is None  # and may say why
        if source_tables.state(spec) in {State.ERROR, State.PAUSED} and not is_waiting:
            source_tables.set(spec, State.NEW)
        self._troubles.mended(spec)

    def _admit(self, spec: SourceTableSpec) -> None:
        """Find what is parked of a table; have it copied again, or compared, if that is gone and the map says so.

        Raises:
            ParkedLost: It is gone.
            LakeRewound: It is there, and the lake was set back to before it was parked.
        """
        try:
            if not spec.member:
                self._logs.admit(spec)
        except ParkedLost as error:
            if self._map.on_slot_lost is not OnSlotLost.RESYNC or self._source_tables.is_paused(spec):
                raise
            _log.tell(Event.COPIED_AGAIN_LOST, source=self._map.name, table=spec.identifier, error=str(error))
            self._resets.forget(spec)
        except LakeRewound as error:
            self._mend_rewound(spec, error)


__all__ = ["Preparation"]
