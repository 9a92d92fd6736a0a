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
    starts.begin(looked_lsn, [])
    starts.note(scene.items, proved_lsn)
    assert starts.get(scene.others) is None
    assert starts.get(scene.items) == expected
    starts.drop(scene.items)
    assert starts.get(scene.items) is None, "the lake knows"


def test_the_first_look_counts_that_found_a_table_away(tmp_path: Path) -> None:
    scene, starts = Scene(tmp_path), GapStarts()
    starts.note(scene.items, 140)
    starts.note(scene.items, 500)
    assert starts.get(scene.items) == 140


def test_what_the_process_before_had_found_is_taken_over_once(tmp_path: Path) -> None:
    scene, starts = Scene(tmp_path), GapStarts()
    starts.begin(140, [scene.items])
    starts.begin(500, [scene.others])
    assert (starts.get(scene.items), starts.get(scene.others), starts.looked_lsn) == (140, None, 140)
