"""The page of one source: how it stands, its lag of the last hour, its tables, and what happened to it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kuvasz.admin.pages import figures, standing
from kuvasz.admin.pages.list_part import ListPart, ListSelection
from kuvasz.admin.pages.markup import Markup, document, element, joined, table, tiles
from kuvasz.admin.pages.standing import Told

#: The plot's own units.
_WIDTH: Final = 600
_HEIGHT: Final = 100


def source_page(
    source: Told, path: str, wanted: ListSelection, lags: Sequence[tuple[float, float]], events: Sequence[Told]
) -> str:
    """Return the page.

    Args:
        source: An entry of `sources` of the JSON of ``/status``.
        path: The path of the page.
        wanted: Which tables, and which part of them.
        lags: Unix time and seconds of lag, the oldest first.
        events: The last ones, the oldest first.
    """
    name = source["source"]
    head = element("header", element("h1", name), standing.state(source["state"]), standing.error(source["error"]))
    return document(
        f"{name}: kuvasz", head, _tiles(source),
        element("main", _plot(lags), _tables(source, path, wanted), _events(events)),
    )  # fmt: skip


def _tiles(source: Told) -> Markup:
    slot = source["slot"] or {}
    return tiles(
        [
            ("lag", standing.lag(source)),
            ("WAL not in the lake", figures.size(source["lag_bytes"])),
            ("WAL that its slot holds", standing.wal(source)),
            ("slot", slot.get("status", "–")),
            ("received", source["received_lsn"]),
            ("confirmed", source["confirmed_lsn"]),
            ("in the lake up to", figures.moment(source["fresh_at"])),
            ("heard", figures.moment(source["last_message_at"])),
        ]
    )


def _plot(lags: Sequence[tuple[float, float]]) -> Markup:
    """Return the lag over time."""
    if len(lags) < 2:
        return Markup()
    begin, end = lags[0][0], lags[-1][0]
    most = max(seconds for _, seconds in lags)
    across, up = _WIDTH / max(end - begin, 1e-9), (_HEIGHT - 4) / max(most, 1e-9)
    points = " ".join(f"{(at - begin) * across:.1f},{_HEIGHT - seconds * up:.1f}" for at, seconds in lags)
    told = f"lag of the last {figures.seconds(end - begin)}, at most {figures.seconds(most)}"
    line = Markup(f'<polyline points="{points}"></polyline>')
    plot = element(
        "svg", line, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", preserveAspectRatio="none", role="img", aria_label=told
    )
    return joined([element("h2", "Lag"), plot, element("p", told, class_="hint")])


def _tables(source: Told, path: str, wanted: ListSelection) -> Markup:
    found = [one for one in source["tables"] if wanted.has(one["table"], one["target"], one["tenant"])]
    listing = ListPart(path, sorted(found, key=standing.table_badness), wanted)
    rows = [
        (
            element("code", one["table"]), standing.table_link(one["target"]), standing.state(one["state"]),
            standing.progress(one), figures.moment(one["newest_change_at"]), _parked(one), standing.differing(one),
            standing.error(one["error"] or one["why_copy"] or one["waits_for"]),
            standing.buttons(source["source"], one),
        )
        for one in listing.shown
    ]  # fmt: skip
    head = ("table", "in the lake", "state", "changes", "newest", "parked", "compared", "what is wrong", "")
    whole = table("tables", head, rows, frozenset({3, 5}))
    return joined([element("h2", "Tables"), listing.bar("tables"), whole])


def _parked(one: Told) -> str:
    parked = one["parked"]
    return "–" if parked is None else f"{figures.size(parked['bytes'])} since {figures.moment(parked['since'])}"


def _events(events: Sequence[Told]) -> Markup:
    rows = [
        (figures.moment(one["at"]), _severity(one["severity"]), one.get("table_name", ""), one["text"])
        for one in reversed(events)
    ]
    return joined([element("h2", "What happened"), table("events", ("when", "", "table", "what"), rows, frozenset())])


def _severity(name: str) -> Markup:
    return element("span", name, class_={"error": "bad", "critical": "bad", "warning": "warn"}.get(name))


__all__ = ["source_page"]
