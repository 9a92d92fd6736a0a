"""What the patterns of a group take in, as was last seen at its sources."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from kuvasz.model import TableName

T = TypeVar("T")  #: of what a map says of a table


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SeenTable:
    """A table that a source has.

    Attributes:
        table: Its name.
        has_key: Whether something tells its rows apart: a primary key or what its replica identity is.
        since: When it came, among the tables of all sources: those that came together have one number.
    """

    table: TableName
    has_key: bool
    since: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FoundTable(Generic[T]):
    """A table that a pattern takes in.

    Attributes:
        config: What the pattern says, with a target of the table's own.
        pattern: The key of the pattern.
        sources: The names of the sources that have it.
        since: When the first of them had it; see `SeenTable`.
    """

    config: T
    pattern: str
    sources: frozenset[str]
    since: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A table that is like a pattern and is not taken in."""

    source: str
    table: str
    pattern: str
    why: str
    hint: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FoundTables(Generic[T]):
    """What the patterns of one group take in.

    Attributes:
        tables: By their keys, as a map would name them.
        left_out: What they do not take in, though it is like them.
    """

    tables: Mapping[str, FoundTable[T]]
    left_out: tuple[LeftOut, ...] = ()

    @property
    def entries(self) -> dict[str, T]:
        """The same as entries of the group."""
        return {key: one.config for key, one in self.tables.items()}

    def written(self, key: str) -> str:
        """Return the key in the map of a table's entry."""
        found = self.tables.get(key)
        return key if found is None else found.pattern

    def has(self, key: str, source: str) -> bool:
        """Say whether a source has the table of an entry; an entry of a table's own is for all of them."""
        found = self.tables.get(key)
        return found is None or source in found.sources


__all__ = ["FoundTable", "FoundTables", "LeftOut", "SeenTable"]
