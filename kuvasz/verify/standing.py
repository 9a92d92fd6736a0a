"""Which differences still stand when they are mended: others may have changed the lake since they were found.

What a running kuvasz applies of the stream is known from the stream. But a copy, a repair or another verify brings
rows of keys that did not change at the source, and takes others away. Who merges small files does both, and changes
nothing: the rows of a key are as many as before then, with the same fingerprints, at other places.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from kuvasz.fold.difference import Difference, find
from kuvasz.index.positions import ABSENT

if TYPE_CHECKING:
    from kuvasz.lake.compare.comparison import Comparison
    from kuvasz.lake.files.files import FileTable

#: Gives a comparison of nothing with what came into the lake since, but for the stream's rows, and with some files
#: that were there already.
Since: TypeAlias = Callable[[Collection[int]], "Comparison"]


def standing(left: Difference, files: FileTable, since: Since) -> Difference:
    """Return the differences of which the lake has just the rows that were compared, where it has them now.

    Args:
        left: What was found, of keys that did not change at the source since.
        files: The files of the table at a look just now.
        since: See there.

    Raises:
        LakeError: A file could not be read.
    """
    there, _ = files.alive(left.files, left.places)
    is_moved = np.zeros(len(left), np.bool_)
    is_moved[left.owner[there == ABSENT]] = True
    came = find(left.keys, _rows_of(left, since, ()).keys)
    is_moved[came] = True
    if not is_moved.any():
        return left
    return Difference.concat([left.keep(~is_moved), _elsewhere(left.keep(is_moved), since)])


def _elsewhere(left: Difference, since: Since) -> Difference:
    """Return those of which the lake has the same rows as before, if at other places."""
    now = _rows_of(left, since, set(left.files.tolist()))
    at = find(now.keys, left.keys)
    stands = at >= 0  # a key without rows before is here only because some came
    at = at[stands]
    stands[stands] = (
        (left.lake_rows[stands] == now.lake_rows[at])
        & (left.lake_hi[stands] == now.lake_hi[at])
        & (left.lake_lo[stands] == now.lake_lo[at])
    )
    rows = find(left.keys.take(stands), now.keys.take(now.owner))
    kept = left.keep(stands)
    return dataclasses.replace(kept, files=now.files[rows >= 0], places=now.places[rows >= 0], owner=rows[rows >= 0])


def _rows_of(left: Difference, since: Since, files: Collection[int]) -> Difference:
    with contextlib.closing(since(files)) as comparison:
        return comparison.difference_of(left.keys)


__all__ = ["Since", "standing"]
