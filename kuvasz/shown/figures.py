"""Numbers as people read them, on pages and in what verbs print. Pure."""

from __future__ import annotations

import datetime
from typing import Final

#: In place of what is not known.
UNKNOWN: Final = "–"

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_STEP: Final = 1024.0
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def count(number: float | None) -> str:
    """Return a whole number with its thousands apart."""
    return UNKNOWN if number is None else f"{number:,.0f}"


def rate(number: float | None) -> str:
    """Return how many come in a second."""
    if number is None:
        return UNKNOWN
    return f"{number:,.0f}/s" if number >= 10 or not number else f"{number:.1f}/s"


def size(bytes_: float | None) -> str:
    """Return a size in the largest unit that leaves something before the point."""
    if bytes_ is None:
        return UNKNOWN
    found, number = float(bytes_), 0
    while abs(found) >= _STEP and number < len(_UNITS) - 1:
        found, number = found / _STEP, number + 1
    unit = _UNITS[number]
    return f"{found:.0f} {unit}" if unit == "B" or found >= 100 else f"{found:.1f} {unit}"


def seconds(number: float | None) -> str:
    """Return a time that passed, in one or two units."""
    if number is None:
        return UNKNOWN
    if number < _MINUTE:
        return f"{number:.1f} s"
    if number < _HOUR:
        return f"{number // _MINUTE:.0f} min {number % _MINUTE:.0f} s"
    if number < _DAY:
        return f"{number // _HOUR:.0f} h {number % _HOUR // _MINUTE:.0f} min"
    return f"{number // _DAY:.0f} d {number % _DAY // _HOUR:.0f} h"


def share(part: float | None) -> str:
    """Return a part of one in percent."""
    return UNKNOWN if part is None else f"{part:.0%}"


def moment(text: str | None) -> str:
    """Return an instant of the status to the second."""
    return UNKNOWN if text is None else f"{text[:10]} {text[11:19]} UTC"


def short_moment(text: str | None, now: float) -> str:
    """Return it in UTC, without the day if that is today's.

    Args:
        text: The instant.
        now: Unix seconds.
    """
    if text is None:
        return UNKNOWN
    today = datetime.datetime.fromtimestamp(now, datetime.UTC).strftime("%Y-%m-%d")
    return text[11:19] if text[:10] == today else f"{text[:10]} {text[11:16]}"


__all__ = ["UNKNOWN", "count", "moment", "rate", "seconds", "share", "short_moment", "size"]
