"""What a slice says of itself, and what is no slice. What it holds is `test_retelling`'s."""

from __future__ import annotations

import pytest

from kuvasz.staging import slice_format
from kuvasz.staging.cutter import Cutter
from kuvasz.staging.slice_format import SliceDamaged
from kuvasz.staging.stream_messages import StreamMessages
from tests.support import pgoutput
from tests.support.pgoutput import begin, commit, relation, row


def made() -> bytes:
    cutter = Cutter(50, 0, 0)
    stretches = [
        stretch
        for messages in (
            [begin(100), relation(1), row(1, "a"), commit(100)],
            [begin(200), row(1, "b"), relation(2), row(2, "c"), commit(200)],
        )
        for stretch in cutter.feed(StreamMessages(*pgoutput.gulp(messages)))
    ]
    return slice_format.encode("eu", stretches)


def test_stretches_are_one_run_of_messages() -> None:
    found = slice_format.decode(made(), "eu", 1, 2)
    assert (len(found.lengths), found.needs) == (9, {}), "it describes relations itself"
    assert found.data.startswith(begin(100))
    assert found.data.endswith(commit(200))


@pytest.mark.parametrize("which", [("us", 1, 2), ("eu", 2, 2), ("eu", 1, 3)])
def test_another_slice_is_refused(which: tuple[str, int, int]) -> None:
    with pytest.raises(SliceDamaged, match="it holds 1 to 2 of eu"):
        slice_format.decode(made(), *which)


def test_each_bit_counts() -> None:
    good = made()
    for at in range(0, len(good), 7):
        bad = bytearray(good)
        bad[at] ^= 16
        with pytest.raises(SliceDamaged):
            slice_format.decode(bytes(bad), "eu", 1, 2)
    for size in (0, 5, 12, 40, len(good) - 1):
        with pytest.raises(SliceDamaged):
            slice_format.decode(good[:size], "eu", 1, 2)
