"""From where tables of one source may have missed changes that lie before their positions."""

from __future__ import annotations

from kuvasz.config.sources import SourceTableSpec


class GapStarts:
    """The places, until the lake knows of the gaps that begin there. From any thread.

    What was applied since the last look at a table may come behind what is missing.
    """

    def __init__(self) -> None:
        #: where the WAL ended when the tables that streamed were last known to have missed nothing, be it by an
        #: earlier process; 0: unknown
        self.looked_lsn = 0
        self._from: dict[str, int] = {}  #: by `SourceTableSpec.key`

    def note(self, spec: SourceTableSpec, proved_lsn: int | None) -> None:
        """Note that a table missed changes.

        Args:
            spec: The table.
            proved_lsn: Where the WAL ended before the last look of this process at the table itself that found none
                missing; None: there was none.
        """
        if begin := proved_lsn or self.looked_lsn:
            self._from[spec.key] = begin

    def take(self, spec: SourceTableSpec) -> int | None:
        """Return where a table's gap begins, for the lake to remember it; None: at its position."""
        return self._from.pop(spec.key, None)


__all__ = ["GapStarts"]
