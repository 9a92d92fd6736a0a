"""A map that is kept in a database: each change is a row, so those before stay, and of two only one is the next."""

from __future__ import annotations

import datetime
import getpass
import os
import socket
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from kuvasz.config.written.map_store import NOTHING, MapStore, MapVersion, digest_of
from kuvasz.errors import ConfigError
from kuvasz.state.maps.map_table import MapRow, VersionTaken

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kuvasz.state.maps.map_table import MapTable

#: Of the rows; one with a greater layout is a newer kuvasz's.
LAYOUT: Final = 1

#: Versions that stay.
KEPT: Final = 20


class DatabaseMap(MapStore):
    """The map.

    Args:
        table: Where its versions are.
        given: What names it for ``--config``.
        folder: Where its relative paths begin; None: nowhere.
        secrets: What of its name is secret.
    """

    def __init__(
        self, table: MapTable, given: str, folder: Path | None, secrets: frozenset[str] = frozenset()
    ) -> None:  # fmt: skip
        self._table = table
        self._given = given
        self._folder = folder
        self.secrets = secrets

    @property
    @override
    def given(self) -> str:
        return self._given

    @property
    @override
    def place(self) -> str:
        return self._table.place

    @property
    @override
    def folder(self) -> Path | None:
        return self._folder

    @override
    def is_empty(self) -> bool:
        return self._table.newest() is None

    @override
    def raw(self, version: int | None = None) -> bytes:
        found = self._known(self._table.latest() if version is None else self._table.get(version))
        if found is not None:
            return found.text.encode("utf-8")
        if version is None:
            hint = "put one there: kuvasz --config … map import map.yaml, with the --config of this"
            raise ConfigError(f"there is no map in {self.place} yet", hint=hint)
        raise ConfigError(f"{self.place} has no version {version}", hint="see which it has: `kuvasz map versions`")

    @override
    def exchange(self, text: str, digest: str) -> None:
        found = self._known(self._table.latest())
        if (NOTHING if found is None else digest_of(found.text.encode("utf-8"))) != digest:
            raise self.changed()
        number = 1 if found is None else found.number + 1
        now = datetime.datetime.now(datetime.UTC)
        row = MapRow(number=number, layout=LAYOUT, text=text, at=now, by=_who())
        try:
            self._table.add(row, keep_from=number - KEPT + 1)
        except VersionTaken:
            # It may be ours, whose outcome was lost on the way.
            other = self._known(self._table.latest())
            if other is None or (other.number, other.text, other.by) != (number, text, row.by):
                raise self.changed() from None

    @override
    def stamp(self) -> object:
        try:
            return self._table.newest()
        except ConfigError:
            return None

    @override
    def versions(self) -> Sequence[MapVersion]:
        return [self._version(row) for row in self._table.all()]

    @staticmethod
    def _version(row: MapRow) -> MapVersion:
        raw = row.text.encode("utf-8")
        return MapVersion(number=row.number, digest=digest_of(raw), size=len(raw), at=row.at, by=row.by)

    def _known(self, row: MapRow | None) -> MapRow | None:
        if row is not None and row.layout > LAYOUT:
            raise ConfigError(
                f"{self.place}: version {row.number} is laid out as {row.layout}, and this kuvasz knows {LAYOUT}",
                hint="run the version of kuvasz that wrote it, or a newer one",
            )
        return row


def _who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # containers run as numbers that nobody has named
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


__all__ = ["KEPT", "LAYOUT", "DatabaseMap"]
