"""Holes that are lived with for a while: `requirements/accepted.toml`, each with its reason and its last day."""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass

#: Nothing is accepted for longer: what was right a year ago is looked at again.
LONGEST = datetime.timedelta(days=366)
_KEYS = {"hole", "package", "reason", "expires"}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Accepted:
    """A hole that is accepted.

    Attributes:
        hole: One of its names.
        package: The package's name, as `Hole.package` has it.
        reason: Why it does no harm here.
        expires: The last day it is accepted.
    """

    hole: str
    package: str
    reason: str
    expires: datetime.date

    @property
    def line(self) -> str:
        """Return what a person reads."""
        return f"{self.package}: {self.hole}, until {self.expires}: {self.reason}"


def read(text: str, today: datetime.date) -> tuple[Accepted, ...]:
    """Return the entries of the file.

    Raises:
        ValueError: An entry lacks something, or is to hold for more than a year.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"no TOML: {error}") from error
    if unknown := document.keys() - {"accepted"}:
        raise ValueError(f"nothing but [[accepted]] is known: {', '.join(sorted(unknown))}")
    return tuple(_read_one(entry, number, today) for number, entry in enumerate(document.get("accepted", []), 1))


def _read_one(entry: Mapping[str, object], number: int, today: datetime.date) -> Accepted:
    place = f"accepted entry {number} ({entry.get('package', '?')}, {entry.get('hole', '?')})"
    if entry.keys() != _KEYS:
        raise ValueError(f"{place}: it has to have {', '.join(sorted(_KEYS))}, and nothing else")
    hole, package, reason = (str(entry[key]).strip() for key in ("hole", "package", "reason"))
    expires = entry["expires"]
    if not (hole and package and reason):
        raise ValueError(f"{place}: hole, package and reason may not be empty")
    # A time of TOML is a day, too, to Python.
    if type(expires) is not datetime.date:
        raise ValueError(f"{place}: expires is no day: {expires}")
    if expires - today > LONGEST:
        raise ValueError(f"{place}: expires is more than a year away: {expires}")
    return Accepted(hole=hole, package=package, reason=reason, expires=expires)


__all__ = ["LONGEST", "Accepted", "read"]
