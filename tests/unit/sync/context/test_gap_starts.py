from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.sync.context.gap_starts import GapStarts
from tests.support.scene import Scene


@pytest.mark.parametrize(
    ("looked_lsn", "proved_lsn", "expected"), [(0, None, None), (0, 5, 5), (3, None, 3), (3, 5, 5), (0, 0, None)]
)
def test_a_gap_begins_with_the_last_look_of_this_process_or_the_one_before(
    tmp_path: Path, looked_lsn: int, proved_lsn: int | None, expected: int | None
) -> None:
    scene, starts = Scene(tmp_path), GapStarts()
    starts.looked_lsn = looked_lsn
    starts.note(scene.items, proved_lsn)
    assert starts.take(scene.others) is None
    assert starts.take(scene.items) == expected
    assert starts.take(scene.items) is None, "the lake knows"
