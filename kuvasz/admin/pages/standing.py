"""How sources and tables stand, for people: the worst first, and each with what may be done about it. Pure."""

from __future__ import annotations

import collections
import json
import urllib.parse
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from kuvasz.admin.pages import figures
from kuvasz.admin.pages.markup import Markup, button, element, joined, link

#: A part of the JSON of ``/status``.
Told: TypeAlias = dict[str, Any]

_RANKS: Final = {"error": 0, "waiting": 1, "stopped": 1, "connecting": 3, "starting": 3, "streaming": 4}
_WITH_FAILED_TABLES: Final = 2

_STYLES: Final = {"error": "bad", "waiting": "bad", "stopped": "bad", "streaming": "good", "paused": "warn"}

#: Seconds of lag from which on it is marked, and days of WAL.
_LAG_S: Final = 60.0
_RUNWAY_S: Final = 86_400.0


def badness(source: Told) -> tuple[object, ...]:
    """Return what sorts sources, the worst first."""
    rank = _RANKS.get(source["state"], 1)
    if any(one["error"] for one in source["tables"]):
        rank = min(rank, _WITH_FAILED_TABLES)
    held = source["slot"]["retained_bytes"] if source["slot"] else 0
    return rank, -(source["lag_seconds"] or 0.0), -held, source["source"]


def table_badness(table: Told) -> tuple[object, ...]:
    """Return what sorts tables of one source, the worst first."""
    differs = bool(table["verified"] and table["verified"]["left"])
    return not table["error"], not differs, table["state"] == "streaming", table["target"], table["table"]


def state(name: str) -> Markup:
    """Return a state, marked."""
    return element("span", name, class_=_STYLES.get(name, "warn"))


def lag(source: Told) -> Markup:
    """Return how far a source is behind."""
    seconds = source["lag_seconds"]
    return element("span", figures.seconds(seconds), class_="warn" if (seconds or 0.0) > _LAG_S else None)


def wal(source: Told) -> Markup:
    """Return the WAL that a source's slot holds, and how long it may go on so."""
    slot = source["slot"]
    if slot is None:
        return joined(["–"])
    left = slot["seconds_left"]
    if left is None:
        return joined([figures.size(slot["retained_bytes"])])
    mark = "bad" if left < _RUNWAY_S else None
    return joined(
        [figures.size(slot["retained_bytes"]), ", ", element("span", figures.seconds(left), " left", class_=mark)]
    )


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
        parts.append(element("div", "hint: ", hint, class_="hint"))
    return joined(parts)


def states(tables: Iterable[Told]) -> Markup:
    """Return how many tables are in each state."""
    counts = collections.Counter(one["state"] for one in tables)
    parts: list[object] = []
    for name, number in sorted(counts.items(), key=lambda pair: _RANKS.get(pair[0], 2)):
        parts += [*([", "] if parts else []), f"{number:,} ", state(name)]
    return joined(parts or ["–"])


def differing(table: Told) -> str:
    """Return what the last comparison found of a table."""
    verified = table["verified"]
    if not verified or verified["at"] is None:
        return "–"
    return f"{verified['left']:,} keys differ" if verified["left"] else f"equal, {figures.moment(verified['at'])}"


def progress(table: Told) -> str:
    """Return how far a copy is, or how many changes came."""
    done = table["copy_progress"]
    if table["state"] == "copying" and done is not None:
        left = table["copy_seconds_left"]
        rest = "" if left is None else f", {figures.seconds(left)} left"
        return f"{done:.0%}, {table['copied_rows']:,} rows{rest}"
    return f"{table['rows']:,}"


def source_link(name: str) -> Markup:
    """Return a link to a source's page."""
    return link(f"/source/{urllib.parse.quote(name, safe='')}", name)


def table_link(target: str) -> Markup:
    """Return a link to a table's page."""
    return link(f"/table/{urllib.parse.quote(target, safe='')}", target)


def buttons(source: str, table: Told) -> Markup:
    """Return what may be done with a table of a source as it is now."""
    body = json.dumps({"table": table["target"], "sid": source})
    verbs = ["resume" if table["state"] == "paused" else "pause", *(["retry"] if table["error"] else []), "resync"]
    return joined(button(verb, f"{verb} {table['target']} of {source}", body) for verb in verbs)


__all__ = [
    "Told",
    "badness",
    "buttons",
    "differing",
    "error",
    "lag",
    "progress",
    "source_link",
    "state",
    "states",
    "table_badness",
    "table_link",
    "wal",
]
