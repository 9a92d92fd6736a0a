"""What the parts of one source's life have in common."""

from __future__ import annotations

import dataclasses

from kuvasz.config.sources import Source
from kuvasz.sync.context.lifetime import Lifetime
from kuvasz.sync.context.requests import Requests
from kuvasz.sync.context.shared import Surroundings
from kuvasz.sync.context.source_tables import Roster


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What each part of one source's life stands on."""

    source: Source  #: from the map; with its tables as last seen it is `Roster.source`
    url: str = dataclasses.field(repr=False)
    around: Surroundings
    lifetime: Lifetime
    roster: Roster
    requests: Requests

    @classmethod
    def of(cls, source: Source, around: Surroundings) -> Basis:
        """Return that of a source that begins."""
        lifetime = Lifetime()
        roster = Roster(source, around.lake, around.states, around.progress)
        return cls(
            source=source, url=source.url.get(), around=around, lifetime=lifetime, roster=roster,
            requests=Requests(roster, lifetime),
        )  # fmt: skip

    def settle(self, target: str) -> None:
        """Return when nothing that has begun for a target is under way; not from the loop itself."""
        self.lifetime.complete(self.around.settle(target))


__all__ = ["Basis"]
