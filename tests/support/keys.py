"""Keys for the tests of the index."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kuvasz.fold.keys import Keys
from kuvasz.index.positions import PositionIndex

ALL = range(64)


def keys_of(numbers: Iterable[int]) -> Keys:
    """Distinct keys for numbers: three values of `hi`, so both words count, and far jumps of `lo`."""
    found = np.array(list(numbers), np.uint64)
    return Keys(hi=found % np.uint64(3) << np.uint64(30), lo=(found // np.uint64(3)) ** np.uint64(9))


def places(index: PositionIndex, numbers: Iterable[int]) -> dict[int, tuple[int, int]]:
    """What the index knows of the numbers."""
    numbers = list(numbers)
    file, position = index.lookup(keys_of(numbers))
    found = zip(numbers, file.tolist(), position.tolist(), strict=True)
    return {number: (f, p) for number, f, p in found if f != 0xFFFF_FFFF}
