"""Where the text of a map is kept: a file, or a database whose maps a program writes. Both keep the same promises.

A store has one text at a time. Who writes another one says which text it is to replace, by its digest: whoever was
slower is refused, and reads again. What was there before is kept for a person who wants it back.
"""

from __future__ import annotations

import abc
import dataclasses
import datetime
import hashlib
from typing import TYPE_CHECKING, Final

from kuvasz.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: The digest of what a store has that has nothing yet.
NOTHING: Final = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MapVersion:
    """One text that a store has, or had."""

    number: int  #: counted from 1 on; 0 where nobody counts
    digest: str
    size: int  #: in bytes
    at: datetime.datetime
    by: str  #: user and machine; empty where nobody knows

    def as_json(self) -> dict[str, object]:
        """Return it ready for JSON."""
        return {
            "version": self.number, "at": self.at.isoformat(), "by": self.by, "bytes": self.size,
            "digest": self.digest,
        }  # fmt: skip


class MapStore(abc.ABC):
    """The store. Blocks; from any thread."""

    secrets: frozenset[str] = frozenset()  #: of what names it

    @property
    @abc.abstractmethod
    def given(self) -> str:
        """What names it for ``--config``, with references to passwords and not these."""

    @property
    @abc.abstractmethod
    def place(self) -> str:
        """What names it for people: places of options begin with it."""

    @property
    @abc.abstractmethod
    def folder(self) -> Path | None:
        """Where relative paths of the map begin; None: nowhere, so there must be none."""

    @abc.abstractmethod
    def is_empty(self) -> bool:
        """Whether it has no map yet.

        Raises:
            ConfigError: It cannot be read.
        """

    @abc.abstractmethod
    def raw(self, version: int | None = None) -> bytes:
        """Return the text as it is kept.

        Args:
            version: An earlier one.

        Raises:
            ConfigError: It cannot be read, or is not there.
        """

    @abc.abstractmethod
    def exchange(self, text: str, digest: str) -> None:
        """Put another text in the place of the one that is there, and keep that.

        Args:
            text: What it is to have.
            digest: SHA-256 of what it has now; `NOTHING` if nothing.

        Raises:
            ConfigError: It has something else by now.
            MapUnwritten: It cannot be written: it stays as it was.
        """

    @abc.abstractmethod
    def stamp(self) -> object:
        """Return what differs when somebody wrote it again; None while it cannot be read."""

    @abc.abstractmethod
    def versions(self) -> Sequence[MapVersion]:
        """Return what it has and what it had, the newest first.

        Raises:
            ConfigError: It cannot be read.
        """

    def text(self, digest: str) -> str:
        """Return what it has, with its line ends and byte-order mark.

        Args:
            digest: SHA-256 of what it is to have.

        Raises:
            ConfigError: It cannot be read, or has something else by now.
        """
        found = self.raw()
        if digest_of(found) != digest:
            raise self.changed()
        return found.decode("utf-8")

    def changed(self) -> ConfigError:
        """Return what is told whoever knows another text of it."""
        return ConfigError(
            f"{self.place} is not what this kuvasz runs by: somebody changed it since it was read",
            hint="have it read again (`kuvasz reload`), look at what it has now, and try it again",
        )


def digest_of(raw: bytes) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(raw).hexdigest()


__all__ = ["NOTHING", "MapStore", "MapVersion", "digest_of"]
