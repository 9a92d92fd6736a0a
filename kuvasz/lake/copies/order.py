"""What a copy and a repair of a table are given alike."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa

from kuvasz.config.model import PipelineConfig
from kuvasz.lake.copies.turns import CopyTurns
from kuvasz.lake.executors.jobs import Jobs
from kuvasz.lake.files.files import Changeset
from kuvasz.lake.table.table import LakeTable
from kuvasz.model import Relation
from kuvasz.modes.shape import Shape
from kuvasz.ports import ANY_PACE, CopyPace, Feed

#: Where, below the state folder, copies and repairs keep what does not fit into memory.
COPIES: Final = "copy"
REPAIRS: Final = "repair"


def clear(state_folder: Path) -> None:
    """Remove what copies and repairs left that were killed: 16 bytes a row, which no later one takes up."""
    for name in (COPIES, REPAIRS):
        shutil.rmtree(state_folder / name, ignore_errors=True)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Bring what a source has of a table into the lake's table."""

    table: LakeTable
    feed: Feed
    relation: Relation
    jobs: Jobs
    properties: Mapping[str, str]
    folder: Path  #: on local disk, for what does not fit into memory
    pipeline: PipelineConfig
    turns: CopyTurns
    pace: CopyPace = ANY_PACE
    keep_rejected: Callable[[str, pa.Table], None] = lambda *_: None  #: see `kuvasz.ports.About.keep_rejected`

    @property
    def sid(self) -> str | None:
        """The source's id in the table's rows; None if they have none."""
        return self.feed.sid if self.table.target.has_sid else None

    def shape(self) -> Shape:
        """Return what the rows look like."""
        return self.table.columns.shapes.of(self.feed, self.relation)

    def changeset(self) -> Changeset:
        """Return the changes of a commit by which all rows of the source are as the map says."""
        changeset = Changeset()
        changeset.properties |= self.table.columns.made_by(self.feed.source)
        return changeset


__all__ = ["COPIES", "REPAIRS", "Order", "clear"]
