"""The first page: how all of it stands, sources with the worst first, and the lake's tables. Pure."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Final

from kuvasz.admin import upkeep, views
from kuvasz.admin.pages import standing
from kuvasz.admin.pages.frame import document, heading
from kuvasz.admin.pages.list_part import ListPart, ListSelection
from kuvasz.admin.pages.markup import Markup, columns, element, escaped, joined, link, small, table, tiles
from kuvasz.admin.pages.status_parts import SourcePart, StatusParts, TargetPart
from kuvasz.shown import figures

_SOURCES: Final = columns(
    "source", "state", "lag", "changes", "WAL held", "WAL lasts", "tables", "what is wrong",
    numbers=("lag", "changes", "WAL held", "WAL lasts"), grow="what is wrong",
)  # fmt: skip
_TARGETS: Final = columns(
    "table", "sources", "states", "changes", "parked", "files", "size", "dead rows", "snapshots",
    numbers=("sources", "changes", "parked", "files", "size", "dead rows", "snapshots"),
)  # fmt: skip

#: Reasons why it does not live, and slots of sources that left the map, that are told.
_MOST_NOTES: Final = 5


def fleet_page(parts: StatusParts, sources: ListSelection, targets: ListSelection, rates: Mapping[str, float]) -> str:
    """Return the page.

    Args:
        parts: The moment.
        sources: Which sources, and which part of them.
        targets: Which tables of the lake, and which part of them.
        rates: Changes a second of each source, as far as they are known.
    """
    view = parts.snapshot.view
    is_ready = element("span", "ready", class_="state good") if parts.is_ready else element(
        "span", "not ready", class_="state warn"
    )  # fmt: skip
    since = element(
        "span", f"{view.phase} since {figures.moment(views.instant(parts.snapshot.started_at))}", class_="quiet"
    )
    return document(
        "kuvasz: the fleet", heading("Fleet", is_ready, since), _notes(parts), _tiles(parts, rates),
        _sources(parts, sources, rates), _targets(parts, targets), at=parts.at, here="/",
    )  # fmt: skip


def _notes(parts: StatusParts) -> Markup:
    """Return what concerns all of it, and is wrong."""
    snapshot = parts.snapshot
    found: list[object] = [
        joined([element("span", why, class_="bad"), ": see ", link("/livez", "/livez")])
        for why in views.livez(snapshot)
    ]
    if snapshot.view.staged is not None and snapshot.view.staged.error is not None:
        found.append(
            joined(["nothing can be staged: ", element("span", parts.text(snapshot.view.staged.error), class_="bad")])
        )
    for name in snapshot.view.released[:_MOST_NOTES]:
        slot = snapshot.facts[name].slot
        if slot is not None:
            held = figures.size(slot.retained_bytes)
            found.append(joined([element("code", name), f" left the map, and its slot keeps {held} of WAL"]))
    return element("div", *(element("p", one) for one in found), class_="notes") if found else Markup()


def _tiles(parts: StatusParts, rates: Mapping[str, float]) -> Markup:
    sources, view = parts.sources.values(), parts.snapshot.view
    lags = [(part.lag, part.view.name) for part in sources if part.lag is not None]
    most = max(lags, default=(None, ""))
    tables: collections.Counter[str] = collections.Counter()
    for part in sources:
        tables.update(part.states)
    running = collections.Counter(part.view.state for part in sources)
    facts: list[tuple[str, object]] = [
        ("sources", joined([f"{len(sources):,}", small(standing.states(running))])),
        ("tables", joined([f"{len(view.tables):,}", small(standing.states(tables))])),
        ("largest lag", joined([standing.lag(most[0]), small(most[1] if most[0] else "")])),
        ("WAL that slots hold", figures.size(sum(part.held for part in sources))),
        ("changes", joined([
            figures.rate(sum(rates.values()) if rates else None),
            small(f"{figures.count(sum(one.rows for one in view.tables))} since the start"),
        ])),
        ("waiting in memory", joined([
            figures.size(view.waiting_bytes), small(f"of {figures.size(parts.snapshot.memory_bytes)}")
        ])),
    ]  # fmt: skip
    if view.staged is not None:
        facts.append(("waiting in the log", figures.size(view.staged.waiting_bytes)))
    if differing := parts.differing(view.tables):
        facts.append(("keys that differ", element("span", f"{differing:,}", class_="bad")))
    return tiles(facts)


def _sources(parts: StatusParts, wanted: ListSelection, rates: Mapping[str, float]) -> Markup:
    found = [
        part for part in parts.sources.values()
        if wanted.has(part.view.name) or any(wanted.has(one.target) for one in part.tables)
    ]  # fmt: skip
    listing = ListPart("/", found, wanted)
    rows = [_source_row(parts, part, rates) for part in listing.shown]
    return joined([element("h2", "Sources"), listing.bar("sources"), table("sources", _SOURCES, rows)])


def _source_row(parts: StatusParts, part: SourcePart, rates: Mapping[str, float]) -> tuple[object, ...]:
    slot = parts.snapshot.facts[part.view.name].slot
    return (
        standing.source_link(part.view.name), standing.state(part.view.state), standing.lag(part.lag),
        figures.rate(rates.get(part.view.name)),
        figures.UNKNOWN if slot is None else figures.size(slot.retained_bytes),
        standing.runway(None if slot is None else slot.seconds_left), standing.states(part.states),
        _why(parts, part),
    )  # fmt: skip


def _why(parts: StatusParts, part: SourcePart) -> Markup:
    """Return a source's error, or its tables'."""
    told = standing.error(parts.error(part))
    if part.view.error is not None or not part.failed:
        return told
    more = f" and {len(part.failed) - 1:,} tables more" if len(part.failed) > 1 else ""
    return joined([element("code", part.failed[0].table), escaped(more), ": ", told])


def _targets(parts: StatusParts, wanted: ListSelection) -> Markup:
    found = [target for target in parts.targets.values() if wanted.has(target.name)]
    listing = ListPart("/", found, wanted)
    rows = [_target_row(parts, target) for target in listing.shown]
    whole = table("tables of the lake", _TARGETS, rows)
    return joined([element("h2", "Tables of the lake"), listing.bar("tables"), whole])


def _target_row(parts: StatusParts, target: TargetPart) -> tuple[object, ...]:
    parked, seen = parts.parked.get(target.name), parts.upkeep.get(target.name)
    files = {} if seen is None else upkeep.as_json(seen)
    return (
        standing.table_link(target.name), figures.count(len(target.feeds)), standing.states(target.states),
        figures.count(target.rows), figures.size(parked or None), figures.count(files.get("files")),
        figures.size(files.get("bytes")), figures.share(files.get("dead_share")),
        figures.count(files.get("snapshots")),
    )  # fmt: skip


__all__ = ["fleet_page"]
