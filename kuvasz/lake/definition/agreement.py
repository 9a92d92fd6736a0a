"""Whether all who fill a field of a table want it to have another name.

One source alone does not change what readers see of the others.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from kuvasz.config.names import source_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kuvasz.lake.definition.known_sources import KnownSources

#: Of the sources that are waited for, so many are looked for: thousands may ask, each of them again and again.
_MOST: Final = 4


class Agreement:
    """What sources of one table asked for and did not get yet; the definition's lock is held.

    It is in memory alone: who waits asks again now and then.

    Args:
        known: What is known of the sources' columns.
        feeding: The sources with rows in the table.
    """

    def __init__(self, known: KnownSources, feeding: Collection[str]) -> None:
        self._known = known
        self._feeding = feeding
        self._asked: dict[str, Mapping[int, str]] = {}

    def ask(self, source: str, renamed: Mapping[int, str]) -> list[str]:
        """Ask for other names of fields, in place of what the source asked for before.

        Args:
            source: Who asks. Tables of one database that feed one target ask as one: who may alter one may alter all.
            renamed: Id of a field -> its new name; empty if the source wants nothing of the kind.

        Returns:
            Sources that fill one of the fields and have not asked for the same, four at most.
        """
        if not renamed:
            self._asked.pop(source, None)
            return []
        self._asked[source] = dict(renamed)
        against = (other for other in self._known if self._is_against(other, source, renamed))
        return sorted(itertools.islice(against, _MOST))

    def forget(self, source: str) -> None:
        """Forget what a source asked for."""
        self._asked.pop(source, None)

    def _is_against(self, other: str, source: str, renamed: Mapping[int, str]) -> bool:
        asked = self._asked.get(other, {})
        if asked == renamed or source_of(other) == source_of(source) or other not in self._feeding:
            return False
        filled = {column.field for column in self._known[other].live.values()}
        return any(field in filled and asked.get(field) != name for field, name in renamed.items())


__all__ = ["Agreement"]
