"""Whether the cluster that answers for a source is the one whose rows the lake has. Pure.

Asked by a start, `check` and `plan` before anything else of the source is looked at: the columns of another cluster's
tables may have the same numbers, and would be taken for renamed ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kuvasz.config import names
from kuvasz.config.sources import Source
from kuvasz.errors import SourceReplaced, another_cluster, place_of
from kuvasz.model import SourcePosition


def stranger(source: str, system_id: str, positions: Iterable[tuple[str, SourcePosition]]) -> SourceReplaced | None:
    """Return the error of a cluster that is not the one whose rows the lake has; None if it is.

    Args:
        source: The name of the source.
        system_id: The system identifier of the cluster that answers.
        positions: The positions of its tables: target, and how far the source is in there.
    """
    for target, position in positions:
        if position.system_id and position.system_id != system_id:
            return SourceReplaced(
                f"{place_of(source)}: cluster {system_id} answers, but table {target} holds rows of cluster"
                f" {position.system_id}",
                hint=another_cluster(source),
            )
    return None


def of_source(
    source: Source, positions: Callable[[str], Mapping[str, SourcePosition]]
) -> list[tuple[str, SourcePosition]]:
    """Return how far a source is in the lake, target by target; of its pasts only the last counts.

    Args:
        source: From the map.
        positions: Target -> by source.
    """
    found = [
        (spec.identifier, position)
        for spec in source.tables
        for name, position in positions(spec.identifier).items()
        if names.source_of(name) == source.name
    ]
    last = max((position.history for _, position in found), default=0)
    return [(target, position) for target, position in found if position.history == last]


__all__ = ["of_source", "stranger"]
