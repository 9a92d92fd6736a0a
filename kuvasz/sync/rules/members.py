"""Which tables of a source a collapse (`partitions_regex`) takes in, now; and what of them the lake remembers.

A member is known by its OID, which outlives a new name, and towards the lake it is a source of its own
(`names.member_name`): with its own position, columns, copy, errors and files. So a newcomer is what any table is that
is added while the stream runs, and nothing of one member touches another.

The lake remembers, per source, the name under which each member's rows came (`SourceNotes.remember_partitions`): a
table that was dropped and created again has the same name and another OID, and must not be put beside its earlier
rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from typing import Any, Final

from kuvasz.config.sources import Source, SourceTableSpec
from kuvasz.errors import SourceTooLarge, place_of
from kuvasz.source.catalog import members

#: Tables of one source that may be one target: each has properties of its own there, which every commit to it, also
#: of other sources, writes anew.
MOST_MEMBERS: Final = 10_000

#: And whose rows it may have, those that were dropped included: their names stand in a property of it for ever.
MOST_REMEMBERED: Final = 50_000


def found(
    source: Source,
    connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
    others: Collection[int] = (),
) -> Source:
    """Return a source of the map with each collapse replaced by the tables it takes in now.

    Args:
        source: The source, as the map has it.
        connection: To it.
        others: OIDs of tables whose rows entries of their own have, whatever they are called now.

    Raises:
        SourceError: The catalog cannot be read, or a collapse takes in too many tables.
    """
    if not any(spec.is_collapse for spec in source.tables):
        return source
    return expanded(source, candidates(source, connection), others)


def candidates(
    source: Source,
    connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
) -> list[members.Candidate]:
    """Return the tables that may be members of a source's collapses, by name.

    Raises:
        SourceError: The catalog cannot be read.
    """
    collapses = [spec for spec in source.tables if spec.is_collapse]
    if any(spec.schemas is not None for spec in collapses):  # then all of them are of such schemas
        return members.named(connection, {spec.table.name for spec in collapses})
    return members.load(connection, {spec.table.schema for spec in collapses})


def expanded(source: Source, there: Iterable[members.Candidate], others: Collection[int] = ()) -> Source:
    """Return a source of the map with each collapse replaced by those of the tables there that it takes in. Pure.

    A partition comes with what it is a partition of, if the map takes that in. A table that an entry of its own
    follows (`others`) stays that entry's when it gets a name that a collapse takes in.

    Raises:
        SourceTooLarge: A collapse takes them in.
    """
    there = list(there)
    taken = {one.oid: spec for one in there if (spec := source.find(one.table)) is not None}
    specs: dict[str, list[SourceTableSpec]] = {}
    above = taken.keys() | set(others)
    for one in there:
        spec = taken.get(one.oid)
        if spec is not None and spec.is_collapse and one.oid not in others and above.isdisjoint(one.ancestors):
            specs.setdefault(spec.identifier, []).append(spec.of_member(one.table, one.oid))
    for target, taken_in in specs.items():
        if len(taken_in) > MOST_MEMBERS:
            what = f"{len(taken_in):,} tables of it are {target}, and at most {MOST_MEMBERS:,} may be"
            hint = "drop those that are not needed, or have `partitions_regex` take in fewer; it is tried again"
            raise SourceTooLarge(f"{place_of(source.name)}: {what}", hint=hint)
    tables = [
        member
        for spec in source.tables
        for member in (specs.get(spec.identifier, ()) if spec.is_collapse else (spec,))
    ]
    return dataclasses.replace(source, tables=tuple(tables))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MemberChanges:
    """What came, went and was renamed between two looks."""

    came: tuple[SourceTableSpec, ...]
    left: tuple[SourceTableSpec, ...]
    renamed: tuple[tuple[SourceTableSpec, SourceTableSpec], ...]  #: before and now


def compare(before: Source, now: Source) -> MemberChanges:
    """Return what is different about the members of a source. Pure."""
    old = {spec.key: spec for spec in before.tables if spec.member}
    new = {spec.key: spec for spec in now.tables if spec.member}
    return MemberChanges(
        came=tuple(spec for key, spec in new.items() if key not in old),
        left=tuple(spec for key, spec in old.items() if key not in new),
        renamed=tuple((old[key], spec) for key, spec in new.items() if key in old and old[key].table != spec.table),
    )


def remembered(parts: Iterable[str]) -> dict[str, str]:
    """Return OID -> name of the members whose rows a target has; the reverse of `rendered`."""
    return dict(part.split(" ", 1) for part in parts)


def rendered(known: dict[str, str]) -> frozenset[str]:
    """Return what the lake is to remember."""
    return frozenset(f"{oid} {name}" for oid, name in known.items())


__all__ = ["MOST_REMEMBERED", "MemberChanges", "candidates", "compare", "expanded", "found", "remembered", "rendered"]
