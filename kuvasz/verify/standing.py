"""Which differences still stand when they are mended: others may have changed the lake since they were found.

What a running kuvasz applies of the stream is known from the stream. But a copy, a repair or another verify brings
rows of keys that did not change at the source, and takes others away.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import numpy as np

from kuvasz.fold.difference import find
from kuvasz.index.positions import ABSENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from kuvasz.fold.difference import Difference
    from kuvasz.lake.compare.comparison import Comparison
    from kuvasz.lake.files.files import FileTable


def standing(left: Difference, files: FileTable, strange: Callable[[], Comparison]) -> Difference:
    """Return the differences of which the lake has just the rows that were compared.

    Args:
        left: What was found, of keys that did not change at the source since.
        files: The files of the table at a look just now.
        strange: Gives a comparison of nothing with what came into the lake since, but for the stream's rows.

    Raises:
        LakeError: A file could not be read.
    """
    there, _ = files.alive(left.files, left.places)
    left = _without(left, left.owner[there == ABSENT])
    if not len(left):
        return left
    with contextlib.closing(strange()) as comparison:
        return _without(left, find(left.keys, comparison.difference_of(left.keys).keys))


def _without(left: Difference, keys: np.ndarray) -> Difference:
    stands = np.ones(len(left), np.bool_)
    stands[keys] = False
    return left.keep(stands)


__all__ = ["standing"]
