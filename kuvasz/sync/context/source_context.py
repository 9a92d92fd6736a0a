"""What the parts of one source's life have in common."""

from __future__ import annotations

import dataclasses

from kuvasz.config.sources import Source
from kuvasz.sync.context.lifetime import Lifetime
from kuvasz.sync.context.requests import Requests
from kuvasz.sync.context.shared import Shared
from kuvasz.sync.context.source_tables import SourceTables


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceContext:
    """What each part of one source's life stands on."""

    source: Source  #: from the map; with its tables as last seen it is `SourceTables.source`
    url: str = dataclasses.field(repr=False)
    shared: Shared
    lifetime: Lifetime
    source_tables: SourceTables
    requests: Requests

    @classmethod
    def of(cls, source: Source, shared: Shared) -> SourceContext:
        """Return that of a source that begins."""
        lifetime = Lifetime()
        source_tables = SourceTables(source, shared.lake, shared.states, shared.progress)
        return cls(
            source=source, url=source.url.get(), shared=shared, lifetime=lifetime, source_tables=source_tables,
            requests=Requests(source_tables, lifetime),
        )  # fmt: skip

    def settle(self, target: str) -> None:
        """Return when nothing that has begun for a target is under way; not from the loop itself."""
        self.lifetime.complete(self.shared.settle(target))


__all__ = ["SourceContext"]
