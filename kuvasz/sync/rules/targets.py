"""Which target a relation feeds, and which worker serves it. Implements `kuvasz.ports.Routes`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from kuvasz import typemap
from kuvasz.config import names
from kuvasz.config.model import Mask
from kuvasz.config.problem import suggestion
from kuvasz.config.sources import Source, SourceTableSpec
from kuvasz.model import Relation, TableName
from kuvasz.ports import Feed, Target
from kuvasz.route.hashing import worker_of


class Targets:
    """The map, as the pipeline asks it.

    Args:
        sources: All sources.
        workers: How many workers there are.
    """

    def __init__(self, sources: Iterable[Source], workers: int) -> None:
        self._workers = workers
        self._sources = {source.name: source for source in sources}
        self._specs: dict[tuple[str, TableName], SourceTableSpec | None] = {}
        self._by_oid: dict[tuple[str, int], SourceTableSpec] = {}
        self._oids: dict[tuple[str, str], int] = {}  # (source, target) -> OID of the table that feeds it

    def bind(self, source: str, spec: SourceTableSpec, oid: int) -> None:
        """Have the changes of the table with this OID go to an entry's target, whatever the table is called.

        From then on no other table does so for having the name that the map says; others are members as well.
        """
        if spec.member:
            self._by_oid[source, oid] = spec
            return
        self._know(source, spec, oid)
        self._by_oid[source, oid] = spec

    def claim(self, source: str, spec: SourceTableSpec, oid: int) -> None:
        """Do the same, unless another entry has the table: of two targets that have had its rows, one follows."""
        self._know(source, spec, oid)
        self._by_oid.setdefault((source, oid), spec)

    def _know(self, source: str, spec: SourceTableSpec, oid: int) -> None:
        key = source, spec.identifier
        before = self._oids.get(key)
        self._oids[key] = oid
        if before not in {None, oid} and self.is_bound(source, spec, before):  # else another entry has it by now
            del self._by_oid[source, before]

    def unbind(self, source: str, target: str, oid: int) -> None:
        """Let go of a member: its changes go to the target as long as its name is taken in, and no longer."""
        bound = self._by_oid.get((source, oid))
        if bound is not None and bound.member and bound.identifier == target:
            del self._by_oid[source, oid]

    def is_bound(self, source: str, spec: SourceTableSpec, oid: int) -> bool:
        """Whether the changes of the table with this OID go to an entry's target."""
        bound = self._by_oid.get((source, oid))
        return bound is not None and bound.identifier == spec.identifier

    def find(self, source: str, relation: Relation) -> tuple[str, str] | None:
        """Return the target a relation feeds, and the name it knows the relation's source by; None: the map has none.

        A table is known by its OID, once the lake has its rows, whatever it is called when its changes come.
        """
        spec = self._spec(source, relation)
        if spec is None:
            return None
        is_one_of_many = spec.is_collapse or spec.member
        return spec.identifier, names.member_name(source, str(relation.oid) if is_one_of_many else "")

    def worker(self, source: str, relation: Relation) -> int | None:
        """See `kuvasz.ports.Routes`."""
        spec = self._spec(source, relation)
        return None if spec is None else worker_of(spec.identifier, self._workers)

    def _spec(self, source: str, relation: Relation) -> SourceTableSpec | None:
        bound = self._by_oid.get((source, relation.oid))
        if bound is not None:
            return bound
        key = (source, relation.table)
        if key not in self._specs:
            self._specs[key] = self._sources[source].find(relation.table)
        named = self._specs[key]
        is_taken = named is not None and (source, named.identifier) in self._oids
        return None if is_taken else named  # else it has the name of a table that was copied, and is another one


def target_of(spec: SourceTableSpec, mask_secret: bytes = b"") -> Target:
    """Return the target of a map entry as the lake wants it."""
    return Target(
        name=spec.identifier,
        has_sid=spec.has_sid,
        has_members=spec.config.partitions_regex is not None,
        types=spec.config.asked_types,
        out_of_range=str(spec.config.out_of_range),
        filter=spec.config.filter,
        set=spec.config.set,
        mask={column: str(method) for column, method in spec.config.mask.items()},
        mask_secret=mask_secret,
        key=spec.config.key if spec.config.set is not None else None,
        place=f"table {names.render_table(spec.table)} of the map",
        columns=None if spec.config.columns is None else frozenset(spec.config.columns),
        exclude=frozenset(spec.config.exclude or ()),
        partition_by=spec.config.partition_by,
        sort_by=spec.config.sort_by,
        type=spec.config.type,
        on_schema_change=str(spec.config.on_schema_change),
    )


def narrowed(spec: SourceTableSpec, relation: Relation) -> Relation:
    """Return a relation with the columns to be copied: those that a map entry takes, or that its filter may need."""
    if spec.config.filter is not None:
        return relation
    target = target_of(spec)
    return dataclasses.replace(
        relation, columns=tuple(column for column in relation.columns if target.takes(column.name))
    )


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
        spec: Of the map.
        relation: From the catalog, with its key.
    """
    keys = set(spec.config.key or relation.key)
    if spec.config.set is not None and spec.config.key is None:
        keys = {name for name, text in spec.config.set.items() if text.strip().strip("`") in relation.key}
    redacted = [name for name, method in spec.config.mask.items() if method is Mask.REDACT and name in keys]
    return redacted[0] if redacted else ""


def feed_of(source: Source, spec: SourceTableSpec) -> Feed:
    """Return the feed of a map entry."""
    return Feed(target=spec.identifier, source=source.name_of(spec), sid=source.sid, table=spec.table)
