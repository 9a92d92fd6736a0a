"""A mini-transaction between its two stages: its files are written, and nothing shows them yet."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kuvasz.errors import KuvaszError, LakeError, place_of
from kuvasz.lake.commit.bundles import sources_of
from kuvasz.lake.executors.tasks import ChunkDone
from kuvasz.model import NO_OPERATIONS, Operations, Truncation

if TYPE_CHECKING:
    from kuvasz.lake.commit.bundles import Step
    from kuvasz.lake.commit.chunks import Cut
    from kuvasz.lake.files.data_file import DataFile
    from kuvasz.lake.files.files import Changeset
    from kuvasz.lake.table.table import LakeTable
    from kuvasz.lake.table.write_era import WriteEra
    from kuvasz.ports import TableWork


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTable:
    """One target's part of a mini-transaction whose files are written."""

    work: TableWork
    cut: Cut
    steps: tuple[Step, ...]  #: those of the cut, small ones put together
    results: tuple[ChunkDone | Truncation, ...]  #: one per step
    era: WriteEra
    position_resets: Mapping[str, int]  #: those of the era when it was written
    identities: int = 0  #: `Definition.identities` when it was written
    error: KuvaszError | None = None  #: of all of it
    refused: Mapping[str, KuvaszError] = dataclasses.field(
        default_factory=dict
    )  #: sources that are left out, and why
    seconds: float = 0.0  #: that the job took, for all targets together
    written_at: float = 0.0  #: when it was done, monotonic seconds

    def paths(self) -> list[str]:
        """Return the files that were written."""
        return [file.path for file in self._files()]

    def operations(self) -> dict[str, Operations]:
        """Return, by source, how many rows the source inserted, updated and deleted."""
        found: dict[str, Operations] = {}
        for step, result in zip(self.steps, self.results, strict=True):
            if isinstance(result, ChunkDone):
                for source, counted in zip(sources_of(step), result.operations, strict=True):
                    found[source] = found.get(source, NO_OPERATIONS).plus(counted)
        return found

    def rejected(self) -> list[bytes]:
        """Return what was left out of it (`kuvasz.lake.executors.refused_rows`); nothing if everything fits."""
        return [one.rejected for one in self.results if isinstance(one, ChunkDone) and one.rejected is not None]

    def abandon_to(self, changeset: Changeset) -> None:
        """Put every file into a changeset, to be removed with it."""
        for file in self._files():
            changeset.added[-1 - len(changeset.added)] = (file, None)

    def begin(self, table: LakeTable) -> None:
        """Begin the commit of what can be committed to a table, whose lock is held.

        Raises:
            KuvaszError: Nothing of it can.
        """
        for source in (*self.work.abandoned, *self.refused):
            table.open.abandon(source)
        self.check(table)
        if self.error is not None:
            raise self.error

    def check(self, table: LakeTable) -> None:
        """Refuse changes of a source whose position was dropped since, or moved by others: see `WriteEra`.

        Neither is anything taken that tells rows without a key apart by other columns than the table does now.

        Raises:
            LakeError: There are some.
        """
        if self.identities != table.definition.identities:
            message = f"{place_of(table=table.name)}: its columns changed, by which rows without a key are told apart"
            raise LakeError(message, hint="kuvasz begins again by itself")
        for step in self.cut.steps:
            if self.position_resets.get(step.source, 0) != self.era.position_resets.get(step.source, 0):
                what = f"source {step.source} goes on from another position; what was written before is not taken"
                message = f"{place_of(table=table.name)}: {what}"
                raise LakeError(message, hint="kuvasz begins again by itself")

    def _files(self) -> Iterator[DataFile]:
        return (file for result in self.results if isinstance(result, ChunkDone) for file in result.files)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A mini-transaction that waits for its commits."""

    tables: tuple[WrittenTable, ...]


__all__ = ["Written", "WrittenTable"]
