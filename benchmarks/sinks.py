"""Null sinks: lakes that open the real tables, work up to a stage, and then call the changes durable.

`Reading` takes changes and throws them away; `Writing` is all but the look-up of earlier versions and the commit;
with `DecodeChunks` or `FoldChunks` on the executors, it is less. Nothing is committed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from kuvasz import app, cli
from kuvasz.decode import tuples
from kuvasz.lake.commit import chunks, write_stage
from kuvasz.lake.executors.tasks import ApplyChunks, ChunkDone, ChunkTask
from kuvasz.lake.iceberg.lake import IcebergLake
from kuvasz.model import Truncation
from kuvasz.modes import clone
from kuvasz.ports import Failure, Receipt, TableWork


class Reading(IcebergLake):
    """Changes are taken and forgotten."""

    @override
    def write(self, works: Sequence[TableWork], *, apart: bool = False) -> Any:
        return works

    @override
    def commit(self, written: Any) -> Iterable[Receipt | Failure]:
        return [self._receipt(work) for work in written]

    def _receipt(self, work: TableWork) -> Receipt:
        table = self.table(work.target)
        cut = chunks.cut(work.changes, {}, 1 << 30)
        segments = [change for change in work.changes if not isinstance(change, Truncation)]
        return Receipt(
            target=work.target,
            positions=chunks.reached(cut, work.through, table.positions),
            rows=sum(len(segment.lengths) for segment in segments),
            snapshot_id=0,
        )


class Writing(Reading):
    """The real first stage; its data files are left to no snapshot."""

    @override
    def write(self, works: Sequence[TableWork], *, apart: bool = False) -> Any:
        return IcebergLake.write(self, works, apart=apart)

    @override
    def commit(self, written: Any) -> Iterable[Receipt | Failure]:
        failed = [job for job in written.tables if job.error is not None]
        return [
            *(Failure(target=job.work.target, error=job.error) for job in failed),
            *(
                Failure(target=job.work.target, source=source, error=error)
                for job in written.tables
                for source, error in job.refused.items()
            ),
            *(self._receipt(job.work) for job in written.tables if job not in failed),
        ]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DecodeChunks(ApplyChunks):
    """Decode every value of every row message."""

    @override
    def _apply(self, task: ChunkTask, _: object = None) -> ChunkDone:
        shape = self.shapes[task.shape]
        data, lengths = _raw(self, task)
        shape.rows(tuples.split_changes(data, lengths, shape.column_count).new)
        return ChunkDone()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FoldChunks(ApplyChunks):
    """Decode and fold; nothing is written."""

    @override
    def _apply(self, task: ChunkTask, _: object = None) -> ChunkDone:
        data, lengths = _raw(self, task)
        clone.apply_changes(self.shapes[task.shape], data, lengths)
        return ChunkDone()


def _raw(job: ApplyChunks, task: ChunkTask) -> tuple[np.ndarray, np.ndarray]:
    assert task.lengths is not None, "a chunk of the stream"
    assert task.data is not None
    lengths = np.frombuffer(task.lengths.read(job.properties), np.uint32)
    return np.frombuffer(task.data.read(job.properties), np.uint8), lengths


#: Stage -> the lake, and the job on the executors where it is not kuvasz's own.
STAGES: dict[str, tuple[type[IcebergLake], type[ApplyChunks]]] = {
    "reading": (Reading, ApplyChunks),
    "decoding": (Writing, DecodeChunks),
    "folding": (Writing, FoldChunks),
    "writing": (Writing, ApplyChunks),
}


def run(stage: str, options: list[str]) -> None:
    """Run kuvasz up to a stage."""
    lake, job = STAGES[stage]
    # The program composes itself; only what it makes its lake of, and its lake the job of, is put in place here.
    app.IcebergLake = lake  # type: ignore[attr-defined]
    write_stage.ApplyChunks = job  # type: ignore[attr-defined]
    cli.main(options)
