"""What goes on failing, of which a webhook is told as it begins, once an hour, and when it is over. Pure.

A source that does not answer is tried again every half a minute, a table that stops every five minutes, and each
attempt is an event of the log. None but the first is news to somebody who is called by it, unless the reason is
another one; numbers in a reason make no other one of it. It is over when the source has streamed for a minute: what
said that it streams waits until then, for one that comes and goes is one that fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from kuvasz.events import Event

#: Seconds between two words on one source or table that fails for one reason.
AGAIN_S: Final = 3600.0

#: Seconds that a source streams until its failure is over, and that its stream is lost until that is a failure.
SETTLED_S: Final = 60.0

#: Reasons that are told of one source or table within an hour.
_MOST_REASONS: Final = 8

#: What is told of at each attempt.
_LASTING: Final = frozenset({
    Event.SOURCE_FAILED, Event.SOURCE_UNFORESEEN, Event.SOURCE_STOPPED, Event.SLOT_LOST, Event.SLOT_LOST_REPAIRED,
    Event.TABLE_FAILED, Event.TABLE_UNFORESEEN, Event.STREAM_FAILED,
})  # fmt: skip

#: A person has done something about a table: what happens from here on is news.
_TAKEN_UP: Final = frozenset({Event.RETRY, Event.RESUME, Event.RESYNC})

_RELEASED: Final = frozenset({Event.SOURCE_RELEASED, Event.SOURCE_RELEASED_WHOLE})

#: Events that are heard of beside what is told in any case: they are told only where they are the end of something.
HEARD: Final = frozenset({Event.STREAM_FAILED, Event.STREAM_BEGUN}) | _TAKEN_UP | _RELEASED

_CODES: Final = {event.code for event in _LASTING}
_TAKEN_UP_CODES: Final = {event.code for event in _TAKEN_UP}
_RELEASED_CODES: Final = {event.code for event in _RELEASED}

#: A source, and the table of it that fails; empty for the source itself.
_Key: TypeAlias = tuple[str, str]

#: Source -> table, empty for the source itself -> reason -> when it was told last, in unix seconds.
Told: TypeAlias = Mapping[str, Mapping[str, Mapping[str, float]]]


class Alarms:
    """The sources and tables that fail, as one webhook knows them.

    Args:
        told: As `as_json` gives it.
    """

    def __init__(self, told: Told | None = None) -> None:
        self._told: dict[_Key, dict[str, float]] = {
            (source, table): {reason: float(at) for reason, at in reasons.items()}
            for source, tables in (told or {}).items()
            for table, reasons in tables.items()
        }
        self._ends: dict[str, tuple[float, dict[str, Any]]] = {}  #: source -> since when it streams, and what said so
        self._lost: dict[str, float] = {}  #: source -> since when its stream is lost

    def as_json(self) -> Told:
        """Return what was told and is not over."""
        told: dict[str, dict[str, dict[str, float]]] = {}
        for (source, table), reasons in self._told.items():
            told.setdefault(source, {})[table] = dict(reasons)
        return told

    def follow(self, later: Alarms) -> None:
        """Go on where another one has come to, of what that had not told of yet."""
        self._ends, self._lost = later._ends, later._lost

    def is_news(self, entry: dict[str, Any], now: float) -> bool:
        """Take note of what happened; return whether to tell of it.

        Args:
            entry: What happened, as it would be told.
            now: Unix seconds.
        """
        code, source, table = entry.get("event"), entry.get("source") or "", entry.get("table") or ""
        if code == Event.STREAM_BEGUN.code:
            self._ends[source] = now, entry
            return False
        if code in _TAKEN_UP_CODES:
            self._drop(lambda key: key[0] in {"", source} and (table == key[1] or table.startswith(f"{key[1]}/")))
            return False
        if code in _RELEASED_CODES:
            self._ends.pop(source, None)
            return self._drop(lambda key: key[0] == source)
        return code not in _CODES or self._is_due(code, (source, table), entry, now)

    def over(self, now: float) -> list[dict[str, Any]]:
        """Return what says that sources stream again which have done so for a while, and forget that they failed."""
        found = []
        for source, (since, entry) in list(self._ends.items()):
            if 0 <= now - since < SETTLED_S:
                continue
            del self._ends[source]
            self._lost.pop(source, None)
            if self._told.pop((source, ""), None) is not None:
                found.append(entry)
        # Nothing says that a table goes on: it is forgotten when nobody has said for an hour that it does not.
        self._drop(lambda key: bool(key[1]) and not self._recent(key, now))
        return found

    def _is_due(self, code: str, key: _Key, entry: dict[str, Any], now: float) -> bool:
        source = key[0]
        since, _ = self._ends.pop(source, (now, None)) if not key[1] else (now, None)
        if now - since >= SETTLED_S:  # nobody has asked since what is over
            self._lost.pop(source, None)
        if code == Event.STREAM_FAILED.code and 0 <= now - self._lost.setdefault(source, now) < SETTLED_S:
            return False
        fields = entry["fields"]
        reason = re.sub(r"[0-9]+", "#", f"{code} {fields.get('error', fields.get('reason', ''))}")
        recent = self._recent(key, now)
        if reason in recent or len(recent) >= _MOST_REASONS:
            return False
        self._told[key] = recent | {reason: now}
        return True

    def _recent(self, key: _Key, now: float) -> dict[str, float]:
        """Return the reasons that were told within the hour. A clock that was set back makes none of them older."""
        return {reason: at for reason, at in self._told.get(key, {}).items() if 0 <= now - at < AGAIN_S}

    def _drop(self, is_meant: Callable[[_Key], bool]) -> bool:
        """Forget alarms; return whether there were any."""
        meant = [key for key in self._told if is_meant(key)]
        for key in meant:
            del self._told[key]
        return bool(meant)


__all__ = ["AGAIN_S", "HEARD", "SETTLED_S", "Alarms", "Told"]
