"""The page of one source: how it stands, its lag of the last hour, its tables, and what happened to it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kuvasz.admin.pages import standing
from kuvasz.admin.pages.frame import document, heading
from kuvasz.admin.pages.lag_plot import lag_plot
from kuvasz.admin.pages.list_part import ListPart, ListSelection
from kuvasz.admin.pages.markup import Markup, columns, element, joined, link, small, table, tiles
from kuvasz.admin.pages.status_parts import SourcePart, StatusParts, Told
from kuvasz.shown import figures

if TYPE_CHECKING:
    from kuvasz.state.tables import TableState

_TABLES: Final = columns(
    "table", "in the lake", "state", "changes", "newest", "parked", "compared", "what is wrong", "what may be done",
    numbers=("changes",), grow="what is wrong", unseen="what may be done",
)  # fmt: skip
_EVENTS: Final = columns("when", "severity", "table", "what", grow="what")


def source_page(
    parts: StatusParts, part: SourcePart, wanted: ListSelection, lags: Sequence[tuple[float, float]],
    rate: float | None, events: Sequence[Told],
) -> str:  # fmt: skip
    """Return the page.

    Args:
        parts: The moment.
        part: The source.
        wanted: Which tables, and which part of them.
        lags: Unix time and seconds of lag, the oldest first.
        rate: Changes a second; None: not known.
        events: The last ones, the oldest first.
    """
    name, source = part.view.name, parts.source(part)
    head = heading(name, standing.state(source["state"]), within=joined([link("/", "fleet"), " / source"]))
    error = standing.error(source["error"])
    return document(
        f"{name}: kuvasz", head, element("div", error, class_="notes") if error else Markup(),
        _tiles(parts, part, source, rate), lag_plot(lags), _tables(parts, part, wanted), _events(parts, events),
        at=parts.at,
    )  # fmt: skip


def _tiles(parts: StatusParts, part: SourcePart, source: Told, rate: float | None) -> Markup:
    slot, now = source["slot"] or {}, parts.snapshot.now
    left = slot.get("seconds_left")
    return tiles(
        [
            ("lag", joined([
                standing.lag(part.lag), small("in the lake up to ", figures.short_moment(source["fresh_at"], now))
            ])),
            ("changes", joined([figures.rate(rate), small(f"{figures.count(source['rows'])} since the start")])),
            ("WAL not in the lake", figures.size(source["lag_bytes"])),
            ("WAL that its slot holds", joined([
                figures.size(slot.get("retained_bytes")),
                small(*(["lasts ", standing.runway(left)] if left is not None else [slot.get("status", "")])),
            ])),
            ("received", joined([source["received_lsn"], small("confirmed ", source["confirmed_lsn"])])),
            ("heard", figures.short_moment(source["last_message_at"], now)),
        ]
    )  # fmt: skip


def _tables(parts: StatusParts, part: SourcePart, wanted: ListSelection) -> Markup:
    found = [one for one in part.tables if wanted.has(one.table, one.target, one.source)]
    found.sort(key=lambda one: standing.table_badness(one, parts.differing([one])))
    listing = ListPart(standing.path_of("source", part.view.name), found, wanted)
    rows = [_row(parts, part, one) for one in listing.shown]
    return joined([element("h2", "Tables"), listing.bar("tables"), table("tables", _TABLES, rows)])


def _row(parts: StatusParts, part: SourcePart, state: TableState) -> tuple[object, ...]:
    one, now = parts.table(part, state), parts.snapshot.now
    return (
        element("code", one["table"]), standing.table_link(one["target"], part.view.name),
        standing.state(one["state"]), standing.progress(one), figures.short_moment(one["newest_change_at"], now),
        standing.parked(one, now), standing.differing(one, now),
        standing.error(one["error"] or one["why_copy"] or one["waits_for"]),
        standing.table_actions(part.view.name, one),
    )  # fmt: skip


def _events(parts: StatusParts, events: Sequence[Told]) -> Markup:
    rows = [
        (when, severity, name, what) for when, severity, _, name, what in standing.events(events, parts.snapshot.now)
    ]
    whole = table("events", _EVENTS, rows) if rows else element("p", "nothing yet", class_="quiet")
    return joined([element("h2", "What happened"), whole])


__all__ = ["source_page"]
