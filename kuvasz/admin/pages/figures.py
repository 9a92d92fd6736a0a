"""Numbers as people read them on a page. Pure."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_STEP: Final = 1024.0
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def count(number: float | None) -> str:
    """Return a whole number with its thousands apart; a dash for what is not known."""
    return "–" if number is None else f"{number:,.0f}"


def size(bytes_: float | None) -> str:
    """Return a size in the largest unit that leaves something before the point."""
    if bytes_ is None:
        return "–"
    found, number = float(bytes_), 0
    while abs(found) >= _STEP and number < len(_UNITS) - 1:
        found, number = found / _STEP, number + 1
    unit = _UNITS[number]
    return f"{found:.0f} {unit}" if unit == "B" or found >= 100 else f"{found:.1f} {unit}"


def seconds(number: float | None) -> str:
    """Return a time that passed, in one or two units."""
    if number is None:
        return "–"
    if number < _MINUTE:
        return f"{number:.1f} s"
    if number < _HOUR:
        return f"{number // _MINUTE:.0f} min {number % _MINUTE:.0f} s"
    if number < _DAY:
        return f"{number // _HOUR:.0f} h {number % _HOUR // _MINUTE:.0f} min"
    return f"{number // _DAY:.0f} d {number % _DAY // _HOUR:.0f} h"


def moment(text: str | None) -> str:
    """Return an instant of the status to the second."""
    return "–" if text is None else f"{text[:10]} {text[11:19]} UTC"


__all__ = ["count", "moment", "seconds", "size"]
