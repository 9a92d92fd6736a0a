"""What a lake knows of one target between two failures: shared by every implementation of `kuvasz.ports.Lake`.

Writing runs ahead of committing. When a commit fails, what was written behind it begins after a gap and must never be
committed, even if the target is resumed before it comes to that. So a failure ends an era, and written work remembers
the era it belongs to: eras are compared by identity, and whoever holds an old one can change nothing any more.

What one source brings may be refused alone, before anything of it is committed: then nothing more of that source is
written, and the era goes on for the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from kuvasz.errors import KuvaszError
from kuvasz.model import SourcePosition, TableName


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class WriteEra:
    """The time between two failures of a target."""

    accepted: dict[str, int]  #: source -> LSN before which everything was written, committed or not
    error: KuvaszError | None = None  #: why nothing is written; None: all is well
    events: dict[tuple[str, TableName], tuple[int, int]] = dataclasses.field(default_factory=dict)
    """(source, its table) -> commit LSN of the last transaction written, and how many events it had so far."""

    position_resets: dict[str, int] = dataclasses.field(default_factory=dict)
    """source -> how often its position was dropped, or another process moved it: what was written before that begins
    behind a gap, or has what is there."""

    refused: dict[str, KuvaszError] = dataclasses.field(default_factory=dict)
    """source -> why nothing of it is written, while others go on."""

    @staticmethod
    def begin(positions: Mapping[str, SourcePosition]) -> WriteEra:
        """Return an era in which sources go on from their positions."""
        return WriteEra(accepted={source: position.lsn for source, position in positions.items()})

    def refuse(self, errors: Mapping[str, KuvaszError]) -> None:
        """Write nothing more of some sources."""
        self.refused |= errors
        self.forget_events(errors.keys())

    def resumed(self, failure: KuvaszError | None, positions: Mapping[str, SourcePosition]) -> WriteEra:
        """Return the era that follows when a failure is undone: this one, unless the failure was of all sources."""
        if failure is None:
            return self
        if self.error is failure:
            return WriteEra.begin(positions)
        refused = self.refused.copy()  # whoever writes may add to it meanwhile
        for source in [source for source, error in refused.items() if error is failure]:
            self.accepted.pop(source, None)
            if source in positions:
                self.accepted[source] = positions[source].lsn
            del self.refused[source]
        return self

    def accept(self, lsns: Mapping[str, int]) -> None:
        """Note how far sources were written."""
        for source, lsn in lsns.items():
            self.accepted[source] = max(self.accepted.get(source, 0), lsn)

    def pass_over(self, lsns: Mapping[str, int]) -> None:
        """Note that sources are further than they were brought here: nothing is taken of what was written of them."""
        self.accept(lsns)  # first: whoever writes looks at the other before
        for source in lsns:
            self.position_resets[source] = self.position_resets.get(source, 0) + 1

    def drop(self, source: str) -> None:
        """Note that the position of a source was dropped."""
        self.accepted.pop(source, None)
        self.forget_events({source})
        self.position_resets[source] = self.position_resets.get(source, 0) + 1

    def forget_events(self, sources: Collection[str]) -> None:
        """Forget how far transactions of some sources were counted: they begin again."""
        self.events = {key: value for key, value in self.events.items() if key[0] not in sources}
