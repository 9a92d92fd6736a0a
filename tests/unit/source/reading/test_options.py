"""What a reader among many may gather, and how often it confirms."""

from __future__ import annotations

import pytest

from kuvasz.source.reading.options import ReaderOptions


@pytest.mark.parametrize(("sources", "confirm_s"), [(1, 1.0), (30, 1.0), (100, 3.0), (5000, 10.0)])
def test_readers_of_a_fleet_confirm_less_often(sources: int, confirm_s: float) -> None:
    assert ReaderOptions().among(sources, 1 << 30).confirm_interval_s == pytest.approx(confirm_s)


@pytest.mark.parametrize(("sources", "status_s"), [(1, 10.0), (250, 10.0), (400, 16.0), (1000, 20.0), (5000, 20.0)])
def test_readers_of_a_fleet_say_less_often_that_they_live(sources: int, status_s: float) -> None:
    assert ReaderOptions().among(sources, 1 << 30).status_interval_s == pytest.approx(status_s)


def test_a_reader_gathers_no_more_than_its_share() -> None:
    shared = ReaderOptions().among(100, 1000)
    assert (shared.spill_bytes, shared.gulp_bytes) == (1000, 1000)
    alone = ReaderOptions().among(1, 1 << 40)
    assert alone == ReaderOptions()


@pytest.mark.parametrize(
    ("sources", "rest_s"), [(1, 0.0), (2, 0.005), (40, 0.1), (100, 0.25), (1000, 1.0), (5000, 5.0)]
)
def test_readers_of_a_fleet_rest_the_longer_the_more_they_are(sources: int, rest_s: float) -> None:
    assert ReaderOptions().among(sources, 1 << 30).rest_s == pytest.approx(rest_s)


@pytest.mark.parametrize(("rest_s", "pause_s"), [(0.0, 0.5), (0.1, 0.5), (0.25, 1.0), (1.0, 4.0)])
def test_other_tasks_of_a_fleet_look_the_less_often_the_more_they_are(rest_s: float, pause_s: float) -> None:
    assert ReaderOptions(rest_s=rest_s).pause_s(0.5, 7.0) == pytest.approx(pause_s)


def test_what_is_due_is_due_with_the_next_beat() -> None:
    assert ReaderOptions().beat(7.3) == 7.3
    assert [ReaderOptions(rest_s=0.25).beat(at_s) for at_s in (7.3, 7.49, 7.5)] == [7.5, 7.5, 7.5]
