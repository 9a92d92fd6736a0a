"""The keys whose rows changes of a table touch: as the lake knows them, and as the source writes them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from kuvasz.decode import columns
from kuvasz.decode.messages import DELETE
from kuvasz.fold.difference import distinct
from kuvasz.fold.keys import Keys
from kuvasz.model import LakeType, ValueType
from kuvasz.modes.clone import take_key_from_old

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kuvasz.decode.cells import Cells
    from kuvasz.model import Int32s, Relation, Segment
    from kuvasz.modes.shape import Shape

#: Keys that are gathered before those that came more than once are left out.
_ROUND: Final = 1 << 18

_TEXT: Final = ValueType(kind=LakeType.STRING)


@dataclasses.dataclass(frozen=True, slots=True)
class _WrittenKeys:
    """n keys, and the values that they are made of as the source writes them."""

    keys: Keys
    texts: tuple[pa.Array, ...]

    def distinct(self) -> _WrittenKeys:
        """Return each once, ascending."""
        rows = distinct(self.keys)
        return _WrittenKeys(self.keys.take(rows), tuple(column.take(pa.array(rows)) for column in self.texts))


class ChangedKeys:
    """The keys that the changes taken so far touch.

    Args:
        shape_of: How a relation meets the lake's table, whose rows have a key.
    """

    def __init__(self, shape_of: Callable[[Relation], Shape]) -> None:
        self._shape_of = shape_of
        self._waiting: list[_WrittenKeys] = []
        self._settled: _WrittenKeys | None = None

    def add(self, change: Segment) -> None:
        """Take changes.

        Raises:
            DecodeError: A key cannot be read.
            SchemaError: The relation does not meet the lake's table.
        """
        shape = self._shape_of(change.relation)
        changes = shape.split(np.frombuffer(change.data, np.uint8), change.lengths)
        take_key_from_old(shape, changes)
        self._take(shape, changes.new, np.flatnonzero(changes.tag != DELETE).astype(np.int32))
        self._take(shape, changes.old, np.arange(int((changes.old_row >= 0).sum()), dtype=np.int32))

    def _take(self, shape: Shape, cells: Cells, rows: Int32s) -> None:
        if not len(rows):
            return
        texts = tuple(columns.column(cells, shape.bindings[index].column, _TEXT, rows) for index in shape.key)
        self._waiting.append(_WrittenKeys(shape.keys(cells, rows), texts).distinct())
        if sum(len(one.keys) for one in self._waiting) > _ROUND:
            self._settle()

    def _settle(self) -> None:
        known = self._waiting if self._settled is None else [self._settled, *self._waiting]
        self._waiting = []
        if known:
            self._settled = _WrittenKeys(
                Keys.concat([one.keys for one in known]),
                tuple(pa.concat_arrays(column) for column in zip(*(one.texts for one in known), strict=True)),
            ).distinct()

    @property
    def most(self) -> int:
        """As many keys as there are at most: some may count twice."""
        settled = 0 if self._settled is None else len(self._settled.keys)
        return settled + sum(len(one.keys) for one in self._waiting)

    @property
    def keys(self) -> Keys:
        """The keys, ascending, each once."""
        self._settle()
        return Keys.empty() if self._settled is None else self._settled.keys

    def rows(self, most: int) -> Iterator[list[tuple[str, ...]]]:
        """Yield what the keys are made of, so many at a time."""
        self._settle()
        if self._settled is None:
            return
        for begin in range(0, len(self._settled.keys), most):
            some = slice(begin, begin + most)
            yield list(zip(*(column[some].to_pylist() for column in self._settled.texts), strict=True))


__all__ = ["ChangedKeys"]
