"""The table of a map's versions, as SQLite and PostgreSQL have it alike: rows are added, and old ones go."""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MapRow:
    """One version."""

    number: int
    layout: int  #: of this row; a greater one is a newer kuvasz's
    text: str = dataclasses.field(repr=False)
    at: datetime.datetime
    by: str


class VersionTaken(Exception):
    """Somebody else wrote this version first."""


class MapTable(Protocol):
    """The table. Blocks; from any thread.

    Whatever the database says is raised as a `ConfigError`, or a `MapUnwritten` where something is written.
    """

    place: str  #: for people, without secrets

    def latest(self) -> MapRow | None:
        """Return the newest version; None if there is none, or no table yet."""

    def get(self, number: int) -> MapRow | None:
        """Return a version; None if there is none."""

    def all(self) -> Sequence[MapRow]:
        """Return all versions, the newest first."""

    def newest(self) -> int | None:
        """Return the number of the newest version, without its text."""

    def add(self, row: MapRow, keep_from: int) -> None:
        """Add a version and take those away that are older than one; make the table where there is none.

        Args:
            row: The version.
            keep_from: The oldest that stays.

        Raises:
            VersionTaken: There is one of this number.
        """


__all__ = ["MapRow", "MapTable", "VersionTaken"]
