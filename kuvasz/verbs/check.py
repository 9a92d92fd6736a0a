"""``kuvasz check``: everything a start will need, looked at before anything is touched, all sources side by side."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kuvasz import errors
from kuvasz.config import names
from kuvasz.config import sources as config_sources
from kuvasz.config.load import PlaceOf, nowhere
from kuvasz.config.model import CatalogType, ClusterRole, Consistency, OnSlotLost, Origin
from kuvasz.errors import (
    ConfigError,
    KuvaszError,
    LakeError,
    SchemaError,
    SlotLost,
    SourceError,
    SourceRefused,
    SourceReplaced,
    SourceTooLarge,
    mend_of,
)
from kuvasz.lake.format import layout, schema
from kuvasz.lake.iceberg import conditions, joint_commits
from kuvasz.lake.iceberg.conditions import Condition
from kuvasz.source import conninfo, continuity, failure, inserts, publication, slots
from kuvasz.source.catalog import introspect
from kuvasz.source.check.finding import Finding, Severity
from kuvasz.source.check.preflight import StreamOptions, check_source
from kuvasz.source.check.server_room import check_server
from kuvasz.source.check.standby_check import check_standby
from kuvasz.state.ports import SourceRecord
from kuvasz.state.store import state_of
from kuvasz.sync import pattern_tables
from kuvasz.sync.rules import caveats, eligibility, identity, keyless, members
from kuvasz.sync.rules.left_out import column_lists
from kuvasz.sync.rules.lost import without_slot
from kuvasz.sync.rules.targets import target_of
from kuvasz.sync.watch import renames
from kuvasz.verbs import lakeview, text, unsealed
from kuvasz.verbs.cluster import coordinator, log_store, own_tables

if TYPE_CHECKING:
    from kuvasz.config.model import Config
    from kuvasz.config.patterns.found_tables import LeftOut
    from kuvasz.config.sources import Source, SourceTableSpec
    from kuvasz.model import SourcePosition, TableName
    from kuvasz.source.catalog.table import SourceTable
    from kuvasz.source.slots import SlotState
    from kuvasz.state.ports import StoredRecord
    from kuvasz.verbs.lakeview import LakeTableView

_MACHINE = "machine"
_LAKE = "lake"
_CLUSTER = "cluster"
_STREAM = "stream"

#: A start proves them through Spark.
_OF_LAKE = (
    Condition(name="catalog", needed="an answer", prove=lakeview.prove_catalog),
    Condition(name="warehouse", needed="writable", prove=lakeview.prove_warehouse),
)

#: Where groups are committed as one behind REST; other catalogs can, or the map says that they cannot.
_GROUPS = Condition(name="groups", needed="a catalog that changes their tables at once", prove=joint_commits.prove)

#: Where there is a cluster.
_COORDINATOR = Condition(
    name="coordinator", needed="an answer, and tables of kuvasz or room for them", prove=coordinator.prove
)

#: Where indexes are kept for whoever has a table next.
_INDEXES = Condition(
    name="indexes", needed="written, listed, read and removed", prove=log_store.prove_indexes
)  # fmt: skip

#: Where changes are staged.
_LOG = Condition(name="log", needed="written, listed, read and removed", prove=log_store.prove)

#: The same, for a log may feed several lakes.
_OWN = Condition(name="own_tables", needed="no table that another group of the log has", prove=own_tables.prove)

#: Of what is looked at in a source: what one needs that only reads. Making slots and publications, and tables,
#: are the matter of whoever applies.
_OF_READER = frozenset({
    "url", "reachable", "sslmode", "server", "version", "wal_level", "recovery", "senders", "session", "direct",
    "replication_privilege", "replication", "slot",
})  # fmt: skip

#: Sources that are looked at side by side; each waits for its own server.
THREADS = 16

FAILED = 3

_WIDEST = 60


def findings(config: Config, place_of: PlaceOf = nowhere) -> list[Finding]:
    """Return all findings: the machine's, the lake's, each server's, then those of each source in the map's order.

    Args:
        config: The whole configuration.
        place_of: Where an option stands; see `kuvasz.config.load.Loaded.place_of`.
    """
    if config.cluster.role is ClusterRole.READ:
        return _of_reader(config)
    with concurrent.futures.ThreadPoolExecutor(THREADS, thread_name_prefix="check") as pool:
        lake, known = pool.submit(_lake, config), _Known(config, place_of)
        sources = config_sources.resolve(config)
        servers = pool.map(lambda one: check_server(*one), _servers(sources))
        return [
            *of_machine(config),
            *unsealed.findings(config),
            *lake.result(),
            *(one for found in servers for one in found),
            *(one for found in pool.map(known.source, sources) for one in found),
            *(_left_out(one) for group in config.databases if group.found for one in group.found.left_out),
        ]


def _of_reader(config: Config) -> list[Finding]:
    """Return what a process needs that only reads: neither Java nor a catalog, and of sources their streams."""
    with concurrent.futures.ThreadPoolExecutor(THREADS, thread_name_prefix="check") as pool:
        log, found = pool.submit(_prove, _LAKE, _LOG, config), pool.map(_stream_of, config_sources.resolve(config))
        machine = [_prove(_MACHINE, _COORDINATOR, config), *unsealed.findings(config)]
        return [*machine, log.result(), *(one for some in found for one in some)]


def _stream_of(source: Source) -> list[Finding]:
    is_own_alone, role = source.origin is Origin.NONE, source.replication_url
    wanted = StreamOptions(is_staged=True, is_own_alone=is_own_alone, role=role)
    try:
        with failure.contained(errors.place_of(source.name)):
            found = check_source(source.url.get(), source.database, source.sid, (), wanted=wanted)
    except KuvaszError as error:  # a secret file that is gone
        return [_failed(source.object_name, "url", "a url", error)]
    return [one for one in found if one.check in _OF_READER]


def of_sources(config: Config, wanted: Collection[str], place_of: PlaceOf = nowhere) -> list[Finding]:
    """Return the findings of some sources alone, by their names."""
    known = _Known(config, place_of)
    sources = [source for source in config_sources.resolve(config) if source.name in wanted]
    with concurrent.futures.ThreadPoolExecutor(THREADS, thread_name_prefix="check") as pool:
        return [one for found in pool.map(known.source, sources) for one in found]


def exit_code(found: Sequence[Finding]) -> int:
    """Return 5 if a source cannot go on from the lake's rows, 3 if something required is missing, else 0."""
    if any(finding.is_blocking and finding.check in {_CLUSTER, _STREAM} for finding in found):
        return SourceReplaced.exit_code
    return FAILED if any(finding.is_blocking for finding in found) else 0


def render(found: Sequence[Finding], *, is_brief: bool = False) -> str:
    """Return a row per finding, and below it what mends those that are not ok.

    Args:
        found: All findings.
        is_brief: Have no rows of those that are ok.
    """
    rows = [
        (
            finding.source,
            str(finding.table or ""),
            finding.check,
            _verdict(finding),
            _short(finding.value),
            finding.needed,
        )
        for finding in found
        if not (is_brief and finding.ok)
    ]
    lines = text.table(("source", "table", "check", "", "found", "needed"), rows).split("\n") if rows else []
    wrong = [finding for finding in found if not finding.ok]
    if wrong:
        lines += ["", "to mend (SQL: in the source's database, as the owner of what it names or a superuser):"]
        for finding in wrong:
            lines += [f"  {_place(finding)}: {finding.check}: {finding.value}", f"    {finding.fix}"]
    blocking = sum(finding.is_blocking for finding in found)
    lines += [
        *([""] if lines else []),
        f"{len(found)} checks, {blocking} failed, {len(wrong) - blocking} to be considered",
    ]
    return text.lines(lines)


def as_json(found: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return the findings ready for JSON."""
    return [
        {
            "source": finding.source,
            "table": None if finding.table is None else str(finding.table),
            "check": finding.check,
            "ok": finding.ok,
            "severity": finding.severity.value,
            "value": finding.value,
            "needed": finding.needed,
            "fix": finding.fix or None,
        }
        for finding in found
    ]


class _Known:
    """What the lake has of sources, read when it is asked for first; nothing if the lake does not answer."""

    def __init__(self, config: Config, place_of: PlaceOf) -> None:
        self._config = config
        self._place_of = place_of
        specs = [spec.identifier for source in config_sources.resolve(config) for spec in source.tables]
        self._alone = frozenset(target for target, count in collections.Counter(specs).items() if count == 1)
        self._lock = threading.Lock()
        self._tables: dict[str, LakeTableView | None] | None = None

    def source(self, source: Source) -> list[Finding]:
        """Return the findings of one source: if it is another one than the lake has rows of, that alone."""
        try:
            with failure.contained(errors.place_of(source.name)):
                return self._source(source)
        except KuvaszError as error:  # a secret file that is gone, or an answer that nobody thought of
            is_of_url = isinstance(error, ConfigError)
            check, needed = ("url", "a url") if is_of_url else ("reachable", "an answer")
            return [_failed(source.object_name, check, needed, error)]

    def _source(self, source: Source) -> list[Finding]:
        found = _beside_lake(source, self._positions, lambda: state_of(self._config).record(source.name))
        if any(finding.check == _CLUSTER for finding in found):
            return found
        return found + _source(self._config, source, self._place_of, self._alone)

    def _positions(self, target: str) -> Mapping[str, SourcePosition]:
        with self._lock:
            if self._tables is None:
                self._tables = self._read()
        return lakeview.positions_in(self._tables.get(target))

    def _read(self) -> dict[str, LakeTableView | None]:
        sources = config_sources.resolve(self._config)
        try:
            view = lakeview.LakeView(self._config)
            targets = {spec.identifier for source in sources for spec in source.tables}
            return lakeview.without_due(self._config, {target: view.table(target) for target in targets})
        except KuvaszError:  # the check of the lake says so
            return {}


def _servers(sources: Sequence[Source]) -> list[tuple[str, list[str], int]]:
    """Return what `check_server` takes, for each server."""
    urls: dict[str, list[str]] = {}
    for source in sources:
        with contextlib.suppress(KuvaszError):  # a secret file that is gone: the check of the source says so
            url = source.url.get()
            urls.setdefault(conninfo.servers(url), []).append(url)
    ours = [source.object_name for source in sources]
    return [(there[0], ours, len(there)) for there in urls.values()]


def _beside_lake(
    source: Source,
    positions: Callable[[str], Mapping[str, SourcePosition]],
    record: Callable[[], StoredRecord | None] = lambda: None,
) -> list[Finding]:
    """Return why a source cannot go on from the rows that the lake has of it.

    Args:
        source: The source, as the map has it.
        positions: How far each source is in a target.
        record: Gives what a kuvasz that replicates it has noted; None: nothing.
    """
    known = identity.of_source(source, positions)
    if not known:
        return []
    try:
        with conninfo.asked(source.url.get(), errors.place_of(source.name)) as connection:
            system_id = str(introspect.server(connection).system_identifier)
            slot = slots.describe(connection, source.object_name)
            gap = _gap(source, known, connection, slot, record)
    except SourceError:  # the check of the source says so
        return []
    if (stranger := identity.stranger(source.name, system_id, known)) is not None:
        return [_failed(source.object_name, _CLUSTER, "the one of the lake's rows", stranger)]
    if (lost := without_slot(source, slot, is_known=True) or gap) is None:
        return []
    finding = _failed(source.object_name, _STREAM, "a slot that goes on from the lake's rows", lost)
    if source.on_slot_lost is OnSlotLost.STOP or isinstance(lost, SourceRefused):
        return [finding]
    told = f"`on_slot_lost: {source.on_slot_lost}` does it by itself"
    return [dataclasses.replace(finding, severity=Severity.ADVICE, fix=told)]


def _gap(
    source: Source,
    known: Sequence[tuple[str, SourcePosition]],
    connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
    slot: SlotState | None,
    record: Callable[[], StoredRecord | None],
) -> SlotLost | None:
    """Return why changes are missing though the slot may be there; None if none are, as far as can be told."""
    name, applied_lsn = source.object_name, max(position.lsn for _, position in known)
    # After the slot and before the end of the WAL: who replicates beside this moves all three.
    noted = record()
    standing = SourceRecord() if noted is None else noted.standing
    facts = introspect.server(connection)
    server = continuity.ServerState(
        system_id=str(facts.system_identifier), timeline=facts.timeline, wal_lsn=introspect.wal_end(connection),
        slot_name=name, slot=slot, started_us=facts.started_us,
    )  # fmt: skip
    error = continuity.lost(source.name, standing, applied_lsn, server, "" if noted is None else noted.place)
    if error is None and not publication.exists(connection, name):
        return continuity.without_publication(source.name, name, standing, applied_lsn)
    return error


def _source(config: Config, source: Source, place_of: PlaceOf, alone: Collection[str]) -> list[Finding]:
    try:
        source, empty = _with_members(source)
        mapped, source = source, _with_names(config, source)
        tables = list(dict.fromkeys(spec.table for spec in source.tables))  # one with routes stands there for each
        inserts_do = [spec.table for spec in source.tables if spec.config.type in keyless.INSERTS_DO]
        return [
            *check_source(
                source.url.get(),
                source.database,
                source.sid,
                tables,
                inserts_do=inserts_do,
                as_published=column_lists.of_source(source),
                wanted=_wanted(config, source),
            ),
            *_standby(config, source, tables),
            *_many(source),
            *(_without_members(source, spec) for spec in empty),
            *_map(source, place_of, alone),
            *(
                _renamed(source, old, new)
                for old, new in zip(mapped.tables, source.tables, strict=True)
                if old != new
            ),
        ]
    except KuvaszError as error:  # a secret file that is gone
        return [_failed(source.object_name, "url", "a url", error)]


def _many(source: Source) -> list[Finding]:
    """Return that a source has more tables than its patterns may take in, if it has."""
    if not source.patterns:
        return []
    try:
        with conninfo.asked(source.url.get(), errors.place_of(source.name)) as connection:
            pattern_tables.refuse_many(connection, source)
    except SourceTooLarge as error:
        return [_failed(source.object_name, "pattern", f"{source.max_tables:,} tables", error)]
    except SourceError:  # the check of the source says so
        pass
    return []


def _standby(config: Config, source: Source, tables: Sequence[TableName]) -> list[Finding]:
    url = source.url.get()
    if (standby := config.copy_limits(conninfo.servers(url)).copied_from) is None:
        return []
    there, role = conninfo.overlaid(url, standby.get()), source.replication_url
    return check_standby(source.object_name, url, there, tables, role)


def _wanted(config: Config, source: Source) -> StreamOptions:
    return StreamOptions(
        is_staged=config.cluster.log is not None, is_own_alone=source.origin is Origin.NONE,
        is_heard=config.cluster.group is not None, role=source.replication_url,
    )  # fmt: skip


def _map(source: Source, place_of: PlaceOf, alone: Collection[str]) -> list[Finding]:
    """Return what in the map does not fit the tables that are there, or what of them it leaves out.

    What else is wrong, other checks say.
    """
    try:
        with conninfo.asked(source.url.get(), errors.place_of(source.name)) as connection:
            tables = [spec.table for spec in source.tables]
            loaded = introspect.load_relations(connection, tables, inserts.with_inserts(source.object_name))
    except SourceError:  # the check of the source says so
        return []

    def at(spec: SourceTableSpec, option: str) -> str:
        return place_of(source.database, names.render_table(spec.table), option) if option else ""

    unfit = [
        Finding(
            source=source.object_name, check="map", value=f"{at(spec, unfit.option)}{unfit.why}",
            needed="options that fit the table", ok=False, table=spec.table, fix=unfit.hint or "",
        )
        for spec in _of_each_table(source)
        if (unfit := eligibility.why_unmapped(spec, loaded.get(spec.table))) is not None
    ]  # fmt: skip
    unmade = [
        _failed(source.object_name, "lake_table", "columns that a lake table can have", error, spec.table)
        for spec in source.tables
        if (error := _why_unmade(source, spec, loaded.get(spec.table), alone)) is not None
    ]
    return [*unfit, *unmade, *_caveats(source, loaded)]


def _of_each_table(source: Source) -> list[SourceTableSpec]:
    """Return an entry of each table: routes of one say the same of it."""
    return list({spec.table: spec for spec in source.tables}.values())


def _why_unmade(
    source: Source, spec: SourceTableSpec, table: SourceTable | None, alone: Collection[str]
) -> SchemaError | None:
    """Return why a lake table cannot be made of a source table; None if it can, or others say why not.

    Of what `set` makes only Spark knows the columns. Of a target that others fill as well, they may have a column
    that this one lacks.

    Args:
        source: The source.
        spec: What the map says of the table.
        table: As the catalog describes it.
        alone: The targets that one source fills.
    """
    if spec.config.set is not None or table is None or eligibility.why_unfit(spec, table) is not None:
        return None
    target = target_of(spec)
    try:
        relation = eligibility.checked(source.name, spec, table).relation
        fields = schema.wanted(target, schema.typed(target, relation))
        if spec.identifier in alone:
            layout.wanted(target, fields)
    except SchemaError as error:
        return error
    return None


def _caveats(source: Source, loaded: Mapping[TableName, SourceTable]) -> list[Finding]:
    """Return what tables may lack in the lake."""
    return [
        Finding(
            source=source.object_name, check=one.check, value=one.found, needed=one.needed, ok=False,
            severity=Severity.ADVICE, table=spec.table, fix=one.hint,
        )
        for spec in _of_each_table(source)
        for one in caveats.of(spec, loaded.get(spec.table), [source])
    ]  # fmt: skip


def _with_members(source: Source) -> tuple[Source, list[SourceTableSpec]]:
    """Return a source with the tables that its collapses take in, and the collapses that take in none."""
    collapses = [spec for spec in source.tables if spec.is_collapse]
    if not collapses:
        return source, []
    try:
        with contextlib.closing(conninfo.connect(source.url.get())) as connection:
            found = members.found(source, connection)
    except SourceError:  # the check of the source says so
        plain = tuple(spec for spec in source.tables if not spec.is_collapse)
        return dataclasses.replace(source, tables=plain), []
    full = {spec.identifier for spec in found.tables if spec.member}
    return found, [spec for spec in collapses if spec.identifier not in full]


def _with_names(config: Config, source: Source) -> Source:
    """Return a source with the tables that were renamed by the names they have now; the lake knows their OIDs."""
    try:
        with contextlib.closing(conninfo.connect(source.url.get())) as connection:
            there = introspect.tables_named(connection, [spec.table for spec in source.tables])
            lost = [spec for spec in source.tables if spec.table not in there]
            if not lost:
                return source
            lake = lakeview.LakeView(config)
            views = {spec.key: (view, source.name_of(spec)) for spec in lost if (view := lake.table(spec.identifier))}
            oids = {key: view.oids.get(name, 0) for key, (view, name) in views.items()}
            return renames.renamed(connection, source, oids)
    except (SourceError, LakeError):  # the checks of both say so
        return source


def _renamed(source: Source, mapped: SourceTableSpec, now: SourceTableSpec) -> Finding:
    entry = f"{names.render_table(now.table)} with `target: {now.identifier}`"
    return Finding(
        source=source.object_name, check="name", value=f"{now.table} now", ok=False, severity=Severity.ADVICE,
        needed=f"{mapped.table}, as in the map", table=now.table,
        fix=f"write {entry} into the map; it is followed as it is, too",
    )  # fmt: skip


def _without_members(source: Source, spec: SourceTableSpec) -> Finding:
    option, whose = ("`partitions_regex`", "tables") if spec.schemas is None else ("`schemas`", "schemas")
    return Finding(
        source=source.object_name, check="members", value="no table yet", ok=False, severity=Severity.ADVICE,
        needed=f"{whose} like {spec.schemas or spec.config.partitions_regex}", table=spec.table,
        fix=f"compare {option} with the {whose}' names; one that appears later is taken in",
    )  # fmt: skip


def _left_out(one: LeftOut) -> Finding:
    return Finding(
        source=f"{names.PREFIX}{one.source}", check="pattern", value=one.why, ok=False, severity=Severity.ADVICE,
        needed=f"a place in {one.pattern}", table=names.parse_table(one.table), fix=one.hint,
    )  # fmt: skip


def of_machine(config: Config) -> list[Finding]:
    """Return what a start needs of the machine that it runs on."""
    found = [_prove(_MACHINE, one, config) for one in conditions.BEFORE_SPARK]
    return found if config.cluster.coordinator is None else [*found, _prove(_MACHINE, _COORDINATOR, config)]


def _lake(config: Config) -> list[Finding]:
    is_asked = config.lake.type is CatalogType.REST and any(
        group.consistency is Consistency.GROUP for group in config.databases
    )
    return [
        *(_prove(_LAKE, one, config) for one in _OF_LAKE),
        *([_prove(_LAKE, _GROUPS, config)] if is_asked else []),
        *([] if config.cluster.log is None else [_prove(_LAKE, one, config) for one in (_LOG, _OWN)]),
        *([] if config.indexes_location is None else [_prove(_LAKE, _INDEXES, config)]),
        *(_untried(what) for what in conditions.untried(config)),
        *(_asked_at_start(name) for name in config.lake.asked_at_start),
    ]


def _untried(what: str) -> Finding:
    return Finding(
        source=_LAKE, check="tried", value=what, needed="one that kuvasz was tested with", ok=False,
        severity=Severity.ADVICE, fix="try it on a copy of the data first, kills included, then `kuvasz verify`",
    )  # fmt: skip


def _asked_at_start(name: str) -> Finding:
    """Return what whoever exchanges a secret, and waits for kuvasz to have seen it, should know before."""
    return Finding(
        source=_LAKE, check="credentials", value=f"{name} is asked for at a start alone",
        needed="asked for again while kuvasz runs", ok=False, severity=Severity.ADVICE,
        fix="start kuvasz again when it was exchanged, before the one of before ends",
    )  # fmt: skip


def _prove(where: str, condition: Condition, config: Config) -> Finding:
    try:
        value = condition.prove(config)
    except KuvaszError as error:
        return _failed(where, condition.name, condition.needed, error)
    return Finding(source=where, check=condition.name, value=value, needed=condition.needed, ok=True)


def _failed(source: str, check: str, needed: str, error: KuvaszError, table: TableName | None = None) -> Finding:
    return Finding(
        source=source, check=check, value=error.message, needed=needed, ok=False, table=table, fix=mend_of(error)
    )


def _verdict(finding: Finding) -> str:
    return "ok" if finding.ok else "FAILED" if finding.is_blocking else "advice"


def _place(finding: Finding) -> str:
    return finding.source if finding.table is None else f"{finding.source} {finding.table}"


def _short(value: str) -> str:
    """Return a value that fits a column; what is not ok is told whole below the table."""
    return value if len(value) <= _WIDEST else f"{value[: _WIDEST - 1]}…"
