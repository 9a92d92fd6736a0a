"""Rows of a lake table that no source's comparison looks at: those of a sid, or of a source table, that nobody has.

Someone else wrote them: kuvasz writes each row under its source's sid, and members' rows to files with their name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from kuvasz.lake.executors.comparison_tasks import LakeFile
from kuvasz.lake.executors.jobs import Jobs
from kuvasz.lake.executors.tasks import slim_worker
from kuvasz.lake.files.data_file import field_id
from kuvasz.lake.files.file_io import file_io
from kuvasz.lake.format import member
from kuvasz.lake.table.table import LakeTable


def count(jobs: Jobs, table: LakeTable, sids: frozenset[str | None]) -> int:
    """Return how many rows of a table, as of its last look, are of nobody.

    Args:
        jobs: Where files are read that may hold rows of several sids.
        table: The table.
        sids: The sids of the sources that feed the table.

    Raises:
        LakeError: A file could not be read.
    """
    members = {member.of(source) for source in table.positions}
    total = 0
    mixed: list[LakeFile] = []
    for entry in table.index.files:
        dead = table.index.files.dead(entry.number)
        is_strange = table.target.has_members and member.in_path(entry.path) not in members
        if is_strange or (table.target.has_sid and entry.sid is not None and entry.sid not in sids):
            total += entry.rows - len(dead)
        elif table.target.has_sid and entry.sid is None:
            mixed.append(
                LakeFile(number=entry.number, path=entry.path, rows=entry.rows, is_mixed=True,
                         dead=dead.serialize() if len(dead) else None)
            )  # fmt: skip
    if not mixed:
        return total
    assert table.definition.sid_id is not None
    job = _CountStrays(properties=table.definition.io_properties, sid_id=table.definition.sid_id, sids=sids)
    return total + sum(jobs.run(job, mixed, [file.rows for file in mixed]))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _CountStrays:
    """Count the live rows of files whose sid nobody has."""

    properties: Mapping[str, str]
    sid_id: int
    sids: frozenset[str | None]

    def __call__(self, files: Iterable[LakeFile]) -> Iterator[int]:
        slim_worker()
        for file in files:
            yield self._one(file)

    def _one(self, file: LakeFile) -> int:
        stored = pq.ParquetFile(file_io(self.properties, file.path).new_input(file.path).open())
        is_alive = np.ones(file.rows, np.bool_)
        if file.dead is not None:
            gone = BitMap64.deserialize(file.dead)
            is_alive[np.fromiter(gone, np.int64, len(gone))] = False
        name = next(
            (field.name for field in stored.schema_arrow if field.metadata and field_id(field) == self.sid_id), None
        )
        if name is None:
            return 0 if None in self.sids else int(np.count_nonzero(is_alive))
        known = pa.array([sid for sid in self.sids if sid is not None], pa.string())
        found, start = 0, 0
        for batch in stored.iter_batches(columns=[name]):
            column = batch.column(0)
            is_known = pc.is_in(column.cast(pa.string()), value_set=known).to_numpy(zero_copy_only=False)
            if None in self.sids:
                is_known |= column.is_null().to_numpy(zero_copy_only=False)
            found += int(np.count_nonzero(~is_known & is_alive[start : start + len(column)]))
            start += len(column)
        return found


__all__ = ["count"]
