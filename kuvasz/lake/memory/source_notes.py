"""What the lake in memory remembers of its sources' tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from typing_extensions import override

from kuvasz.ports import SourceNotes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kuvasz.evolve.known import SourceColumns
    from kuvasz.ports import Gap, LakeColumn

#: Target and source.
_Feed: TypeAlias = tuple[str, str]


class MemorySourceNotes(SourceNotes):
    """See `kuvasz.ports.SourceNotes`.

    Args:
        columns: Returns the columns of a table of the lake.
    """

    def __init__(self, columns: Callable[[str], Sequence[LakeColumn]] = lambda _: ()) -> None:
        self._columns = columns
        self._partitions: dict[_Feed, frozenset[str]] = {}
        self._published: dict[_Feed, str] = {}
        self._skipped: set[_Feed] = set()
        self._parked: dict[_Feed, str] = {}
        self._gaps: dict[_Feed, Gap] = {}  #: open ones

    @override
    def columns(self, target: str, source: str) -> SourceColumns | None:
        """See `kuvasz.ports.SourceNotes.columns`: this lake goes by names."""
        return None

    @override
    def lake_columns(self, target: str) -> Sequence[LakeColumn]:
        """See `kuvasz.ports.SourceNotes.lake_columns`."""
        return self._columns(target)

    @override
    def partitions(self, target: str, source: str) -> frozenset[str] | None:
        """See `kuvasz.ports.SourceNotes.partitions`."""
        return self._partitions.get((target, source))

    @override
    def remember_partitions(self, target: str, source: str, partitions: frozenset[str]) -> None:
        """See `kuvasz.ports.SourceNotes.remember_partitions`."""
        self._partitions[target, source] = partitions

    def forget_partitions(self, target: str, source: str) -> None:
        """Remember nothing of them any more."""
        self._partitions.pop((target, source), None)

    @override
    def published(self, target: str, source: str) -> str | None:
        """See `kuvasz.ports.SourceNotes.published`."""
        return self._published.get((target, source))

    @override
    def remember_published(self, target: str, source: str, published: str) -> None:
        """See `kuvasz.ports.SourceNotes.remember_published`."""
        self._published[target, source] = published

    @override
    def skipped(self, target: str, source: str) -> bool:
        """See `kuvasz.ports.SourceNotes.skipped`."""
        return (target, source) in self._skipped

    def remember_skipped(self, target: str, source: str, *, is_skipped: bool) -> None:
        """Note whether a target lacks what a source's table had."""
        (self._skipped.add if is_skipped else self._skipped.discard)((target, source))

    @override
    def parked(self, target: str, source: str) -> str | None:
        """See `kuvasz.ports.SourceNotes.parked`."""
        return self._parked.get((target, source))

    @override
    def park(self, target: str, source: str, log_id: str | None) -> None:
        """See `kuvasz.ports.SourceNotes.park`."""
        if log_id is None:
            self._parked.pop((target, source), None)
        else:
            self._parked[target, source] = log_id

    @override
    def gap(self, target: str, source: str) -> Gap | None:
        """See `kuvasz.ports.SourceNotes.gap`."""
        return self._gaps.get((target, source))

    def open_gap(self, target: str, source: str, gap: Gap) -> None:
        """Note what is missing of a source from now on."""
        self._gaps[target, source] = gap

    def close_gap(self, target: str, source: str) -> None:
        """Note that nothing is missing any more, or that nobody asks."""
        self._gaps.pop((target, source), None)


__all__ = ["MemorySourceNotes"]
