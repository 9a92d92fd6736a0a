"""The page of one table of the lake: its files, its columns, and how it stands with each of its sources. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kuvasz.admin import upkeep
from kuvasz.admin.pages import standing
from kuvasz.admin.pages.column_rows import TableColumns
from kuvasz.admin.pages.frame import document, heading
from kuvasz.admin.pages.list_part import ListPart, ListSelection
from kuvasz.admin.pages.markup import Markup, columns, element, joined, link, small, table, tiles
from kuvasz.admin.pages.status_parts import SourcePart, StatusParts, TargetPart, Told
from kuvasz.config import names
from kuvasz.shown import figures

if TYPE_CHECKING:
    from collections.abc import Callable

    from kuvasz.config.sources import SourceTableSpec
    from kuvasz.state.tables import TableState

_FEEDS: Final = columns(
    "source", "table", "state", "changes", "lag", "valid through", "parked", "compared", "what is wrong",
    "what may be done", numbers=("changes", "lag"), grow="what is wrong", unseen="what may be done",
)  # fmt: skip
_COLUMNS: Final = columns("at the source", "type there", "in the lake", "type here", "notes", grow="notes")
_EVENTS: Final = columns("when", "severity", "source", "what", grow="what")


def table_page(
    parts: StatusParts, target: TargetPart, wanted: ListSelection, shown: TableColumns | None, of: str,
    events: Sequence[Told], redact: Callable[[str], str] = str,
) -> str:  # fmt: skip
    """Return the page.

    Args:
        parts: The moment.
        target: The table.
        wanted: Which sources, and which part of them.
        shown: Its columns; None: nothing is known of them.
        of: The source whose columns they are.
        events: The last ones of it, the oldest first.
        redact: Takes secrets out of what the map says.
    """
    fields = {"targets": target.name}
    actions = standing.actions(
        [("maintain", target.name, fields), ("verify", target.name, {"table": target.name})]
    )  # fmt: skip
    within, states = joined([link("/", "fleet"), " / table"]), element("span", standing.states(target.states))
    return document(
        f"{target.name}: kuvasz", heading(target.name, states, actions, within=within),
        _files(parts, target.name), _feeds(parts, target, wanted), _columns(shown, of, redact),
        _events(parts, events), at=parts.at,
    )  # fmt: skip


def _files(parts: StatusParts, name: str) -> Markup:
    seen, now = parts.upkeep.get(name), parts.snapshot.now
    if seen is None:
        return element("p", "its files were not looked at yet", class_="quiet")
    found = upkeep.as_json(seen)
    error = parts.text(found["error"])
    return joined(
        [
            element("div", standing.error(error), class_="notes") if error else Markup(),
            tiles(
                [
                    ("files", joined([
                        figures.count(found["files"]), small(figures.size(found["average_bytes"]), " each")
                    ])),
                    ("size", figures.size(found["bytes"])),
                    ("rows in them", joined([
                        figures.count(found["rows"]), small(figures.share(found["dead_share"]), " of them dead")
                    ])),
                    ("files with deletes", figures.count(found["delete_files"])),
                    ("snapshots", figures.count(found["snapshots"])),
                    ("last written anew", joined([
                        figures.short_moment(found["last_at"], now),
                        small("next look ", figures.short_moment(found["next_at"], now)),
                    ])),
                ]
            ),
        ]
    )  # fmt: skip


def _feeds(parts: StatusParts, target: TargetPart, wanted: ListSelection) -> Markup:
    found = [
        (part, one) for part, one in target.feeds
        if not wanted.text or wanted.has(part.view.name, one.table, names.tenant_of(names.member_of(one.source)))
    ]  # fmt: skip
    found.sort(key=lambda pair: (standing.table_badness(pair[1], parts.differing([pair[1]]))[:3], pair[0].badness))
    listing = ListPart(standing.path_of("table", target.name), found, wanted)
    rows = [_row(parts, part, one) for part, one in listing.shown]
    return joined([element("h2", "Sources"), listing.bar("sources"), table("sources", _FEEDS, rows)])


def _row(parts: StatusParts, part: SourcePart, state: TableState) -> tuple[object, ...]:
    one, now = parts.table(part, state), parts.snapshot.now
    return (
        standing.source_link(part.view.name), element("code", one["table"]), standing.state(one["state"]),
        standing.progress(one), standing.lag(part.lag), figures.short_moment(one["valid_through"], now),
        standing.parked(one, now), standing.differing(one, now),
        standing.error(one["error"] or one["why_copy"] or one["waits_for"]),
        standing.table_actions(part.view.name, one),
    )  # fmt: skip


def _columns(shown: TableColumns | None, of: str, redact: Callable[[str], str]) -> Markup:
    """Return the columns, and by what rule rows of the lake are made of them."""
    if shown is None:
        return Markup()
    rows = [
        (
            element("code", row.at_source) if row.at_source else figures.UNKNOWN, row.type_there,
            element("code", row.in_lake) if row.in_lake else figures.UNKNOWN, row.type_here,
            redact("; ".join(row.notes)),
        )
        for row in shown.rows()
    ]  # fmt: skip
    rule = tiles((name, element("code", redact(value))) for name, value in _rule(shown.spec))
    told = element("p", "as ", standing.source_link(of), " has them; other sources may differ", class_="quiet")
    return joined([element("h2", "Columns"), rule, told, table("columns", _COLUMNS, rows)])


def _rule(spec: SourceTableSpec) -> list[tuple[str, str]]:
    """Return what the map says of the table's rows, as far as it says something."""
    config = spec.config
    said = [
        ("type", str(config.type)), ("filter", config.filter or ""), ("key", ", ".join(config.key or ())),
        ("deletes", "" if config.deletes.value == "hard" else str(config.deletes)),
        ("partitions", ", ".join(config.partition_by)), ("order", ", ".join(config.sort_by)),
        ("tables that are one", config.partitions_regex or ""), ("a schema per tenant", spec.schemas or ""),
        ("commits with", spec.group or ""),
    ]  # fmt: skip
    return [(name, value) for name, value in said if value]


def _events(parts: StatusParts, events: Sequence[Told]) -> Markup:
    rows = [
        (when, severity, standing.source_link(str(source)) if source else "", what)
        for when, severity, source, _, what in standing.events(events, parts.snapshot.now)
    ]
    whole = table("events", _EVENTS, rows) if rows else element("p", "nothing yet", class_="quiet")
    return joined([element("h2", "What happened"), whole])


__all__ = ["table_page"]
