"""What is done for each target of a mini-transaction, and what of it Spark is given to do."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from kuvasz.errors import KuvaszError, LakeError
from kuvasz.lake.commit import bundles
from kuvasz.lake.commit.bundles import Bundle, Step
from kuvasz.lake.commit.chunks import Cut
from kuvasz.lake.commit.failures import bug
from kuvasz.lake.commit.written import WrittenTable
from kuvasz.lake.executors.tasks import ApplyChunks, ChunkDone
from kuvasz.lake.format.binding import placed
from kuvasz.model import TableType, Truncation

if TYPE_CHECKING:
    from kuvasz.lake.commit.step_shapes import StepShapes
    from kuvasz.lake.format.layout import Layout
    from kuvasz.lake.table.table import LakeTable
    from kuvasz.lake.table.write_era import WriteEra
    from kuvasz.modes.owners import Owner
    from kuvasz.modes.shape import Shape
    from kuvasz.ports import TableWork

#: Numbers of chunks: by them files of one commit are told apart by age.
_orders = itertools.count(1)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JobChunk:
    """One step that an executor carries out."""

    step: Step
    shape: int  #: its number
    owners: tuple[Owner, ...]  #: whose its rows are if they are of several sources
    location: str  #: of its table
    order: int  #: of its file among those of one commit
    is_hiding: bool = False  #: as `kuvasz.ports.Target.is_hiding`

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return 1 + len(self.step.others) if isinstance(self.step, Truncation) else self.step.rows

    @property
    def size(self) -> int:
        """The bytes of its rows."""
        return 1 if isinstance(self.step, Truncation) else self.step.size


class JobInput:
    """What Spark jobs are given: chunks of all targets, and how their rows look."""

    def __init__(self) -> None:
        self.chunks: list[JobChunk] = []
        self._shapes: list[Shape] = []
        self._numbers: dict[int, int] = {}  # id of a shape -> its number
        self._bounds: list[tuple[str, ...]] = []
        self._layouts: list[Layout] = []

    def add(self, step: Step, table: LakeTable, shapes: StepShapes, order: int | None = None) -> int:
        """Take a step; return its number.

        Args:
            step: The step to take.
            table: Whose it is.
            shapes: The shapes of the table.
            order: The order of the step that it was a part of, so that no later one counts as older.

        Raises:
            SchemaError: The table cannot hold its rows.
        """
        shape, owners = shapes.of(step)
        if id(shape) not in self._numbers:
            self._numbers[id(shape)] = len(self._shapes)
            self._shapes.append(shape)
            self._bounds.append(table.definition.bounded)
            self._layouts.append(table.definition.layout)
        self.chunks.append(
            JobChunk(
                step=step, shape=self._numbers[id(shape)], owners=owners, location=table.definition.location,
                order=next(_orders) if order is None else order, is_hiding=table.target.is_hiding,
            )
        )  # fmt: skip
        return len(self.chunks) - 1

    def job(self, properties: Mapping[str, str]) -> ApplyChunks:
        """Return what runs any of the chunks."""
        return ApplyChunks(
            shapes=tuple(self._shapes),
            bounded=tuple(self._bounds),
            layouts=tuple(self._layouts),
            properties=properties,
        )

    def error(self, number: int, result: ChunkDone) -> KuvaszError | None:
        """Return the error of a chunk, with the commit it is found in."""
        if result.error is None:
            return None
        step = self.chunks[number].step
        if isinstance(step, Truncation):
            return placed(result.error, step.commit_lsn)
        owner = bundles.chunks_of(step)[max(result.owner, 0)]
        return placed(result.error, owner.commit_lsn_of(max(result.row, 0)))

    def owner(self, number: int, result: ChunkDone) -> str | None:
        """Return the source whose the error of a chunk is; None if it is one of several."""
        step = self.chunks[number].step
        if not isinstance(step, Bundle):
            return step.source
        return None if result.owner < 0 else step.chunks[result.owner].source


@dataclasses.dataclass(slots=True, kw_only=True)
class TargetPlan:
    """What is done for one target."""

    work: TableWork
    cut: Cut
    era: WriteEra
    position_resets: Mapping[str, int]
    identities: int
    steps: list[tuple[Step, int | None]] = dataclasses.field(
        default_factory=list
    )  #: with numbers in the batch, if any
    refused: dict[str, KuvaszError] = dataclasses.field(default_factory=dict)  #: sources that are left out, and why

    def add(self, steps: Iterable[Step], table: LakeTable, shapes: StepShapes, batch: JobInput) -> None:
        """Put what Spark has to do into a batch; the lock of the table's definition is held."""
        for step in steps:
            is_row = table.target.type is TableType.CHANGELOG or not isinstance(step, Truncation)
            self._add(step, None, table, shapes, batch if is_row else None)

    def _add(
        self, step: Step, order: int | None, table: LakeTable, shapes: StepShapes, batch: JobInput | None
    ) -> None:
        try:
            self.steps.append((step, None if batch is None else batch.add(step, table, shapes, order)))
        except Exception as error:  # noqa: BLE001 (it is of this source: the worker has those of all of them)
            if not isinstance(step, Bundle):
                found = error if isinstance(error, KuvaszError) else bug(table, error, step.source)
                self.refused.setdefault(step.source, found)
                return
            for chunk in step.chunks:  # the table may have changed since they were put together
                self._add(chunk, order, table, shapes, batch)

    def refuse(self, done: Mapping[int, ChunkDone], batch: JobInput) -> set[int]:
        """Note which sources brought what is wrong; return the bundles of which that is not known."""
        unknown = set()
        for _, number in self.steps:
            error = None if number is None else batch.error(number, done[number])
            if number is None or error is None or not _is_of_source(error):
                continue
            if (owner := batch.owner(number, done[number])) is None:
                unknown.add(number)
            else:
                self.refused.setdefault(owner, error)
        return unknown

    def separate(
        self, unknown: Collection[int], table: LakeTable, shapes: StepShapes, batch: JobInput, *, is_apart: bool
    ) -> bool:
        """Put bundles into a batch once more, without the sources that are refused.

        The lock of the table's definition is held.

        Args:
            unknown: Bundles in which something is wrong, nobody knows whose: each of their chunks goes by itself.
            table: The target.
            shapes: The shapes of the table.
            batch: The batch that bundles are put into.
            is_apart: Whether the chunks of all bundles go by themselves: more was wrong than was known before.

        Returns:
            Whether there are any.
        """
        is_done = False
        steps, self.steps = self.steps, []
        for step, number in steps:
            if not isinstance(step, Bundle) or number is None:
                self.steps.append((step, number))
                continue
            left = tuple(chunk for chunk in step.chunks if chunk.source not in self.refused)
            if number not in unknown and len(left) == len(step.chunks):
                self.steps.append((step, number))
                continue
            is_done = True
            is_together = len(left) > 1 and not is_apart and number not in unknown
            for part in [Bundle(chunks=left)] if is_together else left:
                self._add(part, batch.chunks[number].order, table, shapes, batch)
        return is_done

    def written(self, done: Mapping[int, ChunkDone], batch: JobInput, begin: float, end: float) -> WrittenTable:
        """Put the results in the order of the steps, but those of sources that brought what is wrong.

        What is wrong with catalog or store is so for all of them, and the first such error counts.

        Args:
            done: Number in the batch -> what came of it.
            batch: The batch that was run.
            begin: When the first job began, monotonic seconds.
            end: When the last one ended.
        """
        found = (batch.error(number, done[number]) for _, number in self.steps if number is not None)
        error = next((one for one in found if one is not None and not _is_of_source(one)), None)
        left = [(step, number) for step, number in self.steps if step.source not in self.refused]
        return WrittenTable(
            work=self.work.without(self.refused),
            cut=self.cut.without(self.refused),
            steps=tuple(step for step, _ in left),
            results=tuple(_result(step, number, done) for step, number in left),
            era=self.era,
            position_resets=self.position_resets,
            identities=self.identities,
            error=error,
            refused=self.refused,
            seconds=end - begin,
            written_at=end,
        )


def _result(step: Step, number: int | None, done: Mapping[int, ChunkDone]) -> ChunkDone | Truncation:
    if number is not None:
        return done[number]
    assert isinstance(step, Truncation)
    return step


def _is_of_source(error: KuvaszError) -> bool:
    """Whether rows of a source are what is wrong, not catalog or store."""
    return not isinstance(error, LakeError)


__all__ = ["JobChunk", "JobInput", "TargetPlan"]
