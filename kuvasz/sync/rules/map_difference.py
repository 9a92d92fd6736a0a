"""What a map has otherwise than the one that runs, and which of it counts without a restart. Pure.

Databases and their tables follow while kuvasz runs: a source that differs is ended and begun again, as a restart
would do, and all others go on. A loaded table is built around the definition of its target: of another one it is
loaded anew, when none of those that fed it is left. What all sources share is made once, at a start: sections but
`map`, `cuts`, `verify`, `copy` and `notify`. `server.tokens` are looked up at each request, `log.level` is set anew,
workers are told another `pipeline.commit_interval`, and a JDBC catalog the credentials for its connections to come.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kuvasz.config import check, names, problem, sources
from kuvasz.config.model import SECTIONS, Config, Deletes
from kuvasz.config.sources import Source, SourceTableSpec
from kuvasz.errors import ConfigError, place_of
from kuvasz.model import TableName, TableType
from kuvasz.sync.rules.feeders import rows_of

#: The sections that are read anew each time; all others are held until the next start, but for some options.
LIVE = frozenset({"map", "cuts", "verify", "copy"})
_LIVE_OPTIONS = (("server", "tokens"), ("log", "level"), ("pipeline", "commit_interval"))

_ANOTHER_NAME = (
    "a new sid has to differ in more than capitals and signs, which make no other name; where the lake has no rows of"
    " the old one, delete feeds.json from the state folder while kuvasz is stopped"
)

_RESTART = "nothing was changed; stop kuvasz, and start it with the new map"

_ANEW = (
    "nothing was changed; choose another `target`, or take it out of the map, drop its table from the lake, and put"
    " it into the map as it is to be"
)

#: What only a start takes of a target that is fed. Of `definition`.
_OF_START = ("route", "consistency")

#: What rows are known by that are in the lake, so that no start takes it either.
_OF_ROWS = ("partitions_regex", "the column sid")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceDifference:
    """What differs of a source that both maps have. Tables are named as in a map."""

    source: Source  #: as the new map has it
    options: tuple[str, ...] = ()  #: of the source itself
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()  #: tables whose entry differs

    def describe(self) -> str:
        """Return it in words."""
        said = [("", self.options), ("added ", self.added), ("removed ", self.removed), ("changed ", self.changed)]
        return "; ".join(f"{what}{', '.join(found)}" for what, found in said if found)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MapDifference:
    """What a new map has otherwise."""

    config: Config  #: the new map, with what is held as it runs
    mapped: tuple[Source, ...]  #: its sources
    added: tuple[Source, ...] = ()
    removed: tuple[Source, ...] = ()
    given: tuple[Source, ...] = ()  #: that another process has from now on: it still has them
    changed: tuple[SourceDifference, ...] = ()
    groups_before: frozenset[str] | None = None  #: of the map that runs, that this process applies; None: all
    groups: frozenset[str] | None = None  #: of the map, that this process applies from now on; None: all
    held: tuple[str, ...] = ()  #: options that differ and count from the next start on
    #: properties with which the catalog is reached from now on; None: as before
    credentials: Mapping[str, str] | None = dataclasses.field(default=None, repr=False)

    @property
    def is_empty(self) -> bool:
        """Whether no source differs."""
        return not (self.added or self.removed or self.given or self.changed)

    def as_json(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return {
            "added": [source.name for source in self.added],
            "removed": [source.name for source in self.removed],
            "changed": [
                {
                    "source": one.source.name, "options": list(one.options), "added": list(one.added),
                    "removed": list(one.removed), "changed": list(one.changed),
                }
                for one in self.changed
            ],
            "needs_restart": list(self.held),
        }  # fmt: skip


def difference(
    before: Config,
    after: Config,
    ended: Collection[str] = (),
    sids: dict[str, str | None] | None = None,
    paces: Collection[str] = (),
    groups: tuple[frozenset[str] | None, frozenset[str] | None] = (None, None),
) -> MapDifference:
    """Return what a map has otherwise than the one that runs.

    Args:
        before: The map that runs.
        after: The map that is to run.
        ended: Sources that have ended by themselves: they are begun again if the new map has them.
        sids: Source -> its sid (`sids_of`), of all that were mapped since the start.
        paces: What has a worker of its own since the start (`kuvasz.config.sources.paces`).
        groups: The groups that this process applies, and those that it is to; None: all.

    Raises:
        ConfigError: It cannot follow without a restart.
    """
    held = (*needing_restart(before, after), *_without_worker(after, paces))
    sections = {name: getattr(before, name) for name in SECTIONS if name not in LIVE}
    sections["lake"] = lake = before.lake.with_credentials(after.lake)
    for section, option in _LIVE_OPTIONS:  # whoever is to be let in no more waits for no restart
        wanted = getattr(getattr(after, section), option)
        if getattr(sections[section], option) != wanted:
            sections[section] = sections[section].model_copy(update={option: wanted})
    config = after.model_copy(update=sections)
    if found := check.problems(config):
        told = "; ".join(f"{problem.render_path(one.path)} {one.message}" for one in found)
        raise ConfigError(f"with {', '.join(held)} as they are until a restart: {told}", hint=_RESTART)
    whole = sources.resolve(config)
    mapped = of_groups(whole, groups[1])
    old, new = (
        {source.name: source for source in found} for found in (of_groups(sources.resolve(before), groups[0]), mapped)
    )
    gone, there = [source for name, source in old.items() if name not in new], {source.name for source in whole}
    refuse_relabelled(mapped, sids_of(old.values()) | (sids or {}))
    _refuse_redefined(old.values(), mapped)
    both = [
        of_source(old[name], new[name], has_ended=name in ended) for name in new if name in old
    ]  # fmt: skip
    return MapDifference(
        credentials=None if lake is before.lake or lake.sqlite_file is not None else lake.live_properties,
        config=config, mapped=mapped, held=held, groups_before=groups[0], groups=groups[1],
        added=tuple(source for name, source in new.items() if name not in old),
        removed=tuple(source for source in gone if source.name not in there),
        given=tuple(source for source in gone if source.name in there),
        changed=tuple(one for one in both if one is not None),
    )  # fmt: skip


def of_groups(mapped: Sequence[Source], groups: frozenset[str] | None) -> tuple[Source, ...]:
    """Return the sources of some groups of the map; None: of all."""
    return tuple(source for source in mapped if groups is None or source.database in groups)


def of_source(before: Source, after: Source, *, has_ended: bool = False) -> SourceDifference | None:
    """Return what differs of a source; None if nothing does.

    Args:
        before: As it runs.
        after: As it is to.
        has_ended: Whether it is to be begun again in any case.
    """
    old, new = (_entries(source) for source in (before, after))
    own = ["database", "url", "replication_url", "on_slot_lost", "origin"]
    own += ["max_tables"] if after.patterns else []
    options = [name for name in own if getattr(before, name) != getattr(after, name)]
    if _collapses(old) != _collapses(new) and set(_collapses(old)) == set(_collapses(new)):
        options.append("order of partitions_regex")  # a table belongs to the first that takes it in
    if before.patterns != after.patterns:
        options.append("patterns")
    if {spec.schemas for spec in before.tables} != {spec.schemas for spec in after.tables}:
        options.append("schemas")
    found = SourceDifference(
        source=after,
        options=(*options, *(["it had ended"] if has_ended else [])),
        added=tuple(names.render_table(table) for table in new if table not in old),
        removed=tuple(names.render_table(table) for table in old if table not in new),
        changed=tuple(names.render_table(table) for table in new if table in old and old[table] != new[table]),
    )
    return found if found.describe() else None


def ends_before(leaving: Iterable[Source], coming: Iterable[Source]) -> dict[str, set[str]]:
    """Return for each source that is to begin which have to end before: itself, and all that fed the same rows.

    Of a source with `schemas` those may be the rows of any sid; of a target that goes to another worker, or is
    defined otherwise, all rows.

    Args:
        leaving: Sources that end, as they run.
        coming: Sources that begin, as they are to be.
    """
    fed: dict[object, set[str]] = {}
    leaving = tuple(leaving)
    before = _built(leaving)
    for source in leaving:
        rows = rows_of(source)
        for place in (source.name, *rows, *((target,) for target, _ in rows)):
            fed.setdefault(place, set()).add(source.name)
    return {
        source.name: set().union(*(fed.get(place, ()) for place in (*_places(source), *_rebuilt(source, before))))
        for source in coming
    }


def _places(source: Source) -> Iterator[object]:
    """Yield by what those are found that feed a source's rows: its name, a sid in a target, or all of a target."""
    yield source.name
    for target, sid in rows_of(source):
        yield from [(target,)] if sid is None else [(target, sid), (target, None)]


def _built(sources: Iterable[Source]) -> dict[str, tuple[object, ...]]:
    """Return what each target's worker and loaded table are made for: there is one of either at a time."""
    specs = {spec.identifier: spec for source in sources for spec in source.tables}
    return {target: (spec.routed_by, definition(spec)) for target, spec in specs.items()}


def _rebuilt(source: Source, before: Mapping[str, tuple[object, ...]]) -> Iterator[object]:
    """Yield all of each target whose worker or loaded table was another one."""
    for target, now in _built([source]).items():
        if before.get(target, now) != now:
            yield (target,)


def definition(spec: SourceTableSpec) -> Mapping[str, object]:
    """Return what a target's table is loaded by, option by option: all that feed it agree on that."""
    return {
        "type": spec.config.type,
        "key": spec.config.key,
        "partition_by": spec.config.partition_by,
        "sort_by": spec.config.sort_by,
        "deletes": spec.config.deletes,
        "location": spec.config.location,
        "branch": spec.branch,
        "properties": spec.config.properties,
        "maintenance": spec.config.maintenance,
        "partitions_regex": spec.config.partitions_regex is not None,
        "route": spec.route,
        "the column sid": spec.has_sid,
        "consistency": spec.group,
    }


def definitions(mapped: Iterable[Source]) -> dict[str, Mapping[str, object]]:
    """Return the definition of each target."""
    specs = {spec.identifier: spec for source in mapped for spec in source.tables}
    return {target: definition(spec) for target, spec in specs.items()}


def sids_of(mapped: Iterable[Source]) -> dict[str, str | None]:
    """Return the sid of each source."""
    return {source.name: source.sid for source in mapped}


def refuse_relabelled(mapped: Iterable[Source], sids: Mapping[str, str | None]) -> None:
    """Refuse another sid under the same name: the lake knows a source's rows by its sid, and all else by its name.

    Args:
        mapped: Sources as they are to be.
        sids: Source -> the sid that it had.

    Raises:
        ConfigError: There is one.
    """
    if others := [one for one in mapped if sids.get(one.name, one.sid) != one.sid]:
        told = (f"{place_of(one.name)}: its sid was {sids[one.name]}, and is {one.sid}" for one in others)
        raise ConfigError("; ".join(told), hint=_ANOTHER_NAME)


def _entries(source: Source) -> dict[TableName, tuple[SourceTableSpec, ...]]:
    """Return the entries of each table: several, where it has routes."""
    found: dict[TableName, tuple[SourceTableSpec, ...]] = {}
    for spec in source.tables:
        found[spec.table] = (*found.get(spec.table, ()), spec)
    return found


def _collapses(specs: Mapping[TableName, Sequence[SourceTableSpec]]) -> list[TableName]:
    return [table for table, (spec, *_routes) in specs.items() if spec.is_collapse]


def redefined(before: Iterable[Source], after: Iterable[Source]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield what cannot become of a target that is fed: the target, what to do about it, and the options."""
    known = definitions(before)
    for target, wanted in definitions(after).items():
        now = known.get(target, wanted)
        others = [option for option in wanted if wanted[option] != now[option]]
        for hint, options in ((_ANEW, _of_rows(now)), (_RESTART, _OF_START)):
            if found := [option for option in others if option in options]:
                yield target, hint, found


def _refuse_redefined(before: Iterable[Source], after: Iterable[Source]) -> None:
    """Refuse what cannot become of a target that is fed.

    Raises:
        ConfigError: There is such a thing.
    """
    told: dict[str, list[str]] = {}
    for target, hint, options in redefined(before, after):
        found = ", ".join(options)
        told.setdefault(hint, []).append(f"target {target}: {found} cannot change while kuvasz runs")
    for hint, sentences in told.items():
        raise ConfigError("; ".join(sorted(sentences)), hint=hint)


def _of_rows(now: Mapping[str, object]) -> tuple[str, ...]:
    """Return which options of a target its rows go by: a clone that lives can be copied as anything."""
    if now["deletes"] is Deletes.SOFT:
        return (*_OF_ROWS, "type", "deletes")
    return _OF_ROWS if now["type"] is TableType.CLONE else (*_OF_ROWS, "type")


def _without_worker(after: Config, paces: Collection[str]) -> Iterator[str]:
    """Yield the option of tables that nobody can commit at their pace: workers that have nothing to do stay."""
    wanted = set(sources.paces(sources.resolve(after)))
    if wanted - set(paces) and len(wanted | set(paces)) > sources.MOST_PACES:
        yield "databases.tables.commit_interval"


def needing_restart(before: Config, after: Config) -> Iterator[str]:
    """Yield the options that differ and that only a start reads; those that follow from others are left out."""
    before = before.model_copy(update={"lake": before.lake.with_credentials(after.lake)})
    for section in SECTIONS:
        old, new = getattr(before, section), getattr(after, section)
        for option in type(new).model_fields if section not in LIVE else ():
            is_said = option in old.model_fields_set | new.model_fields_set
            is_live = (section, option) in _LIVE_OPTIONS
            if is_said and not is_live and getattr(old, option) != getattr(new, option):
                yield f"{section}.{option}"


__all__ = [
    "LIVE",
    "MapDifference",
    "SourceDifference",
    "definition",
    "definitions",
    "difference",
    "ends_before",
    "needing_restart",
    "of_groups",
    "of_source",
    "redefined",
]
