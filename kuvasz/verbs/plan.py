"""``kuvasz plan``: what a start would do. Looks at sources and lake, all side by side, and changes nothing."""

from __future__ import annotations

import concurrent.futures
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kuvasz import errors, typemap
from kuvasz.config import names
from kuvasz.config import sources as config_sources
from kuvasz.config.load import PlaceOf, nowhere
from kuvasz.config.model import Initial, Origin
from kuvasz.errors import KuvaszError, LakeError, OtherRule, SchemaError, SourceRefused, TableError
from kuvasz.evolve.changes import compare
from kuvasz.lake.format import rule, table_identity
from kuvasz.lake.format.schema import SID, source_type, typed
from kuvasz.shown import figures
from kuvasz.source import conninfo, inserts, publication, slots
from kuvasz.source.catalog import introspect, sizes
from kuvasz.source.check.preflight import StreamOptions, check_source
from kuvasz.sync import pattern_tables
from kuvasz.sync.rules import caveats, eligibility, identity, keyless
from kuvasz.sync.rules import members as source_members
from kuvasz.sync.rules.left_out import column_lists
from kuvasz.sync.rules.lost import without_slot
from kuvasz.sync.rules.targets import feed_of, target_of
from kuvasz.sync.watch import renames
from kuvasz.verbs import lakeview, text, typetable
from kuvasz.verbs.check import THREADS
from kuvasz.verbs.lakeview import LakeView

if TYPE_CHECKING:
    from kuvasz.config.model import Config
    from kuvasz.config.sources import Source, SourceTableSpec
    from kuvasz.model import Relation, TableName
    from kuvasz.source.catalog.table import SourceTable
    from kuvasz.source.check.finding import Finding
    from kuvasz.verbs.lakeview import LakeTableView

CHANGES_DUE = 4


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPlan:
    """What becomes of one column."""

    name: str
    postgresql: str
    iceberg: str
    note: str
    is_key: bool
    is_new: bool  #: the lake's table lacks it, or has it with a type that the map says otherwise, and gets it


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TablePlan:
    """What would become of one table of one source."""

    table: str
    target: str
    action: str  #: copy, skip (what it has is left out), follow, or error
    is_new_target: bool = False  #: the lake has no such table
    bytes: int | None = 0  #: at the source, to copy; None: somebody has locked it, so nobody can say
    rows: int | None = None  #: as the source estimates them; None: never analysed
    columns: tuple[ColumnPlan, ...] = ()
    error: str | None = None
    hint: str | None = None
    why: str = ""  #: it is copied again; empty if the lake has no rows of it
    mapped: str = ""  #: the name in the map, if the table has another one now
    warnings: tuple[str, ...] = ()  #: what it may lack in the lake


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourcePlan:
    """What would be done at and for one source."""

    source: str
    location: str
    slot: str
    is_new_slot: bool = False
    statements: tuple[str, ...] = ()
    tables: tuple[TablePlan, ...] = ()
    error: str | None = None
    hint: str | None = None
    error_code: int = 0  #: exit code of the error

    @property
    def has_refused(self) -> bool:
        """Whether a start would leave a table in error."""
        return any(table.action == "error" for table in self.tables)

    @property
    def is_due(self) -> bool:
        """Whether a start would change anything."""
        return bool(self.statements) or self.is_new_slot or any(_is_due(table) for table in self.tables)


def plans(config: Config, place_of: PlaceOf = nowhere) -> list[SourcePlan]:
    """Return a plan per source, in the map's order.

    Args:
        config: The whole configuration.
        place_of: Where an option stands; see `kuvasz.config.load.Loaded.place_of`.

    Raises:
        LakeError: The catalog does not answer.
    """
    sources = config_sources.resolve(config)
    lake = LakeView(config)
    secret = (config.pipeline.mask_secret or "").encode()
    targets = {spec.identifier for source in sources for spec in source.tables}
    with concurrent.futures.ThreadPoolExecutor(THREADS, thread_name_prefix="plan") as pool:
        tables = dict(zip(targets, pool.map(lake.table, targets), strict=True))
        tables = lakeview.without_due(config, tables)
        is_heard = config.cluster.group is not None
        return list(pool.map(lambda source: _plan(source, tables, place_of, secret, is_heard=is_heard), sources))


def exit_code(found: Sequence[SourcePlan]) -> int:
    """Return the code of the worst error of a source, else 4 if changes are due, else 1 if a table is refused."""
    codes = [plan.error_code for plan in found if plan.error_code]
    if not codes and any(plan.is_due for plan in found):
        return CHANGES_DUE
    codes += [TableError.exit_code for plan in found if plan.has_refused]
    return max(codes, default=0)


def _plan(
    source: Source,
    lake: Mapping[str, LakeTableView | None],
    place_of: PlaceOf,
    secret: bytes,
    *,
    is_heard: bool = False,
) -> SourcePlan:
    plan = SourcePlan(source=source.name, location="", slot=source.object_name)
    try:
        url = source.url.get()
        plan = dataclasses.replace(plan, location=conninfo.location(url))
        with conninfo.asked(url, errors.place_of(source.name)) as connection:
            _refuse_stranger(source, connection, lake)
            pattern_tables.refuse_many(connection, source)
            mapped = source
            source = _renamed(connection, source_members.found(source, connection), lake)
            wanted = [spec.table for spec in source.tables]
            found = introspect.load_relations(connection, wanted, inserts.with_inserts(source.object_name))
            tables = [
                _table(source, spec, found.get(spec.table), lake[spec.identifier], place_of, secret)
                for spec in source.tables
            ]
            tables = _with_sizes(connection, source, tables, found)
            tables = [_with_name(table, spec, mapped) for table, spec in zip(tables, source.tables, strict=True)]
            tables = [
                _with_warnings(table, spec, source, found) for table, spec in zip(tables, source.tables, strict=True)
            ]
            usable = {
                spec.table: column_lists.published(spec, found[spec.table], connection.info.server_version)
                for spec, one in zip(source.tables, tables, strict=True)
                if one.action != "error"
            }
            plan = dataclasses.replace(plan, tables=tuple(tables))
            if not is_heard:  # else the first group of the log makes them fit
                statements = _publications(connection, plan.slot, list(usable.values()))
                plan = dataclasses.replace(plan, statements=statements)
            state = slots.describe(connection, plan.slot)
        plan = _with_slot(plan, source, state, lake)
        return _with_refusals(plan, _refusals(url, source, is_heard=is_heard))
    except KuvaszError as error:
        return dataclasses.replace(plan, error=error.message, hint=error.hint, error_code=error.exit_code)


def _refuse_stranger(
    source: Source,
    connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
    lake: Mapping[str, LakeTableView | None],
) -> None:
    """Refuse another cluster before its tables are looked at."""
    system_id = str(introspect.server(connection).system_identifier)
    positions = identity.of_source(source, lambda target: lakeview.positions_in(lake[target]))
    if (error := identity.stranger(source.name, system_id, positions)) is not None:
        raise error


def _renamed(
    connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
    source: Source,
    lake: Mapping[str, LakeTableView | None],
) -> Source:
    """Return a source with its tables by the names that they have now."""
    views = {spec.key: (view, source.name_of(spec)) for spec in source.tables if (view := lake[spec.identifier])}
    return renames.renamed(connection, source, {key: view.oids.get(name, 0) for key, (view, name) in views.items()})


def _with_sizes(
    connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
    source: Source,
    tables: Sequence[TablePlan],
    found: Mapping[TableName, SourceTable],
) -> list[TablePlan]:
    """Note how large the tables are that would be copied."""
    pairs = list(zip(source.tables, tables, strict=True))
    copied = [found[spec.table] for spec, table in pairs if table.action == "copy"]
    known = {table.table: table.bytes for table in sizes.sized_unless_locked(connection, copied)}
    return [
        dataclasses.replace(table, bytes=known[spec.table]) if table.action == "copy" else table
        for spec, table in pairs
    ]


def _with_name(table: TablePlan, spec: SourceTableSpec, source: Source) -> TablePlan:
    """Note the name that the map has of a table which is called otherwise."""
    mapped = next((one.table for one in source.tables if one.key == spec.key), spec.table)
    return table if mapped == spec.table else dataclasses.replace(table, mapped=str(mapped))


def _with_warnings(
    table: TablePlan, spec: SourceTableSpec, source: Source, found: Mapping[TableName, SourceTable]
) -> TablePlan:
    """Note what a table may lack in the lake, if it comes there."""
    if table.action == "error":
        return table
    told = tuple(one.sentence() for one in caveats.of(spec, found.get(spec.table), [source]))
    return dataclasses.replace(table, warnings=told)


def _publications(
    connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
    name: str,
    tables: Sequence[SourceTable],
) -> tuple[str, ...]:
    """Return the statements that make a source's publications fit."""
    statements: list[str] = []
    full = [table for table in tables if not keyless.has_only_inserts(table)]
    partial = [table for table in tables if keyless.has_only_inserts(table)]
    for one, members, operations in (
        (name, full, publication.ALL_OPERATIONS), (inserts.object_name(name), partial, inserts.OPERATIONS),
    ):  # fmt: skip
        current = publication.load(connection, one)
        if one == name or members or current is not None:
            changes = publication.plan(current, one, members, operations)
            statements += [*changes.statements, *changes.relisting, *changes.tidying]
    return tuple(statements)


def _refusals(url: str, source: Source, *, is_heard: bool) -> list[Finding]:
    """Return what the pre-flight finds that would stop a start, but for what a plan finds itself."""
    tables = list(dict.fromkeys(spec.table for spec in source.tables))  # one with routes stands there for each
    inserts_do = [spec.table for spec in source.tables if spec.config.type in keyless.INSERTS_DO]
    found = check_source(
        url, source.database, source.sid, tables, inserts_do=inserts_do, as_published=column_lists.of_source(source),
        wanted=StreamOptions(
            is_own_alone=source.origin is Origin.NONE, is_heard=is_heard, role=source.replication_url
        ),
    )  # fmt: skip
    return [finding for finding in found if finding.is_blocking]


def _with_refusals(plan: SourcePlan, refusals: Sequence[Finding]) -> SourcePlan:
    """Return a plan whose tables, and which itself, has the first error that a start would meet."""
    of_tables = {str(finding.table): finding for finding in reversed(refusals) if finding.table is not None}
    tables = tuple(
        dataclasses.replace(table, action="error", error=_told(finding), hint=finding.fix)
        if table.action != "error" and (finding := of_tables.get(table.table)) is not None
        else table
        for table in plan.tables
    )
    plan = dataclasses.replace(plan, tables=tables)
    refused = next((finding for finding in refusals if finding.table is None), None)
    if refused is None:
        return plan
    return dataclasses.replace(
        plan, error=_told(refused), hint=refused.fix or None, error_code=SourceRefused.exit_code
    )


def _told(finding: Finding) -> str:
    return f"{finding.check}: {finding.value}, needed is {finding.needed}"


def _with_slot(
    plan: SourcePlan, source: Source, state: slots.SlotState | None, lake: Mapping[str, LakeTableView | None]
) -> SourcePlan:
    is_known = any(
        (view := lake[spec.identifier]) is not None and source.name_of(spec) in view.positions
        for spec in source.tables
    )
    if (lost := without_slot(source, state, is_known=is_known)) is not None:
        raise lost
    return dataclasses.replace(plan, is_new_slot=state is None)


def _table(
    source: Source,
    spec: SourceTableSpec,
    found: SourceTable | None,
    view: LakeTableView | None,
    place_of: PlaceOf,
    secret: bytes = b"",
) -> TablePlan:
    table, target = str(spec.table), spec.identifier
    if (unfit := eligibility.why_unfit(spec, found)) is not None:
        place = place_of(source.database, names.render_table(spec.table), unfit.option) if unfit.option else ""
        return TablePlan(table=table, target=target, action="error", error=f"{place}{unfit.why}", hint=unfit.hint)
    assert found is not None
    try:
        columns = _columns(source, spec, found, view)
        why = _remade(spec, view) or _why_copy(source, spec, found.relation, view, secret)
    except (SchemaError, OtherRule) as error:
        return TablePlan(table=table, target=target, action="error", error=error.message, hint=error.hint)
    is_known = view is not None and source.name_of(spec) in view.positions and not why
    is_new = view is None or source.name_of(spec) not in view.known
    first = "skip" if spec.config.initial is not Initial.COPY and is_new else "copy"
    return TablePlan(
        table=table, target=target, action="follow" if is_known else first, is_new_target=view is None,
        bytes=0 if is_known else found.bytes, rows=None if is_known else found.row_estimate, columns=columns,
        why=why,
    )  # fmt: skip


def _remade(spec: SourceTableSpec, view: LakeTableView | None) -> str:
    """Return what becomes of a lake table that is of another type; empty if it is not.

    Raises:
        SchemaError: It keeps what its sources have no more, so that it stays what it is.
    """
    if view is None or not view.made or table_identity.made_as(view.made) is spec.config.type:
        return ""
    if not table_identity.can_become_another(view.made, is_empty=view.is_empty):
        raise table_identity.other_type(view.made, target_of(spec))
    return f"it becomes a table of type {spec.config.type}"


def _why_copy(
    source: Source, spec: SourceTableSpec, relation: Relation, view: LakeTableView | None, secret: bytes
) -> str:
    """Return why rows that the lake has of a table would be copied again; empty if they would not.

    Raises:
        OtherRule: They would have to, and a person has to say so.
    """
    name = source.name_of(spec)
    if view is None or name not in view.positions:
        return ""
    known, target = view.known.get(name), target_of(spec, secret)
    reads = () if known is None else known.reads.values()  # of other columns is another rule, whatever they are
    feed = feed_of(source, spec)
    now = rule.of(target, rule.numbered(target, relation, reads), is_own_alone=feed.is_own_alone)
    return rule.why_copy(view.rules.get(name), now, target, feed)


def _columns(
    source: Source, spec: SourceTableSpec, found: SourceTable, view: LakeTableView | None
) -> tuple[ColumnPlan, ...]:
    target = target_of(spec)
    relation = typed(target, found.relation)
    known = None if view is None else view.known.get(source.name_of(spec))
    asked = set() if known is None else {change.name for change in compare(known, relation) if change.is_asked}
    key = set(found.relation.key or spec.config.key or ())
    columns = []
    for name, expression in (spec.config.set or {}).items():
        # Their types are known to Spark alone, which a plan does not start.
        columns.append(
            ColumnPlan(
                name=name, postgresql=expression, iceberg="as computed", note="", is_key=name in key,
                is_new=view is not None and name not in view.columns,
            )
        )  # fmt: skip
    pairs = zip(found.relation.columns, relation.columns, strict=True)
    taken = [(column, as_asked) for column, as_asked in pairs if target.takes(column.name)]
    for column, as_asked in () if spec.config.set is not None else taken:
        value = source_type(as_asked)
        columns.append(
            ColumnPlan(
                name=column.name,
                postgresql=typemap.postgresql_name(column.pg_type, column.typmod),
                iceberg=typemap.iceberg_name(value),
                note=typetable.note(column.pg_type, value),
                is_key=column.name in key,
                is_new=view is not None
                and (
                    column.name not in view.columns
                    or (column.name in asked and view.columns[column.name] != typemap.iceberg_name(value))
                ),
            )
        )
    if not spec.has_sid:
        return tuple(columns)
    sid = ColumnPlan(name=SID, postgresql="", iceberg="string", note="the source's id", is_key=True, is_new=False)
    return (sid, *columns)


def _is_due(table: TablePlan) -> bool:
    return table.action in {"copy", "skip"} or any(column.is_new for column in table.columns)


def render(found: Sequence[SourcePlan]) -> str:
    """Return the plan for a person: what would be done, source by source, then the columns of each target."""
    lines: list[str] = []
    for plan in found:
        lines += _render_source(plan)
    lines += _render_targets(found)
    copies = [table for plan in found for table in plan.tables if table.action == "copy"]
    due = sum(plan.is_due for plan in found)
    total = figures.size(sum(table.bytes or 0 for table in copies))
    if any(table.bytes is None for table in copies):
        total = f"at least {total}"
    lines.append(
        f"{due} of {len(found)} sources with changes due; {len(copies)} tables to copy, {total} at the sources"
    )
    return text.lines(lines)


def _render_source(plan: SourcePlan) -> list[str]:
    lines = [f"source {plan.source} ({plan.location})"]
    if plan.error is not None:
        lines += [f"  error: {plan.error}", *([f"  hint: {plan.hint}"] if plan.hint else [])]
    lines += [f"  {statement}" for statement in plan.statements]
    if plan.is_new_slot:
        lines.append(f"  create the replication slot {plan.slot}")
    for table in plan.tables:
        lines += _render_table(table)
    if plan.error is None and not plan.is_due:
        others = ", but for tables in error" if plan.has_refused else ""
        lines.append(f"  nothing to change: the stream goes on{others}")
    return [*lines, ""]


def _render_table(table: TablePlan) -> list[str]:
    if table.action == "error":
        return [f"  error: table {table.table}: {table.error}", *([f"    hint: {table.hint}"] if table.hint else [])]
    lines = []
    if table.mapped:
        lines.append(
            f"  follow {table.mapped} as {table.table}, which is its name now: write that into the map, with"
            f" `target: {table.target}`"
        )
    if table.action == "copy":
        rows = "" if table.rows is None else f", about {table.rows:,} rows"
        made = " (to be made)" if table.is_new_target else ""
        lines.append(f"  copy {table.table} into {table.target}{made}: {figures.size(table.bytes)}{rows}")
        if table.why:
            lines.append(f"    again: {table.why}")
    if table.action == "skip":
        lines.append(f"  follow {table.table} into {table.target} from here on: the rows that it has are left out")
    added = [column.name for column in table.columns if column.is_new]
    if added:
        lines.append(f"  add to {table.target}: {', '.join(added)}")
    return [*lines, *(f"  warning: table {table.table}: {warning}" for warning in table.warnings)]


def _render_targets(found: Sequence[SourcePlan]) -> list[str]:
    lines: list[str] = []
    told: set[tuple[str, tuple[ColumnPlan, ...]]] = set()
    for plan in found:
        for table in plan.tables:
            # Sources of one shape are told once.
            if not table.columns or not _is_due(table) or (table.target, table.columns) in told:
                continue
            told.add((table.target, table.columns))
            rows = [(c.name, c.postgresql, c.iceberg, "key" if c.is_key else "", c.note) for c in table.columns]
            headers = (f"{table.target}", "postgresql", "iceberg", "", "note")
            lines += [*text.table(headers, rows).split("\n"), ""]
    return lines


def as_json(found: Sequence[SourcePlan]) -> list[dict[str, Any]]:
    """Return the plans ready for JSON."""
    return [dataclasses.asdict(plan) | {"is_due": plan.is_due} for plan in found]


__all__ = ["LakeError", "as_json", "exit_code", "plans", "render"]
