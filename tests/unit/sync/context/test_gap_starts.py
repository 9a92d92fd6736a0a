from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.sync.context.gap_starts import Evidence, GapStarts
from tests.support.scene import Scene

LOOK = Evidence.PUBLICATION


@pytest.mark.parametrize(("looked_lsn", "proved_lsn", "expected"), [(0, 0, None), (0, 5, 5), (3, 0, 3), (3, 5, 5)])
def test_a_gap_begins_with_the_last_look_of_this_process_or_the_one_before(
    tmp_path: Path, looked_lsn: int, proved_lsn: int, expected: int | None
) -> None:
    scene, starts = Scene(tmp_path), GapStarts()
    starts.begin(looked_lsn, [])
    if proved_lsn:
        starts.prove(LOOK, scene.items, proved_lsn)
    starts.note(LOOK, scene.items)
    assert starts.get(scene.others) is None
    assert starts.get(scene.items) == expected
    starts.drop(scene.items)
    assert starts.get(scene.items) is None, "the lake knows"


def test_each_kind_of_look_proves_what_it_looks_at(tmp_path: Path) -> None:
    scene, starts = Scene(tmp_path), GapStarts()
    starts.begin(3, [])
    starts.prove(LOOK, scene.items, 140)
    starts.note(Evidence.FILE, scene.items)
    assert starts.get(scene.items) == 3
    starts.disprove(LOOK, scene.others)
    starts.disprove(LOOK, scene.items)
    starts.drop(scene.items)
    starts.note(LOOK, scene.items)
    assert starts.get(scene.items) == 3


def test_the_first_look_counts_that_found_a_table_away(tmp_path: Path) -> None:
    scene, starts = Scene(tmp_path), GapStarts()
    for at_lsn in (140, 500):
        starts.prove(LOOK, scene.items, at_lsn)
        starts.note(LOOK, scene.items)
    assert starts.get(scene.items) == 140


@pytest.mark.parametrize(("proved_lsn", "to_lsn", "expected"), [(140, 100, 100), (140, 200, 140), (140, 0, None)])
def test_what_was_proved_of_a_timeline_that_was_given_up_is_not_believed(
    tmp_path: Path, proved_lsn: int, to_lsn: int, expected: int | None
) -> None:
    scene, starts = Scene(tmp_path), GapStarts()
    starts.begin(120, [])
    starts.prove(LOOK, scene.items, proved_lsn)
    starts.fall_back(to_lsn)
    assert starts.looked_lsn == min(120, to_lsn)
    starts.note(LOOK, scene.items)
    assert starts.get(scene.items) == expected


def test_what_the_process_before_had_found_is_taken_over_once(tmp_path: Path) -> None:
    scene, starts = Scene(tmp_path), GapStarts()
    starts.begin(140, [scene.items])
    starts.begin(500, [scene.others])
    assert (starts.get(scene.items), starts.get(scene.others), starts.looked_lsn) == (140, None, 140)


def test_a_table_follows_until_the_lake_knows_of_its_gap(tmp_path: Path) -> None:
    scene, starts = Scene(tmp_path), GapStarts()
    starts.follow(scene.items, 900)
    starts.follow(scene.items, 950)
    assert (set(starts.following), starts.get(scene.items)) == ({scene.items.key}, 900)
    starts.drop(scene.items)
    assert (set(starts.following), starts.get(scene.items)) == (set(), None)
