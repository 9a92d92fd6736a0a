"""From where tables of one source may have missed changes that lie before their positions."""

from __future__ import annotations

from collections.abc import Iterable

from kuvasz.config.sources import SourceTableSpec


class GapStarts:
    """The places, until the lake knows of the gaps that begin there. From any thread.

    What was applied since the last look at a table may come behind what is missing. Of several looks the first
    counts: a gap that is said to be too long costs an answer, one that is too short hides a loss.
    """

    def __init__(self) -> None:
        #: where the WAL ended when an earlier process last knew that no table had missed anything; 0: unknown
        self.looked_lsn = 0
        self._is_begun = False
        self._from: dict[str, int] = {}  #: by `SourceTableSpec.key`

    def begin(self, looked_lsn: int, due: Iterable[SourceTableSpec]) -> None:
        """Take over what the process before knew; of several calls the first counts.

        Args:
            looked_lsn: See the attribute.
            due: Tables whose gap was found, and that the lake may not know of yet.
        """
        if self._is_begun:
            return
        self._is_begun, self.looked_lsn = True, looked_lsn
        for spec in due:
            self.note(spec, None)

    def note(self, spec: SourceTableSpec, proved_lsn: int | None) -> None:
        """Note that a table missed changes.

        Args:
            spec: The table.
            proved_lsn: Where the WAL ended before the last look of this process at the table itself that found none
                missing; None: there was none.
        """
        if begin := proved_lsn or self.looked_lsn:
            self._from[spec.key] = min(begin, self._from.get(spec.key, begin))

    def get(self, spec: SourceTableSpec) -> int | None:
        """Return where a table's gap begins; None: at its position."""
        return self._from.get(spec.key)

    def drop(self, spec: SourceTableSpec) -> None:
        """Forget that: the lake remembers the gap."""
        self._from.pop(spec.key, None)


__all__ = ["GapStarts"]
