"""Which snapshot shows a moment, on lineages of a few words."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kuvasz.lake.definition.lineage import LakeSnapshot, Lineage, lineage_of
from kuvasz.model import POSTGRES_EPOCH_US, SourcePosition


def streamed(lsn: int, second: float, system_id: str = "7") -> SourcePosition:
    """The position behind a transaction that committed at a second since 1970."""
    us = round(second * 1e6) - POSTGRES_EPOCH_US
    return SourcePosition(lsn=lsn, commit_lsn=lsn - 8, rows=1, commit_us=us, system_id=system_id)


def copied(lsn: int) -> SourcePosition:
    return SourcePosition(lsn=lsn, system_id="7")


def lineage(
    *steps: Mapping[str, SourcePosition], now: Mapping[str, SourcePosition] | None = None, first: int = 1
) -> Lineage:
    """Snapshots 1, 2, … of seconds 10, 20, …; those before `first` were expired."""
    snapshots = {
        number: LakeSnapshot(id=number, parent_id=number - 1 or None, at_ms=number * 10_000, positions=positions)
        for number, positions in enumerate(steps, 1)
        if number >= first
    }
    properties: dict[str, SourcePosition] = {}
    for positions in steps:
        properties |= positions
    return lineage_of(snapshots, len(steps) or None, properties if now is None else now)


def at_lsn(found: Lineage, **lsns: int) -> int | None:
    step = found.at_lsns(lsns)
    return None if step is None else step.snapshot.id


def at_second(found: Lineage, second: float) -> int | None:
    step = found.at_time(round(second * 1e6))
    return None if step is None else step.snapshot.id


THREE = lineage({"eu": copied(100)}, {"eu": streamed(208, 19)}, {}, {"eu": streamed(308, 39)})


@pytest.mark.parametrize(
    ("lsn", "snapshot"), [(99, None), (100, 1), (200, 1), (201, 3), (208, 3), (300, 3), (301, 4), (9_999, 4)]
)
def test_an_lsn_is_shown_by_the_newest_snapshot_without_a_commit_at_it_or_behind(lsn: int, snapshot: int) -> None:
    assert at_lsn(THREE, eu=lsn) == snapshot


@pytest.mark.parametrize(
    ("second", "snapshot"), [(9.9, None), (10, 1), (18.999999, 1), (19, 3), (38.9, 3), (39, 4), (99, 4)]
)
def test_a_time_is_shown_by_the_newest_snapshot_of_commits_until_then(second: float, snapshot: int) -> None:
    """A copy is as old as its commit, for nothing else is noted of it."""
    assert at_second(THREE, second) == snapshot


def test_a_snapshot_is_as_young_as_the_newest_transaction_in_it_whichever_came_last() -> None:
    newest = round(25 * 1e6) - POSTGRES_EPOCH_US
    snapshots = {
        1: LakeSnapshot(id=1, parent_id=None, at_ms=10_000, positions={"eu": streamed(108, 9)}),
        2: LakeSnapshot(
            id=2, parent_id=1, at_ms=30_000, positions={"eu": streamed(208, 19)}, newest_us={"eu": newest}
        ),
    }
    found = lineage_of(snapshots, 2, {"eu": streamed(208, 19)})
    assert [at_second(found, second) for second in (8, 9, 19, 24.999, 25)] == [None, 1, 1, 1, 2]
    assert at_lsn(found, eu=208) == 2


def test_a_snapshot_that_only_rewrites_shows_what_the_one_before_did() -> None:
    second, third = THREE.steps[1:3]
    assert second.sources == third.sources


def test_all_sources_have_to_be_of_a_time_and_only_those_named_of_an_lsn() -> None:
    both = lineage({"eu": streamed(108, 5)}, {"us": streamed(508, 15)}, {"eu": streamed(208, 12)})
    assert at_second(both, 13) == 1
    assert at_second(both, 15) == 3
    assert at_lsn(both, eu=208) == 3
    assert at_lsn(both, us=508) == 3
    assert at_lsn(both, eu=108, us=508) == 2
    assert at_lsn(both, us=400) is None, "it had nothing of us by then"


def test_a_commit_time_that_goes_back_does_not_hide_the_one_before_it() -> None:
    back = lineage({"eu": streamed(108, 5)}, {"eu": streamed(208, 9)}, {"eu": streamed(308, 8)})
    assert at_second(back, 8) == 1


def test_what_was_expired_is_known_by_the_property_if_nothing_came_since() -> None:
    quiet = lineage({"us": streamed(508, 3)}, {"eu": streamed(208, 19)}, {"eu": streamed(308, 29)}, first=2)
    assert not quiet.is_whole
    assert at_lsn(quiet, us=508) == 3
    assert at_lsn(quiet, us=500) is None
    assert at_second(quiet, 25) == 2


def test_what_was_expired_and_has_changed_since_is_not_known() -> None:
    found = lineage({"us": streamed(508, 3)}, {"eu": streamed(208, 19)}, {"us": streamed(608, 29)}, first=2)
    assert found.steps[0].sources["us"].position is None
    assert at_lsn(found, us=550) is None
    assert at_lsn(found, us=608) == 3
    assert at_second(found, 25) == 2, "it was there when the oldest snapshot that is left was committed"
    assert at_second(found, 19.5) is None


def test_positions_of_another_cluster_are_passed_over() -> None:
    moved = lineage({"eu": streamed(908, 5, "6")}, {"eu": streamed(108, 15)}, {"eu": streamed(208, 25)})
    assert at_lsn(moved, eu=150) == 2
    assert at_lsn(moved, eu=50) is None


def test_members_go_by_the_lsn_of_their_source() -> None:
    several = lineage({"eu/17": streamed(108, 5)}, {"eu/18": streamed(208, 15)})
    assert at_lsn(several, eu=150) == 1
    assert at_lsn(several, eu=208) == 2


def test_the_next_change_of_a_source_is_found_behind_others() -> None:
    first = THREE.steps[1]
    later = THREE.next_of(first, "eu")
    assert later is not None
    assert later.position == streamed(308, 39)
    assert THREE.next_of(THREE.steps[-1], "eu") is None


def test_without_a_snapshot_there_is_nothing() -> None:
    empty = lineage(now={"eu": copied(100)})
    assert (empty.steps, empty.is_whole, at_lsn(empty, eu=100)) == ((), True, None)
