"""A source as the map has it, with its place there: also one whose group has no tables. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING

from kuvasz.config import names

if TYPE_CHECKING:
    from kuvasz.config.model import Config, DatabaseConfig, UrlConfig
    from kuvasz.config.problem import Path


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MappedUrl:
    """The source."""

    group: DatabaseConfig
    url: UrlConfig
    path: Path  #: in the map

    @property
    def name(self) -> str:
        """What kuvasz calls it."""
        return names.source_name(self.group.database, self.url.sid)

    @property
    def slot(self) -> str:
        """What its slot and publication are called."""
        return names.object_name(self.group.database, self.url.sid)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceSelection:
    """The sources that a person means; in both texts each ``*`` stands for any text."""

    database: str | None = None  #: the group's name
    sid: str | None = None  #: of the source, or its name; or that of one of its tenants

    def has(self, one: MappedUrl, tenants: Collection[str] = ()) -> bool:
        """Whether a source is meant, or a tenant of it."""
        return self.has_whole(one) or (self._is_of(one) and any(map(self.has_tenant, tenants)))

    def has_whole(self, one: MappedUrl) -> bool:
        """Whether a source is meant with all of its tenants."""
        known = [name for name in (one.url.sid, one.name) if name]
        return self._is_of(one) and (self.sid is None or any(map(self.has_tenant, known)))

    def has_tenant(self, sid: str) -> bool:
        """Whether a sid is meant."""
        return self.sid is not None and names.is_like(self.sid, sid)

    def describe(self) -> str:
        """Return it in words."""
        parts = [] if self.sid is None else [f"source {self.sid!r}"]
        parts += [] if self.database is None else [f"group {self.database!r}"]
        return " of ".join(parts) or "source"

    def _is_of(self, one: MappedUrl) -> bool:
        return self.database is None or names.is_like(self.database, one.group.database)


def all_of(config: Config) -> list[MappedUrl]:
    """Return the sources of a map, in its order."""
    return [
        MappedUrl(group=group, url=url, path=("databases", number, "urls", place))
        for number, group in enumerate(config.databases)
        for place, url in enumerate(group.urls)
    ]


__all__ = ["MappedUrl", "SourceSelection", "all_of"]
