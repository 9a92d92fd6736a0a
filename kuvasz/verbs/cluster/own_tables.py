"""The targets as `kuvasz check` looks at them where a log may feed several lakes: none is in another one's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kuvasz.config import names
from kuvasz.config import sources as config_sources
from kuvasz.state.lakes.ports import LakeTablePlace
from kuvasz.state.store import table_owners
from kuvasz.verbs.lakeview import LakeView

if TYPE_CHECKING:
    from kuvasz.config.model import Config


def prove(config: Config) -> str:
    """Return how many targets were looked at; nothing is claimed.

    Raises:
        TableTaken: One of them is another group's.
        LakeError: The catalog does not answer.
        StateError: The coordinator does not.
    """
    owners = table_owners(config)
    assert owners is not None, "there is a log"
    locations = {
        spec.identifier: spec.config.table_location
        for source in config_sources.resolve(config) for spec in source.tables
    }  # fmt: skip
    view = LakeView(config)
    found = [_place_of(config, view, target, locations[target]) for target in sorted(locations)]
    if (error := owners.taken(found)) is not None:
        raise error
    return f"{len(found)} targets, all of this lake alone"


def _place_of(config: Config, view: LakeView, target: str, asked: str | None) -> LakeTablePlace:
    if (table := view.load(target)) is None:
        place = asked or config.lake.default_location(target)
        return LakeTablePlace(target=target, place=place and names.one_place(place))
    metadata = table.metadata
    return LakeTablePlace(target=target, uuid=str(metadata.table_uuid), place=names.one_place(metadata.location))


__all__ = ["prove"]
