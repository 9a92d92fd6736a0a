"""What the stream says of some keys: those that changed, and what they are now. Nothing else of it is kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from kuvasz.fold.difference import Difference, find
from kuvasz.fold.keys import Keys
from kuvasz.lake.executors import expression_jobs
from kuvasz.lake.executors.comparison_tasks import prints
from kuvasz.model import Int64s, Relation, Segment, TableType, Truncation, UInt8s, UInt32s
from kuvasz.modes import dispatch
from kuvasz.modes.row_rules import Evaluated
from kuvasz.modes.shape import NO_COLUMN, OWN_COLUMN, Shape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNTOUCHED, _ROW, _DELETED, _UNKNOWN = range(4)

#: Row messages that wait until Spark evaluates them together: a job takes a quarter of a second.
_WAITING_BYTES = 8 << 20


class KeyHistory:
    """The state of some keys after the changes taken so far.

    Args:
        found: What differs; its keys are those of interest.
        shape_of: How a relation meets the lake table.
        session: Evaluates expressions.
    """

    def __init__(self, found: Difference, shape_of: Callable[[Relation], Shape], session: SparkSession) -> None:
        self._found = found
        self._keys = found.keys
        self._shape_of = shape_of
        self._session = session
        self._states = np.zeros(len(found), np.uint8)
        self._prints = Keys.empty(len(found))
        self._source_rows = found.source_rows.copy()
        self._is_whole = False  #: rows are known as a whole: a key is all that there is to say of one
        self._waiting: list[Segment] = []
        self.added = 0  #: rows of a table without a key that came more than went, since all of them went last
        self._is_emptied = False

    def counted(self, rows: int, *, is_ahead: bool) -> int | None:
        """Return how many rows the source had, or has, if these were its rows on the other side of the changes.

        Nobody knows what it had before all of them went.

        Args:
            rows: The rows of a table without a key.
            is_ahead: They are there after the changes, and those before are asked for.
        """
        if is_ahead:
            return None if self._is_emptied else rows - self.added
        return self.added + (0 if self._is_emptied else rows)

    @property
    def touched(self) -> np.ndarray:
        """Per key whether it changed."""
        mask: np.ndarray = self._states != _UNTOUCHED
        return mask

    @property
    def unknown(self) -> np.ndarray:
        """Per key whether it changed to a row of which large values were not sent."""
        mask: np.ndarray = self._states == _UNKNOWN
        return mask

    def known(self) -> tuple[Int64s, Int64s, Keys | None]:
        """Return the changed keys of which all is known, as `Difference.corrected` takes them."""
        known = np.flatnonzero((self._states == _ROW) | (self._states == _DELETED))
        return known, self._source_rows[known], None if self._is_whole else self._prints.take(known)

    def add(self, change: Segment | Truncation) -> None:
        """Add a change; they must come in stream order.

        Raises:
            DecodeError: A value does not fit.
            SchemaError: The relation does not meet the lake table.
            LakeError: Spark could not evaluate it.
        """
        if isinstance(change, Truncation):
            self.evaluate()
            self._states[:] = _DELETED
            self._source_rows[:] = 0
            self.added, self._is_emptied = 0, True
            return
        shape = self._shape_of(change.relation)
        if shape.transform is None:
            data = np.frombuffer(change.data, np.uint8)
            self._note(changes(shape, data, change.lengths))
            return
        if self._waiting and self._waiting[-1].relation != change.relation:
            self.evaluate()
        self._waiting.append(change)
        if sum(len(waiting.data) for waiting in self._waiting) >= _WAITING_BYTES:
            self.evaluate()

    def evaluate(self) -> None:
        """Take in what waits to be evaluated; errors as for `add`."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        shape = self._shape_of(waiting[0].relation)
        data = b"".join(bytes(change.data) for change in waiting)
        lengths = np.concatenate([change.lengths for change in waiting])
        consume = _Consume(shape=shape, data=data, lengths=lengths)
        self._note(expression_jobs.read_changes(self._session, shape, data, lengths, consume))

    def _note(self, some: KeyChanges) -> None:
        at = find(self._keys, some.keys)
        hit = np.flatnonzero(at >= 0)
        mine = at[hit]
        if some.delta is not None:
            self._is_whole = True
            self.added += int(some.delta.sum())
            self._source_rows[mine] += some.delta[hit]
            self._states[mine] = _ROW
            return
        self._states[mine] = some.states[hit]
        self._source_rows[mine] = some.states[hit] != _DELETED
        self._prints.hi[mine], self._prints.lo[mine] = some.prints.hi[hit], some.prints.lo[hit]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KeyChanges:
    """What row messages do to n keys."""

    keys: Keys
    states: UInt8s
    prints: Keys  #: of the rows they are then; of those alone that are known
    delta: Int64s | None = None  #: of a table without a key: rows more or fewer


def changes(shape: Shape, data: UInt8s, lengths: UInt32s, evaluated: Evaluated | None = None) -> KeyChanges:
    """Return what row messages of one relation version do.

    Raises:
        DecodeError: A value does not fit.
    """
    if not shape.key:
        counted = dispatch.apply_changes(
            dataclasses.replace(shape, mode=TableType.CLONE), data, lengths, None, evaluated
        )
        assert counted.delta is not None
        none = Keys.empty(len(counted.keys))
        states = np.full(len(counted.keys), _ROW, np.uint8)
        return KeyChanges(keys=counted.keys, states=states, prints=none, delta=counted.delta.astype(np.int64))
    applied = dispatch.apply_changes(_as_clone(shape), data, lengths, None, evaluated)
    found = Keys.empty(len(applied.keys))
    is_row = (applied.written >= 0) & (applied.written < applied.rows.num_rows)
    states = np.select([applied.written < 0, is_row], [_DELETED, _ROW], _UNKNOWN).astype(np.uint8)
    if is_row.any():
        some = prints(shape, applied.rows.take(applied.written[is_row]))
        found.hi[is_row], found.lo[is_row] = some.hi, some.lo
    return KeyChanges(keys=applied.keys, states=states, prints=found)


def _as_clone(shape: Shape) -> Shape:
    """Return the shape of a clone of the same rows; by its own columns one is known whose deleted rows stay."""
    bindings = tuple(
        dataclasses.replace(binding, column=NO_COLUMN) if binding.column == OWN_COLUMN else binding
        for binding in shape.bindings
    )
    return dataclasses.replace(shape, mode=TableType.CLONE, bindings=bindings)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Consume:
    """What an executor does with Spark's answers."""

    shape: Shape
    data: bytes
    lengths: UInt32s

    def __call__(self, evaluated: Evaluated) -> KeyChanges:
        return changes(self.shape, np.frombuffer(self.data, np.uint8), self.lengths, evaluated)


__all__ = ["KeyChanges", "KeyHistory", "changes"]
