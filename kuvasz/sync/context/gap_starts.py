"""From where tables of one source may have missed changes that lie before their positions."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from kuvasz.config.sources import SourceTableSpec
from kuvasz.sync.rules.few_keys import FewKeys


class Evidence(enum.Enum):
    """What a look is at that finds whether a table missed changes."""

    PUBLICATION = "publication"  #: the catalog rows by which it is published
    FILE = "file"  #: the file that its rows are in
    PARTITIONS = "partitions"  #: its partitions and their files


class GapStarts:
    """The places, until the lake knows of the gaps that begin there. From any thread.

    What was applied since the last look at a table may come behind what is missing. Of several looks the first
    counts: a gap that is said to be too long costs an answer, one that is too short hides a loss.
    """

    def __init__(self) -> None:
        #: where the WAL ended when an earlier process last knew that no table had missed anything; 0: unknown
        self.looked_lsn = 0
        self.falls = 0  #: how often `fall_back` was called: what was looked at before proves nothing behind it
        #: by `SourceTableSpec.key`: tables that are to be compared for their gaps, and follow until then
        self.following: FewKeys[str] = FewKeys()
        self._is_begun = False
        #: by `SourceTableSpec.key`: where the WAL ended before the last look of this process that found none missing
        self._proved: dict[tuple[Evidence, str], int] = {}
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
            self._begin(spec, looked_lsn)

    def fall_back(self, to_lsn: int) -> None:
        """Forget what was proved behind a place: the source went on from there on another timeline.

        Args:
            to_lsn: The place; 0: it is another source.
        """
        self.falls += 1
        self.looked_lsn = min(self.looked_lsn, to_lsn)
        self._proved = {look: min(at_lsn, to_lsn) for look, at_lsn in tuple(self._proved.items())}

    def prove(self, evidence: Evidence, spec: SourceTableSpec, at_lsn: int) -> None:
        """Note that a table missed nothing.

        Args:
            evidence: What was looked at.
            spec: The table.
            at_lsn: Where the WAL ended before the look.
        """
        self._proved[evidence, spec.key] = at_lsn

    def proved_lsn(self, evidence: Evidence, specs: Iterable[SourceTableSpec]) -> int:
        """Return up to where all of some tables missed nothing as far as one kind of look tells; 0: unknown."""
        return min((self._proved.get((evidence, spec.key), 0) for spec in specs), default=0)

    def disprove(self, evidence: Evidence, spec: SourceTableSpec) -> None:
        """Forget the looks at a table: they say nothing of the rows that it will have."""
        self._proved.pop((evidence, spec.key), None)

    def note(self, evidence: Evidence, spec: SourceTableSpec) -> None:
        """Note that a table missed changes since it was last looked at.

        Args:
            evidence: What shows it.
            spec: The table.
        """
        self._begin(spec, self._proved.get((evidence, spec.key), 0) or self.looked_lsn)

    def follow(self, spec: SourceTableSpec, at_lsn: int) -> None:
        """Have a table follow until it is compared.

        Args:
            spec: The table.
            at_lsn: Its position: the gap begins there at the latest.
        """
        self._begin(spec, at_lsn)
        self.following.add(spec.key)

    def _begin(self, spec: SourceTableSpec, at_lsn: int) -> None:
        if at_lsn:
            self._from[spec.key] = min(at_lsn, self._from.get(spec.key, at_lsn))

    def get(self, spec: SourceTableSpec) -> int | None:
        """Return where a table's gap begins; None: at its position."""
        return self._from.get(spec.key)

    def drop(self, spec: SourceTableSpec) -> None:
        """Forget from where a table may have missed changes: the lake remembers the gap."""
        self.following.discard(spec.key)
        self._from.pop(spec.key, None)


__all__ = ["Evidence", "GapStarts"]
