"""The flat plan: each source with its tables, each target with what feeds it."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import urllib.parse
from typing import TYPE_CHECKING

from kuvasz.config import names
from kuvasz.config.model import Consistency, Origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kuvasz.config.model import Config, DatabaseConfig, LakeConfig, OnSlotLost, TableConfig, UrlConfig
    from kuvasz.config.secrets import SecretUrl
    from kuvasz.model import TableName

#: How settings of Spark begin by which an expression may give another value of the same row.
_OF_EXPRESSIONS = (
    "spark.sql.ansi.", "spark.sql.caseSensitive", "spark.sql.decimalOperations.", "spark.sql.function.",
    "spark.sql.legacy.", "spark.sql.mapKeyDedupPolicy", "spark.sql.parser.", "spark.sql.session.timeZone",
    "spark.sql.timestampType",
)  # fmt: skip

#: What some of them are when nobody says otherwise.
_UNSAID = {"spark.sql.ansi.enabled": "true", "spark.sql.caseSensitive": "false", "spark.sql.session.timeZone": "utc"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceTableSpec:
    """One entry of ``tables``, for one source.

    Attributes:
        table: The source table. With `TableConfig.partitions_regex`, the name of the collapse: there may or may
            not be a table of this name.
        config: What the map says of it.
        namespace: The namespace of the target; dots separate its levels.
        target: The target's name within its namespace.
        has_sid: The target has a column ``sid`` that is part of its key.
        member: Which of the tables of a collapse it is: its OID, that outlives a new name, and the tenant whose it is
            where `schemas` takes it in. Empty for any other entry, and for that of the collapse itself.
        schemas: `UrlConfig.schemas` of its source: it stands for the table of its name in each of these schemas.
        group: The group all of whose targets change in one commit; None: its target is committed on its own.
        branch: The target's branch that is written.
        dialect: The settings of Spark by which its expressions give other values than they do without; empty: none.
    """

    table: TableName
    config: TableConfig
    namespace: str
    target: str
    has_sid: bool
    member: str = ""
    schemas: str | None = None
    group: str | None = None
    branch: str = "main"
    dialect: str = ""

    @property
    def identifier(self) -> str:
        """``namespace.target``: what a target is called everywhere. Of thousands of sources it is one text."""
        return sys.intern(f"{self.namespace}.{self.target}")

    @property
    def routed_by(self) -> str:
        """What its target is routed to its worker by: one worker has what changes in one commit, or at one pace."""
        if self.config.commit_interval is not None:
            return _pace(self.config.commit_interval)
        if self.group is not None:
            return self.group
        return self.identifier if self.route is None else f"\0route {self.route}"  # what no target is called

    @property
    def route(self) -> str | None:
        """What the targets of its table are called together, where those are several (`TableConfig.route`)."""
        return None if self.config.route is None else self.config.route.to

    def is_beside(self, other: SourceTableSpec) -> bool:
        """Whether two entries of one source are routes of one table, so that each has all of its changes."""
        return self.route is not None and self.route == other.route and self.identifier != other.identifier

    @property
    def key(self) -> str:
        """What tells it from the other entries of its source."""
        return names.member_name(self.identifier, self.member)

    @property
    def is_collapse(self) -> bool:
        """Whether it stands for tables that are found at the source, and is none itself."""
        is_of_many = self.config.partitions_regex is not None or self.schemas is not None
        return is_of_many and not self.member

    @property
    def oid(self) -> int:
        """The OID of a member; 0 of any other entry."""
        return names.oid_of(self.member)

    @property
    def tenant(self) -> str | None:
        """The sid of the rows of a member that `schemas` takes in; None of any other entry."""
        return names.tenant_of(self.member)

    def of_member(self, table: TableName, oid: int) -> SourceTableSpec:
        """Return the entry of a table that the collapse takes in."""
        tenant = self._tenant_in(table.schema)
        member = str(oid) if tenant is None else names.tenant_member(oid, tenant)
        return dataclasses.replace(self, table=table, member=member)

    def member_of(self, table: TableName, oid: int) -> str:
        """Return which member a table is that goes to this entry; empty if it is none."""
        return self.of_member(table, oid).member if self.is_collapse else self.member

    def collapses(self, table: TableName) -> bool:
        """Say whether `partitions_regex` takes this table in, or `schemas` does."""
        if not self.is_collapse:
            return False
        if self.schemas is not None:
            return table.name == self.table.name and self._tenant_in(table.schema) is not None
        regex = self.config.partitions_regex or ""
        return table.schema == self.table.schema and bool(re.fullmatch(regex, table.name))

    def _tenant_in(self, schema: str) -> str | None:
        """Return what `schemas` captures of the name of a schema; None if it does not take that in."""
        found = None if self.schemas is None else re.fullmatch(self.schemas, schema)
        return (found[1] or None) if found is not None else None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """An entry of the map that stands for all tables like it.

    Attributes:
        key: Its name in the map.
        excepted: Names and patterns of tables that it does not take in.
    """

    key: str
    excepted: tuple[str, ...] = ()

    @property
    def table(self) -> TableName:
        """Its name, as a table's."""
        return names.parse_table(self.key)

    def means(self, table: TableName) -> bool:
        """Say whether a table is like it."""
        return names.means(self.key, table) and not any(names.means(other, table) for other in self.excepted)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One database that is replicated.

    Attributes:
        name: What kuvasz calls it: its slot's name without ``kuvasz_``.
        database: The group's name in the map.
        sid: What identifies its rows in targets with several sources; None if it is the only one. With `schemas` in
            the names of slot and publication alone: what they capture identifies the rows.
        url: Where it is; hides its password.
        tables: In the map's order, those that patterns take in behind the others.
        on_slot_lost: What to do without a slot.
        origin: Which changes its stream brings, by where they were made.
        patterns: Its entries that are patterns, whose tables are looked for while it is replicated.
        max_tables: How many tables of it may be like them.
        replication_url: Who replicates it, if that is another role than the one of `url`; hides its password.
    """

    name: str
    database: str
    sid: str | None
    url: SecretUrl
    tables: tuple[SourceTableSpec, ...]
    on_slot_lost: OnSlotLost
    origin: Origin = Origin.ANY
    patterns: tuple[Pattern, ...] = ()
    max_tables: int = 0
    replication_url: SecretUrl | None = None

    @property
    def object_name(self) -> str:
        """The name of its slot and of its publication; one object, which many parts of the source have."""
        return sys.intern(names.object_name(self.database, self.sid))

    def name_of(self, spec: SourceTableSpec) -> str:
        """Return the name that the lake, the states and the workers know an entry's rows by."""
        return names.member_name(self.name, spec.member)

    def find(self, table: TableName) -> SourceTableSpec | None:
        """Return the entry that a source table belongs to: its own, else the first whose regex takes it in."""
        return next(iter(self.find_all(table)), None)

    def find_all(self, table: TableName) -> tuple[SourceTableSpec, ...]:
        """Return the same; of a table with routes, all of them."""
        named = tuple(spec for spec in self.tables if spec.table == table and spec.schemas is None)
        if named:
            return tuple(spec for spec in named if spec is named[0] or spec.is_beside(named[0]))
        return next(((spec,) for spec in self.tables if spec.collapses(table)), ())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TargetFeed:
    """One source's part in a target."""

    source: Source
    spec: SourceTableSpec


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MappedTarget:
    """One table of the lake; its feeds agree on everything but their own rows (see `kuvasz.config.check`)."""

    namespace: str
    name: str
    has_sid: bool
    config: TableConfig
    feeds: tuple[TargetFeed, ...]

    @property
    def identifier(self) -> str:
        """``namespace.name``."""
        return f"{self.namespace}.{self.name}"


def resolve(config: Config) -> tuple[Source, ...]:
    """Return every source of the map with its tables, in the map's order; a group without tables has none.

    Tables that are not `enabled` are none of it.
    """
    with_sid, found = _targets_with_sid(config), []
    for group in config.databases:
        entries = [(key, table) for key, table in entries_of(group) if table.enabled]
        together = group.database if group.consistency is Consistency.GROUP else None
        specs = [(key, _spec(config, key, table, with_sid)) for key, table in entries]
        tables = [(key, dataclasses.replace(spec, group=together)) for key, spec in specs]
        patterns = tuple(
            Pattern(key=key, excepted=tuple(table.excepted)) for key, table in group.patterns.items() if table.enabled
        )
        found += [
            _source(group, url, tables, patterns) for url in (group.urls if tables or patterns else ())
        ]  # fmt: skip
    return tuple(found)


def entries_of(group: DatabaseConfig) -> list[tuple[str, TableConfig]]:
    """Return the entries of a group's tables with their keys; one with `route` stands there once for each target."""
    return [
        (key, one)
        for key, table in group.entries.items()
        for one in (
            [table] if table.route is None else [table.routed(*entry) for entry in table.route.entries(table.filter)]
        )
    ]


def _source(
    group: DatabaseConfig,
    url: UrlConfig,
    tables: Sequence[tuple[str, SourceTableSpec]],
    patterns: tuple[Pattern, ...],
) -> Source:
    name = names.source_name(group.database, url.sid)
    mine = [spec for key, spec in tables if group.found is None or group.found.has(key, name)]
    return Source(
        name=name,
        database=group.database,
        sid=url.sid,
        url=url.url,
        # Sources that are alike have the same entries, and not equal ones.
        tables=tuple(
            spec if url.schemas is None else dataclasses.replace(spec, schemas=url.schemas) for spec in mine
        ),
        on_slot_lost=group.on_slot_lost,
        origin=url.origin,
        patterns=patterns,
        max_tables=group.max_tables,
        replication_url=url.replication_url,
    )


#: Each of them has a worker, and that two threads.
MOST_PACES = 8


def paces(mapped: Iterable[Source]) -> dict[str, float]:
    """Return the paces of targets that are not committed at everybody's: what routes them, and seconds."""
    found = {spec.config.commit_interval for source in mapped for spec in source.tables}
    return {_pace(seconds): seconds for seconds in sorted(one for one in found if one is not None)}


def _pace(seconds: float) -> str:
    return f"\0every {seconds:g} s"  # what no target or group is called


def with_all_tables(config: Config) -> Config:
    """Return a map in which all tables are `enabled`: of those that are left out the lake has rows all the same."""
    groups = [_with_all(group) for group in config.databases]
    return config.model_copy(update={"databases": tuple(groups)})


def _with_all(group: DatabaseConfig) -> DatabaseConfig:
    tables = {key: _enabled(one) for key, one in group.tables.items()}
    known, found = group.model_copy(update={"tables": tables}), group.found
    if found is None:
        return known
    taken = {key: dataclasses.replace(one, config=_enabled(one.config)) for key, one in found.tables.items()}
    return known.knowing(dataclasses.replace(found, tables=taken))


def _enabled(table: TableConfig) -> TableConfig:
    return table.model_copy(update={"enabled": True})


def targets(config: Config) -> tuple[MappedTarget, ...]:
    """Return every target with what feeds it, in the map's order."""
    feeds: dict[str, list[TargetFeed]] = {}
    for source in resolve(config):
        for spec in source.tables:
            feeds.setdefault(spec.identifier, []).append(TargetFeed(source=source, spec=spec))
    return tuple(
        MappedTarget(
            namespace=first.spec.namespace,
            name=first.spec.target,
            has_sid=first.spec.has_sid,
            config=first.spec.config,
            feeds=(first, *others),
        )
        for first, *others in feeds.values()
    )


def identifiers(config: Config) -> frozenset[str]:
    """Return the names that texts about a map's sources and tables are made of: roles, databases, tables, sids."""
    found = {names.DEFAULT_SCHEMA, "postgres", "kuvasz", config.lake.name, config.lake.namespace}
    for source in resolve(config):
        found |= {source.name, source.object_name, source.database, source.sid or "", *_in_url(source.url.get())}
        found |= set() if source.replication_url is None else _in_url(source.replication_url.get())
        for spec in source.tables:
            found |= {spec.table.schema, spec.table.name, spec.namespace, spec.target}
    return frozenset(found - {""})


def _in_url(url: str) -> set[str]:
    """Return role, hosts and database of a url, as they stand in it and decoded."""
    account, _, place = url.partition("://")[2].partition("?")[0].rpartition("@")
    hosts, _, database = place.partition("/")
    found = {account.partition(":")[0], database, *(host.partition(":")[0] for host in hosts.split(","))}
    return found | {urllib.parse.unquote(name) for name in found}


def target_name(lake: LakeConfig, key: str, table: TableConfig) -> tuple[str, str]:
    """Return namespace and name of a table's target.

    The name is the source table's own, or what its routes are called together. A dot in it becomes ``_``, because
    dots separate namespaces in the lake.
    """
    target = table.target if table.route is None else table.target or table.route.to
    if target is None:
        return lake.namespace, names.parse_table(key).name.replace(".", "_")
    *namespace, name = names.split_name(target)
    return ".".join(namespace) or lake.namespace, name.replace(".", "_")


def _targets_with_sid(config: Config) -> frozenset[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for group in config.databases:
        if len(group.urls) > 1 or any(url.sid is not None or url.schemas is not None for url in group.urls):
            found |= _targets_of(config.lake, group)
    return frozenset(found)


def _targets_of(lake: LakeConfig, group: DatabaseConfig) -> set[tuple[str, str]]:
    return {target_name(lake, key, table) for key, table in entries_of(group)}


def _spec(config: Config, key: str, table: TableConfig, with_sid: frozenset[tuple[str, str]]) -> SourceTableSpec:
    namespace, target = target_name(config.lake, key, table)
    return SourceTableSpec(
        table=names.parse_table(key),
        config=table,
        namespace=namespace,
        target=target,
        has_sid=(namespace, target) in with_sid,
        branch=table.branch or config.lake.branch,
        dialect=_dialect(config.spark.conf) if table.filter is not None or table.set is not None else "",
    )


def _dialect(conf: Mapping[str, object]) -> str:
    said = {name: str(value).lower() for name, value in conf.items() if name.startswith(_OF_EXPRESSIONS)}
    other = {name: value for name, value in said.items() if _UNSAID.get(name) != value}
    return json.dumps(other, sort_keys=True) if other else ""
