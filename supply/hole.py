"""A known hole of something that is delivered, as a database of holes tells it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Hole:
    """A hole of one version of one package.

    Attributes:
        package: Its name: `aiohttp`, or `org.lz4:lz4-java`.
        version: The one that is locked.
        names: What the hole is called (`GHSA-…`, `CVE-…`, `PYSEC-…`), sorted.
        summary: One line.
        fixed: The versions that mended it.
        places: Which lock it is in, or which jar has its classes.
    """

    package: str
    version: str
    names: tuple[str, ...]
    summary: str
    fixed: tuple[str, ...]
    places: tuple[str, ...]

    @property
    def line(self) -> str:
        """Return what a person reads."""
        mended = f"; mended in {', '.join(self.fixed)}" if self.fixed else "; not mended yet"
        where = ", ".join(self.places)
        return f"{self.package} {self.version} ({where}): {', '.join(self.names)}: {self.summary}{mended}"


class DatabaseUnreachableError(Exception):
    """The database of holes did not answer, or not about everything: nothing is known of what was asked."""


__all__ = ["DatabaseUnreachableError", "Hole"]
