"""Which tables the patterns of a map take in, for verbs and for a start: as was seen last, or as sources say now."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from kuvasz.state.store import state_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from kuvasz.config.load import Loaded


def known(loaded: Loaded) -> Loaded:
    """Return a configuration that knows its tables as they were seen last; sources that were never seen are asked."""
    return _with(loaded, is_all=False)


def asked(loaded: Loaded) -> Loaded:
    """Return a configuration that knows its tables as all sources say that answer now."""
    return _with(loaded, is_all=True)


def kept(loaded: Loaded, groups: Collection[str] | None = None) -> Loaded:
    """Return the same for a start, and keep it: by who owns the state alone.

    Args:
        loaded: The configuration.
        groups: The groups whose sources are asked, while others are asked by other processes; None: all.
    """
    return _with(loaded, is_all=True, may_keep=True, groups=groups)


def _with(
    loaded: Loaded, *, is_all: bool, may_keep: bool = False, groups: Collection[str] | None = None
) -> Loaded:  # fmt: skip
    if not any(group.patterns for group in loaded.config.databases):
        return loaded
    from kuvasz.sync.pattern_tables import PatternTables  # and psycopg with it

    tables = PatternTables(state_of(loaded.config).feeds, may_keep=may_keep)
    if groups is not None:
        tables.is_mine = lambda source: source.database in groups
    return dataclasses.replace(loaded, config=tables.looked(loaded.config, is_all=is_all))


__all__ = ["asked", "kept", "known"]
