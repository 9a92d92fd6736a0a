"""What the snapshots of a lake table show of its sources, one after another. Pure.

Enter: the snapshots that are left, each with the positions in its summary. A commit of rows notes there how far it
brings each source that it changes (`kuvasz.lake.table.commit_builder`); of the others a snapshot shows what its
parent did. Leaves: the newest snapshot that shows no more than a moment of the sources.

Where older snapshots were expired, that of which a source has no snapshot left is known only by the table's
property, if its rows have not changed since.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from kuvasz.config import names
from kuvasz.model import POSTGRES_EPOCH_US, SourcePosition


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LakeSnapshot:
    """A snapshot, as the table's metadata has it."""

    id: int
    parent_id: int | None
    at_ms: int  #: when it was committed, by the clock of who did, ms since 1970 UTC
    positions: Mapping[str, SourcePosition] = dataclasses.field(default_factory=dict)  #: in its summary, by source
    #: source -> newest commit time of what it brought, where that is not the last transaction's, µs since 2000 UTC
    newest_us: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ShownSource:
    """How far a snapshot shows one source."""

    position: SourcePosition | None  #: None: the snapshot that brought it was expired
    by_ms: int  #: it was there by then, ms since 1970 UTC, by kuvasz's clock
    newest_us: int = 0  #: as in `LakeSnapshot`

    @property
    def commit_us(self) -> int | None:
        """When the newest transaction in it committed, µs since 1970 UTC by the source's clock; None: not known."""
        at = 0 if self.position is None else self.position.commit_us
        return at + POSTGRES_EPOCH_US if at else None

    def exceeds_time(self, us: int) -> bool:
        """Whether it shows more than what had committed by a time. A copy counts as old as its commit here."""
        if self.commit_us is None:
            return self.by_ms * 1000 > us
        return max(self.commit_us, self.newest_us + POSTGRES_EPOCH_US if self.newest_us else self.commit_us) > us

    def exceeds(self, lsn: int) -> bool | None:
        """Whether it shows more than what committed before an LSN; None: nobody knows any more."""
        if self.position is None:
            return None
        return self.position.commit_lsn >= lsn if self.position.commit_lsn else self.position.lsn > lsn


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A snapshot with what it shows."""

    snapshot: LakeSnapshot
    sources: Mapping[str, ShownSource]  #: those that it has


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """The current snapshot of a table and its ancestors."""

    steps: tuple[Shown, ...]  #: oldest first; empty if nothing was ever written
    is_whole: bool  #: no ancestor was expired
    positions: Mapping[str, SourcePosition]  #: of the table now

    def at_time(self, us: int) -> Shown | None:
        """Return the newest snapshot that shows nothing that had not committed by a time, µs since 1970 UTC."""
        found = None
        for step in self.steps:
            if any(source.exceeds_time(us) for source in step.sources.values()):
                break
            found = step if step.sources else found
        return found

    def at_lsns(self, lsns: Mapping[str, int]) -> Shown | None:
        """Return the newest snapshot that shows nothing of some sources that committed at an LSN of theirs or later.

        Positions of another cluster than the source's present one are passed over: their LSNs mean nothing here.
        """
        found = None
        for step in self.steps:
            judged = [
                source.exceeds(lsns[names.source_of(name)]) if self._is_of_now(name, source) else None
                for name, source in step.sources.items()
                if names.source_of(name) in lsns
            ]
            if True in judged:
                break
            found = step if judged and None not in judged else found
        return found

    def _is_of_now(self, name: str, source: ShownSource) -> bool:
        now, then = self.positions.get(name), source.position
        return now is None or then is None or not then.system_id or then.system_id == now.system_id

    def next_of(self, step: Shown, name: str) -> ShownSource | None:
        """Return what the first snapshot after another one shows of a source that changed in it; None: it did not."""
        later = self.steps[self.steps.index(step) + 1 :]
        return next((one.sources[name] for one in later if name in one.snapshot.positions), None)


def lineage_of(
    snapshots: Mapping[int, LakeSnapshot], current_id: int | None, positions: Mapping[str, SourcePosition]
) -> Lineage:
    """Return the lineage of a table.

    Args:
        snapshots: All that are left, by their ids.
        current_id: The id of the current snapshot; None if there is none.
        positions: In the table's properties.
    """
    chain: list[LakeSnapshot] = []
    next_id = current_id
    while next_id is not None and next_id in snapshots:
        chain.append(snapshots[next_id])
        next_id = snapshots[next_id].parent_id
    chain.reverse()
    return Lineage(
        steps=tuple(_steps(chain, positions, is_whole=next_id is None)), is_whole=next_id is None, positions=positions
    )


def _steps(chain: list[LakeSnapshot], positions: Mapping[str, SourcePosition], *, is_whole: bool) -> Iterator[Shown]:
    moved = {name for snapshot in chain for name in snapshot.positions}
    shown: dict[str, ShownSource] = {}
    if chain:
        first = chain[0].at_ms
        # None of these snapshots changed its rows: all of them show it as it is now.
        shown = {name: ShownSource(position=at, by_ms=first) for name, at in positions.items() if name not in moved}
        if not is_whole:
            shown |= {name: ShownSource(position=None, by_ms=first) for name in moved}
    for snapshot in chain:
        brought = {
            name: ShownSource(position=at, by_ms=snapshot.at_ms, newest_us=snapshot.newest_us.get(name, 0))
            for name, at in snapshot.positions.items()
        }
        shown = shown | brought
        yield Shown(snapshot=snapshot, sources=shown)


__all__ = ["LakeSnapshot", "Lineage", "Shown", "ShownSource", "lineage_of"]
