"""Which targets a relation feeds, and which worker serves it. Implements `kuvasz.ports.Routes`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from kuvasz import typemap
from kuvasz.config import names
from kuvasz.config.model import Deletes, OnBadValue, Origin
from kuvasz.config.problem import suggestion
from kuvasz.config.sources import Source, SourceTableSpec
from kuvasz.model import NOTHING, Relation, TableName
from kuvasz.ports import Feed, Target
from kuvasz.route.hashing import owner_of

#: Names of relations whose entries are kept: a source may describe any number that are none of the map's.
_MOST_NAMES = 20_000


class SourceRoutes:
    """Which targets each table of one source feeds: one, or those of its routes.

    Args:
        source: As the map has it.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._specs: dict[TableName, tuple[SourceTableSpec, ...]] = {}
        self._by_oid: dict[int, tuple[SourceTableSpec, ...]] = {}
        self._oids: dict[str, int] = {}  # target -> OID of the table that feeds it

    def bind(self, spec: SourceTableSpec, oid: int) -> None:
        """See `Targets.bind`."""
        if not spec.member:
            self._know(spec, oid)
        self._by_oid[oid] = (*self._beside(spec, oid), spec)

    def claim(self, spec: SourceTableSpec, oid: int) -> None:
        """See `Targets.claim`."""
        self._know(spec, oid)
        beside = self._beside(spec, oid)
        if len(beside) == len(self._by_oid.get(oid, ())):
            self._by_oid[oid] = (*beside, spec)

    def _beside(self, spec: SourceTableSpec, oid: int) -> tuple[SourceTableSpec, ...]:
        """Return the other routes of a table that have it."""
        return tuple(one for one in self._by_oid.get(oid, ()) if one.is_beside(spec))

    def _know(self, spec: SourceTableSpec, oid: int) -> None:
        before = self._oids.get(spec.identifier)
        self._oids[spec.identifier] = oid
        if before not in {None, oid} and self.is_bound(spec, before):  # else another entry has it by now
            self._let_go(spec.identifier, before)

    def _let_go(self, target: str, oid: int) -> None:
        left = tuple(one for one in self._by_oid.pop(oid, ()) if one.identifier != target)
        if left:
            self._by_oid[oid] = left

    def unbind(self, target: str, member: str) -> bool:
        """See `Targets.unbind`; returns whether it was bound."""
        oid = names.oid_of(member)
        is_bound = any(one.member == member and one.identifier == target for one in self._by_oid.get(oid, ()))
        if is_bound:
            self._let_go(target, oid)
        return is_bound

    def is_bound(self, spec: SourceTableSpec, oid: int) -> bool:
        """See `Targets.is_bound`."""
        return any(one.identifier == spec.identifier for one in self._by_oid.get(oid, ()))

    def specs(self, relation: Relation) -> tuple[SourceTableSpec, ...]:
        """Return the entries that a relation's changes go to; none: the map has none."""
        bound = self._by_oid.get(relation.oid, ())
        if bound and bound[0].route is None:
            return bound
        if relation.table not in self._specs:
            if len(self._specs) >= _MOST_NAMES:
                self._specs = {}
            self._specs[relation.table] = self._source.find_all(relation.table)
        # One that is taken has the name of a table that was copied, and is another one.
        named = [one for one in self._specs[relation.table] if one.identifier not in self._oids]
        return (*bound, *(one for one in named if not bound or one.is_beside(bound[0])))


class Targets:
    """The map, as the pipeline asks it. From any thread.

    Args:
        sources: All sources.
        workers: How many workers there are that share all targets.
        own: What routes targets to a worker of their own (`config.sources.paces`).
    """

    def __init__(self, sources: Iterable[Source], workers: int, own: Sequence[str] = ()) -> None:
        self._workers = workers
        self._own = own
        self._of: dict[str, SourceRoutes] = {}
        self._owners: dict[tuple[str, str], str] = {}  # (target, sid) -> source
        self.routed_by: dict[str, str] = {}  #: target -> what routes it to its worker, if that is not its name
        for source in sources:
            self.replace(source.name, source)

    def replace(self, name: str, source: Source | None) -> None:
        """Go by another entry of the map for a source, or by none; what was learned of its tables is forgotten."""
        for rows in [rows for rows, owner in tuple(self._owners.items()) if owner == name]:
            self._owners.pop(rows, None)
        if source is None:
            self._of.pop(name, None)
            return
        self._of[name] = SourceRoutes(source)
        for spec in source.tables:
            if spec.routed_by != spec.identifier:
                self.routed_by[spec.identifier] = spec.routed_by
            else:
                self.routed_by.pop(spec.identifier, None)
        for spec in source.tables:
            if spec.has_sid and spec.schemas is None and source.sid is not None:
                self.own(name, spec.identifier, source.sid)

    def bind(self, source: str, spec: SourceTableSpec, oid: int) -> None:
        """Have the changes of the table with this OID go to an entry's target, whatever the table is called.

        From then on no other table does so for having the name that the map says; others are members as well.
        """
        self._of[source].bind(spec, oid)

    def claim(self, source: str, spec: SourceTableSpec, oid: int) -> None:
        """Do the same, unless another entry has the table: of two targets that have had its rows, one follows."""
        self._of[source].claim(spec, oid)

    def unbind(self, source: str, target: str, member: str) -> None:
        """Let go of a member: its changes go to the target as long as its name is taken in, and no longer."""
        tenant = names.tenant_of(member)
        if self._of[source].unbind(target, member) and self._owners.get((target, tenant or "")) == source:
            self._owners.pop((target, tenant or ""), None)

    def has(self, source: str) -> bool:
        """Whether a source is in the map."""
        return source in self._of

    def own(self, source: str, target: str, sid: str) -> str:
        """Return the source whose rows those of a sid are: the first that asks, for as long as it has them."""
        return self._owners.setdefault((target, sid), source)

    def is_bound(self, source: str, spec: SourceTableSpec, oid: int) -> bool:
        """Whether the changes of the table with this OID go to an entry's target."""
        return self._of[source].is_bound(spec, oid)

    def find(self, source: str, relation: Relation) -> tuple[tuple[str, str], ...]:
        """Return the targets a relation feeds, each with the name it knows the relation's source by.

        A table is known by its OID, once the lake has its rows, whatever it is called when its changes come.
        """
        return tuple(
            (spec.identifier, names.member_name(source, spec.member_of(relation.table, relation.oid)))
            for spec in self._specs(source, relation)
        )

    def worker(self, source: str, relation: Relation) -> int | None:
        """See `kuvasz.ports.Routes`."""
        specs = self._specs(source, relation)  # one worker has all routes of a table
        return owner_of(specs[0].routed_by, self._workers, self._own) if specs else None

    def worker_of_target(self, target: str) -> int:
        """Return the number of the worker that owns a target."""
        return owner_of(self.routed_by.get(target, target), self._workers, self._own)

    def _specs(self, source: str, relation: Relation) -> tuple[SourceTableSpec, ...]:
        routes = self._of.get(source)  # a worker may still have something of one that has left the map
        return () if routes is None else routes.specs(relation)


def target_of(spec: SourceTableSpec, mask_secret: bytes = b"") -> Target:
    """Return the target of a map entry as the lake wants it."""
    return Target(
        name=spec.identifier,
        has_sid=spec.has_sid,
        has_members=spec.config.partitions_regex is not None,
        types=spec.config.asked_types,
        out_of_range=str(spec.config.out_of_range),
        rejects=spec.config.on_bad_value is not OnBadValue.STOP,
        keeps_earlier=spec.config.on_bad_value is OnBadValue.KEEP,
        is_soft=spec.config.deletes is Deletes.SOFT,
        filter=spec.config.filter,
        set=spec.config.set,
        dialect=spec.dialect,
        mask=spec.config.mask,
        mask_secret=mask_secret,
        key=spec.config.key,
        place=f"table {names.render_table(spec.table)} of the map",
        columns=None if spec.config.columns is None else frozenset(spec.config.columns),
        exclude=frozenset(spec.config.exclude or ()) or NOTHING,
        partition_by=spec.config.partition_by,
        sort_by=spec.config.sort_by,
        type=spec.config.type,
        on_schema_change=str(spec.config.on_schema_change),
        group=spec.group,
        location=spec.config.table_location,
        properties=spec.config.properties,
        maintenance=spec.config.maintenance.said,
        branch=spec.branch,
    )


def narrowed(spec: SourceTableSpec, relation: Relation) -> Relation:
    """Return a relation with the columns to be copied: those that a map entry takes, or that its filter may need."""
    target = target_of(spec)
    taken = [column for column in relation.columns if target.takes(column.name) or target.may_read(column.name)]
    return dataclasses.replace(relation, columns=tuple(taken))


def why_not_taken(spec: SourceTableSpec, relation: Relation) -> str:
    """Say what is wrong with a map entry's `columns` or `exclude` for a table; empty if nothing is."""
    names = [column.name for column in relation.columns]
    for option in ("columns", "exclude"):
        for name in getattr(spec.config, option) or ():
            if name not in names:
                return f"{option} names {name!r}, which the table does not have{suggestion(name, names)}"
    for option in ("types", "decimals"):
        for name in getattr(spec.config, option):
            if name not in names:
                return f"{option} names {name!r}, which the table does not have{suggestion(name, names)}"
    target = target_of(spec)
    for name in spec.config.mask:
        if name in names and not target.takes(name):
            return f"mask names {name!r}, which is left out"
    lost = [name for name in relation.key if not target.takes(name)]
    if lost:
        option = "exclude" if lost[0] in target.exclude else "columns"
        return f"{option} leaves out {', '.join(lost)}, which identifies the rows"
    return ""


def wrong_type(spec: SourceTableSpec, relation: Relation) -> str:
    """Return a column that a map entry has a type for which it cannot have; empty if there is none."""
    columns = {column.name: column for column in relation.columns}
    for name, asked in spec.config.asked_types.items():
        if asked != "string" and name in columns and not typemap.is_numeric(columns[name].pg_type):
            return name
    return ""


def redacted_key(spec: SourceTableSpec, relation: Relation) -> str:
    """Return a column of the key that a map entry has redacted, which would make one row of all; empty if none is.

    Args:
        spec: What the map says of the table.
        relation: From the catalog, with its key.
    """
    keys = set(spec.config.key or relation.key)
    if spec.config.set is not None and spec.config.key is None:
        keys = {name for name, text in spec.config.set.items() if text.strip().strip("`") in relation.key}
    redacted = [name for name, method in spec.config.mask.items() if method == "redact" and name in keys]
    return redacted[0] if redacted else ""


def feed_of(source: Source, spec: SourceTableSpec) -> Feed:
    """Return the feed of a map entry."""
    sid = source.sid if spec.tenant is None else spec.tenant
    return Feed(
        target=spec.identifier, source=source.name_of(spec), sid=sid, table=spec.table,
        is_own_alone=source.origin is Origin.NONE,
    )  # fmt: skip
