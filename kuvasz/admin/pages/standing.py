"""How sources and tables stand, for people, each with what may be done about it. Pure."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Final

from kuvasz.admin.pages.markup import Markup, element, escaped, joined, link, small
from kuvasz.admin.pages.status_parts import Told
from kuvasz.shown import figures
from kuvasz.state.tables import State, TableState

_STYLES: Final = {"error": "bad", "waiting": "bad", "stopped": "bad", "streaming": "good"}
_ORDER: Final = {"error": 0, "waiting": 1, "stopped": 1, "streaming": 9}

#: Seconds of lag from which on it is marked, and of WAL.
_LAG_S: Final = 60.0
_RUNWAY_S: Final = 86_400.0


def table_badness(table: TableState, differing: int) -> tuple[object, ...]:
    """Return what sorts tables of one source, the worst first.

    Args:
        table: One of them.
        differing: Keys of it that differ.
    """
    return table.error is None, not differing, table.state is State.STREAMING, table.target, table.table


def state(name: str) -> Markup:
    """Return a state, marked."""
    return element("span", name.replace("_", " "), class_=f"state {_STYLES.get(name, 'warn')}")


def states(counts: Mapping[str, int]) -> Markup:
    """Return how many are in each state, the worst first; of one alone, its state."""
    if sum(counts.values()) == 1:
        return joined(state(name) for name, number in counts.items() if number)
    parts: list[object] = []
    for name, number in sorted(counts.items(), key=lambda pair: (_ORDER.get(pair[0], 5), pair[0])):
        mark = _STYLES.get(name, "warn")
        told = f"{number:,} {name.replace('_', ' ')}"
        parts += [
            *([", "] if parts else []),
            element("span", told, class_="piece" if mark == "good" else f"piece {mark}"),
        ]
    return joined(parts or [figures.UNKNOWN])


def lag(seconds: float | None) -> object:
    """Return how far a source is behind."""
    told = figures.seconds(seconds)
    return element("span", told, class_="warn") if (seconds or 0.0) > _LAG_S else told


def runway(seconds: float | None) -> object:
    """Return how long a slot may go on holding WAL."""
    told = figures.seconds(seconds)
    return element("span", told, class_="bad") if seconds is not None and seconds < _RUNWAY_S else told


def error(told: Told | str | None) -> Markup:
    """Return an error with its hint."""
    if not told:
        return Markup()
    if isinstance(told, str):
        message, _, hint = told.partition("\nhint: ")
    else:
        message, hint = told["message"], told["hint"]
    parts: list[object] = [element("span", message, class_="bad")]
    if hint:
        parts.append(element("div", "hint: ", hint, class_="quiet"))
    return joined(parts)


def differing(table: Told, now: float) -> object:
    """Return what the last comparison found of a table."""
    verified = table["verified"]
    if not verified or verified["at"] is None:
        return figures.UNKNOWN
    if verified["left"]:
        return element("span", f"{verified['left']:,} keys differ", class_="bad")
    return f"equal, {figures.short_moment(verified['at'], now)}"


def progress(table: Told) -> object:
    """Return how far a copy is, or how many changes came."""
    done = table["copy_progress"]
    if table["state"] != "copying" or done is None:
        return figures.count(table["rows"])
    bar = element("progress", value=f"{done:.3f}", aria_label=f"copied of {table['target']}")
    told, left = [small(f"{table['copied_rows']:,} rows")], table["copy_seconds_left"]
    if left is not None and not table.get("copy_resumes_at"):
        told.append(small(f"{figures.rate(table['copy_rows_per_second'])}, {figures.seconds(left)} left"))
    return joined([bar, f" {figures.share(done)}", *told])


def parked(table: Told, now: float) -> str:
    """Return what of a table is parked, and since when."""
    found = table["parked"]
    if found is None:
        return figures.UNKNOWN
    full = ", full" if found["is_full"] else ""
    return f"{figures.size(found['bytes'])} since {figures.short_moment(found['since'], now)}{full}"


def path_of(kind: str, name: str) -> str:
    """Return the path of the page of a source, or of a table."""
    return f"/{kind}/{urllib.parse.quote(name, safe='')}"


def source_link(name: str) -> Markup:
    """Return a link to a source's page."""
    return link(path_of("source", name), name, class_="name")


def table_link(target: str, source: str | None = None) -> Markup:
    """Return a link to a table's page, with the columns that it has of a source."""
    query = "" if source is None else f"?{urllib.parse.urlencode({'source': source})}"
    return link(path_of("table", target) + query, target, class_="name")


def actions(given: Iterable[tuple[str, str, Mapping[str, str]]]) -> Markup:
    """Return links to where something is done: verb, what it is done to, and the fields that say so."""
    made = (
        link(
            f"/do/{verb}?{urllib.parse.urlencode(fields)}", verb, class_="do", aria_label=f"{verb} {what}"
        )
        for verb, what, fields in given
    )  # fmt: skip
    return element("span", *made, class_="acts")


def table_actions(source: str, table: Told) -> Markup:
    """Return what may be done with a table of a source as it is now."""
    fields = {"table": table["target"], "sid": source}
    verbs = ["resume" if table["state"] == "paused" else "pause", *(["retry"] if table["error"] else []), "resync"]
    return actions((verb, f"{table['target']} of {source}", fields) for verb in verbs)


def events(told: Iterable[Told], now: float) -> list[tuple[object, ...]]:
    """Return rows of events, the newest first."""
    marks = {"error": "bad", "critical": "bad", "warning": "warn"}
    return [
        (
            figures.short_moment(one["at"], now),
            element("span", one["severity"], class_=marks.get(one["severity"])),
            one.get("source", ""), one.get("table_name", ""), escaped(one["text"]),
        )
        for one in reversed(list(told))
    ]  # fmt: skip


__all__ = [
    "actions",
    "differing",
    "error",
    "events",
    "lag",
    "parked",
    "path_of",
    "progress",
    "runway",
    "source_link",
    "state",
    "states",
    "table_actions",
    "table_badness",
    "table_link",
]
