"""What a map's text may refer to that comes by the API: what the map refers to already, letter for letter. Pure.

Whoever writes the file may have ``${…}`` filled in with what this machine has: its variables, files, what its
commands say. Who has a token may not: a new reference would have a command run here, and one in another value would
send a password elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kuvasz.errors import ConfigError

_HINT: Final = (
    "what comes by HTTP means itself, but for values with ${…} that stand in the map as they are; `kuvasz map import`"
    " takes others, or write them into the file"
)


def refuse_new(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Refuse values with references that a map has not had at such a place.

    Args:
        before: The map that runs, as it is written.
        after: The map that is to run.

    Raises:
        ConfigError: There is one.
    """
    known = set(_references(before, ()))
    for place, text in _references(after, ()):
        if (place, text) not in known:
            raise ConfigError(f"{'.'.join(place)} has a reference that the map has not: {text!r}", hint=_HINT)


def _references(value: object, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each text with a reference, in keys and values, and its place without numbers, which shift."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _references(str(key), place)
            yield from _references(one, (*place, str(key)))
    elif isinstance(value, list):
        for one in value:
            yield from _references(one, place)
    elif isinstance(value, str) and "${" in value.replace("$${", ""):
        yield place, value


__all__ = ["refuse_new"]
