"""Whose turn it is to be compared."""

from __future__ import annotations

import pytest

from kuvasz.state.verdicts.verdict import Verdict
from kuvasz.verify.turns import is_between, next_due, pause_s

A, B, C = ("shop.a", "eu"), ("shop.b", "eu"), ("shop.c", "us")
DAY = 86_400.0


def test_whichever_waits_longest_comes_next() -> None:
    verdicts = {A: Verdict(at=1000, tried_at=1000), B: Verdict(at=900, tried_at=900)}
    assert next_due([A, B], verdicts, DAY, 900 + DAY) == B
    assert next_due([A, B], verdicts, DAY, 899 + DAY) is None
    assert next_due([A, B, C], verdicts, DAY, 1001) == C, "nobody has looked at it yet"
    assert next_due([A], verdicts, DAY, 999 + DAY) is None, "b cannot be compared now"
    assert next_due([], verdicts, DAY, 9 * DAY) is None


def test_what_came_to_no_end_is_tried_again_sooner_and_keeps_nobody() -> None:
    verdicts = {A: Verdict(at=0, error="it is copied again", tried_at=5000), B: Verdict(at=5000, tried_at=5000)}
    assert next_due([A, B], verdicts, DAY, 8599) is None
    assert next_due([A, B], verdicts, DAY, 8600) == A
    assert next_due([A, B], verdicts, 60, 5060) == A


def test_a_source_that_fails_is_asked_once_for_all_of_its_tables_and_the_others_go_on() -> None:
    verdicts = {A: Verdict(error="no answer", tried_at=5000)}
    assert next_due([A, B, C], verdicts, DAY, 5001) == C
    verdicts[C] = Verdict(at=5001, tried_at=5001)
    assert next_due([A, B, C], verdicts, DAY, 8599) is None, "b is of the source that failed"
    assert next_due([A, B, C], verdicts, DAY, 8600) == B, "and comes first when its time is over"


def test_one_of_which_there_is_nothing_to_compare_keeps_no_other_table_of_its_source_waiting() -> None:
    left_out = Verdict(error="the map says initial: skip", tried_at=5000, is_left_out=True)
    assert next_due([A, B], {A: left_out}, DAY, 5001) == B
    both = {A: left_out, B: Verdict(at=5001, tried_at=5001)}
    assert next_due([A, B], both, DAY, 4999 + DAY) is None
    assert next_due([A, B], both, DAY, 5000 + DAY) == A


@pytest.mark.parametrize(("share", "pause"), [(100, 0.0), (50, 2.0), (5, 38.0), (1, 198.0)])
def test_a_share_of_the_time(share: int, pause: float) -> None:
    assert pause_s(2.0, share) == pytest.approx(pause)


@pytest.mark.parametrize(
    ("times", "hour", "expected"),
    [(None, 3, True), ("22:00-05:30", 23, True), ("22:00-05:30", 5.4, True), ("22:00-05:30", 5.5, False),
     ("22:00-05:30", 21.9, False), ("09:00-17:00", 9, True), ("09:00-17:00", 17, False),
     ("9:00 - 17:00", 8.9, False)],
)  # fmt: skip
def test_times_of_the_day(times: str | None, hour: float, expected: bool) -> None:
    assert is_between(times, 7 * DAY + hour * 3600) is expected
