"""What is changed in a map's file when a source comes or goes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kuvasz.config.written.map_edit import Append, Drop
from kuvasz.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kuvasz.admin.sources.mapped_url import MappedUrl
    from kuvasz.config.model import Config
    from kuvasz.config.written.map_edit import MapEdit, Plain


def added(config: Config, database: str, url: Mapping[str, Plain]) -> list[MapEdit]:
    """Return the edit that adds a source to a group.

    Raises:
        ConfigError: The map has no such group, or the source already.
    """
    known = [group.database for group in config.databases]
    if database not in known:
        raise ConfigError(
            f"the map has no group {database!r}: it says which tables a source has",
            hint=f"it has: {', '.join(known)}" if known else "write one into the map first: `kuvasz init` drafts it",
        )
    number = known.index(database)
    if any(one.sid == url.get("sid") for one in config.databases[number].urls):
        told = "a source without a sid" if url.get("sid") is None else f"the source {url['sid']!r}"
        raise ConfigError(f"the group {database!r} has {told} already", hint="give it a sid of its own")
    return [Append(path=("databases", number, "urls"), value=url)]


def dropped(chosen: Sequence[MappedUrl]) -> list[MapEdit]:
    """Return the edits that take sources out: the last first, for each changes the places of those behind it."""
    return [Drop(path=one.path) for one in reversed(chosen)]


__all__ = ["added", "dropped"]
