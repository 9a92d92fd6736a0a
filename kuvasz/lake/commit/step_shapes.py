"""How the rows of one target's steps look, and which of its chunks can be put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kuvasz.lake.commit.bundles import Bundle
from kuvasz.model import TableType
from kuvasz.modes.owners import Owner

if TYPE_CHECKING:
    from kuvasz.lake.commit.bundles import Step
    from kuvasz.lake.commit.chunks import Chunk
    from kuvasz.lake.format.binding import Feeds
    from kuvasz.lake.table.table import LakeTable
    from kuvasz.model import TableName, Truncation
    from kuvasz.modes.shape import Shape
    from kuvasz.ports import Feed


class StepShapes:
    """The shapes of one target's steps.

    Args:
        table: The target, the lock of whose definition is held.
        feeds: What feeds it.
    """

    def __init__(self, table: LakeTable, feeds: Feeds) -> None:
        self._table = table
        self._feeds = feeds
        self._is_shared = (
            table.target.has_sid and not table.target.has_members and table.target.type is not TableType.HISTORY
        )

    def shape(self, step: Chunk | Truncation) -> Shape:
        """Return the shape of a step of one source; errors as for `Shapes.of`."""
        return self._table.columns.shapes.of(self._feed(step), step.relation)

    def likeness(self, chunk: Chunk) -> int | None:
        """Return what is the same for chunks that may be put together; None for one that stays alone."""
        if not self._is_shared:
            return None
        try:
            shape = self.shape(chunk)
        except Exception:  # noqa: BLE001 (its source's alone, and told with its step)
            return None
        is_alone = shape.sid is None or shape.transform is not None
        return None if is_alone else id(self._table.columns.shapes.alike(shape))

    def of(self, step: Step) -> tuple[Shape, tuple[Owner, ...]]:
        """Return the shape of a step, and whose its rows are if they are of several sources."""
        if not isinstance(step, Bundle):
            return self.shape(step), ()
        tables: dict[TableName, TableName] = {}  # of equal names each travels once
        owners = tuple(
            Owner(chunk.source, tables.setdefault(table := chunk.relation.table, table), self._feed(chunk).sid, end)
            for chunk, end in zip(step.chunks, step.ends, strict=True)
        )
        return self._table.columns.shapes.alike(self.shape(step.chunks[0])), owners

    def _feed(self, step: Chunk | Truncation) -> Feed:
        return self._feeds.find(self._table.name, step.source, step.relation)


__all__ = ["StepShapes"]
