"""The first page: how all of it stands, sources with the worst first, and the lake's tables. Pure."""

from __future__ import annotations

import collections
import dataclasses

from kuvasz.admin.pages import figures, standing
from kuvasz.admin.pages.list_part import ListPart, ListSelection
from kuvasz.admin.pages.markup import Markup, document, element, escaped, joined, table, tiles
from kuvasz.admin.pages.standing import Told

#: Tables of the lake on the page.
_TABLES = 200


@dataclasses.dataclass(slots=True, kw_only=True)
class _Target:
    """A table of the lake, of all its sources together."""

    tables: list[Told] = dataclasses.field(default_factory=list)
    upkeep: Told | None = None


def fleet_page(status: Told, wanted: ListSelection) -> str:
    """Return the page.

    Args:
        status: The JSON of ``/status``.
        wanted: Which sources, and which part of them.
    """
    return document(
        "kuvasz", _head(status), _tiles(status), element("main", _sources(status, wanted), _targets(status))
    )


def _head(status: Told) -> Markup:
    is_ready = status["ready"]
    parts = [
        element("h1", "kuvasz"), element("span", status["phase"]),
        element("span", "ready" if is_ready else "not ready: see /readyz", class_="good" if is_ready else "warn"),
        *([] if status["live"] else [element("span", "stuck: see /livez", class_="bad")]),
        element("span", f"since {figures.moment(status['started_at'])}"),
    ]  # fmt: skip
    return element("header", *parts)


def _tiles(status: Told) -> Markup:
    sources = status["sources"]
    every = [one for source in sources for one in source["tables"]]
    held = [source["slot"]["retained_bytes"] for source in sources if source["slot"]]
    lags = [source["lag_seconds"] for source in sources if source["lag_seconds"] is not None]
    differing = sum(one["verified"]["left"] for one in every if one["verified"])
    facts: list[tuple[str, object]] = [
        ("sources", joined([f"{len(sources):,}: ", standing.states(sources)])),
        ("tables", joined([f"{len(every):,}: ", standing.states(every)])),
        ("largest lag", figures.seconds(max(lags, default=None))),
        ("WAL that slots hold", figures.size(sum(held))),
        ("changes since the start", figures.count(sum(one["rows"] for one in every))),
        ("waiting in memory", f"{figures.size(status['waiting_bytes'])} of {figures.size(status['memory_bytes'])}"),
    ]
    if differing:
        facts.append(("keys that differ", element("span", f"{differing:,}", class_="bad")))
    return tiles(facts)


def _sources(status: Told, wanted: ListSelection) -> Markup:
    found = [
        source for source in status["sources"]
        if wanted.has(source["source"], *(one["target"] for one in source["tables"]))
    ]  # fmt: skip
    listing = ListPart("/", sorted(found, key=standing.badness), wanted)
    rows = [
        (
            standing.source_link(source["source"]), standing.state(source["state"]), standing.lag(source),
            standing.wal(source), standing.states(source["tables"]), _why(source),
        )
        for source in listing.shown
    ]  # fmt: skip
    head = ("source", "state", "lag", "WAL held", "tables", "what is wrong")
    return joined([element("h2", "Sources"), listing.bar("sources"), table("sources", head, rows, frozenset({2, 3}))])


def _why(source: Told) -> Markup:
    """Return a source's error, or its tables'."""
    if source["error"]:
        return standing.error(source["error"])
    failed = [one for one in source["tables"] if one["error"]]
    if not failed:
        return Markup()
    more = f" and {len(failed) - 1:,} tables more" if len(failed) > 1 else ""
    return joined([element("code", failed[0]["table"]), " ", standing.error(failed[0]["error"]), escaped(more)])


def _targets(status: Told) -> Markup:
    targets: dict[str, _Target] = collections.defaultdict(_Target)
    for source in status["sources"]:
        for one in source["tables"]:
            targets[one["target"]].tables.append(one)
    for upkeep in status["maintenance"]:
        targets[upkeep["target"]].upkeep = upkeep
    ordered = sorted(targets.items(), key=lambda pair: (not any(one["error"] for one in pair[1].tables), pair[0]))
    rows = [_row(name, target) for name, target in ordered[:_TABLES]]
    head = ("table", "sources", "states", "changes", "parked", "files", "size", "dead rows", "snapshots")
    more = f"{len(ordered) - _TABLES:,} more are not shown" if len(ordered) > _TABLES else ""
    whole = table("tables of the lake", head, rows, frozenset({1, 3, 4, 5, 6, 7, 8}))
    return joined([element("h2", "Tables of the lake"), whole, element("p", more)])


def _row(name: str, target: _Target) -> tuple[object, ...]:
    parked = sum(one["parked"]["bytes"] for one in target.tables if one["parked"])
    upkeep = target.upkeep or {}
    share = upkeep.get("dead_share")
    return (
        standing.table_link(name), figures.count(len(target.tables)), standing.states(target.tables),
        figures.count(sum(one["rows"] for one in target.tables)), figures.size(parked) if parked else "–",
        figures.count(upkeep.get("files")), figures.size(upkeep.get("bytes")),
        "–" if share is None else f"{share:.0%}", figures.count(upkeep.get("snapshots")),
    )  # fmt: skip


__all__ = ["fleet_page"]
