"""Durations and sizes with their units, as people write them: ``500ms``, ``1s``, ``64MB``.

Units of size are powers of 1024, as in PostgreSQL's own settings (manual, section 20.1.1 "Parameter Names and
Values"), so that ``memory: 1GB`` here and ``shared_buffers = 1GB`` there are one and the same.
"""

from __future__ import annotations

import fractions
import re

#: Microseconds of each unit, largest first. Durations are exact to the microsecond.
DURATIONS = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}

#: Bytes of each unit, largest first.
SIZES = {"TB": 1024**4, "GB": 1024**3, "MB": 1024**2, "kB": 1024, "B": 1}

_SIZES_FOLDED = {name.lower(): size for name, size in SIZES.items()} | {
    "kib": 1024, "mib": 1024**2, "gib": 1024**3, "tib": 1024**4,
}  # fmt: skip
_QUANTITY = re.compile(r"(\d{1,20}(?:\.\d{1,9})?)\s*([A-Za-z]*)", re.ASCII)


def parse_duration(value: object) -> float:
    """Return seconds.

    Args:
        value: A number with one of the units of `DURATIONS`, or a plain 0.

    Raises:
        ValueError: The text is no duration; the message completes a sentence that begins with the option's name.
    """
    if not isinstance(value, bool) and isinstance(value, int | float) and value == 0:
        return 0.0
    match = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or match[2] not in DURATIONS:
        msg = f"must be a duration such as 500ms, 1s, 5m, 1h or 1d, not {_shown(value)}{_duration_hint(value)}"
        raise ValueError(msg)
    micros = fractions.Fraction(match[1]) * DURATIONS[match[2]]
    if micros != int(micros):
        msg = f"must be whole microseconds, not {_shown(value)}"
        raise ValueError(msg)
    return int(micros) / 1_000_000


def render_duration(seconds: float) -> str:
    """Return the shortest exact form: 0.5 gives ``500ms``."""
    micros = round(seconds * 1_000_000)
    return _render(micros, DURATIONS) if micros else "0s"


def parse_size(value: object) -> int:
    """Return bytes.

    Args:
        value: Bytes, or a number with one of the units of `SIZES` in any case; ``KiB`` to ``TiB`` mean the same.

    Raises:
        ValueError: The text is no size; the message completes a sentence that begins with the option's name.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return int(value)
    match = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    unit = _SIZES_FOLDED.get(match[2].lower() or "b") if match else None
    if match is None or unit is None:
        msg = f"must be a size such as 512kB, 64MB or 1GB, or a number of bytes, not {_shown(value)}"
        raise ValueError(msg)
    size = fractions.Fraction(match[1]) * unit
    if size != int(size):
        msg = f"must be whole bytes, not {_shown(value)}"
        raise ValueError(msg)
    return int(size)


def render_size(size: int) -> str:
    """Return the shortest exact form: 67108864 gives ``64MB``."""
    return _render(size, SIZES) if size else "0B"


def _render(amount: int, units: dict[str, int]) -> str:
    name, unit = next((name, unit) for name, unit in units.items() if amount % unit == 0)
    return f"{amount // unit}{name}"


def _shown(value: object) -> str:
    return "nothing" if value is None else repr(value)


def _duration_hint(value: object) -> str:
    is_bare = isinstance(value, int | float) and not isinstance(value, bool)
    is_bare = is_bare or (isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?", value) is not None)
    return f": did you mean {value}s?" if is_bare else ""
