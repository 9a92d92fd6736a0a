from __future__ import annotations

from kuvasz.admin.freshness import Freshness


def test_nothing_is_known_before_a_mark_is_passed() -> None:
    freshness = Freshness()
    freshness.passed(100)
    assert (freshness.at, freshness.is_behind) == (None, False)
    freshness.mark(200, 5.0)
    freshness.passed(199)
    assert (freshness.at, freshness.is_behind) == (None, True)
    freshness.passed(200)
    assert (freshness.at, freshness.is_behind) == (5.0, False)


def test_an_idle_source_stays_fresh() -> None:
    freshness = Freshness()
    for at in (1.0, 2.0, 3.0):
        freshness.mark(100, at)
        freshness.passed(100)
    assert freshness.at == 3.0


def test_freshness_never_falls() -> None:
    freshness = Freshness()
    freshness.mark(100, 9.0)
    freshness.passed(100)
    freshness.mark(101, 4.0)  # a commit time of a clock that is behind
    freshness.passed(101)
    assert freshness.at == 9.0


def test_a_mark_behind_the_last_one_says_nothing() -> None:
    freshness = Freshness()
    freshness.mark(100, 1.0)
    freshness.mark(50, 7.0)
    freshness.passed(60)
    assert (freshness.at, freshness.is_behind) == (None, True)


def test_a_backlog_of_any_length_takes_bounded_memory_and_is_never_called_fresher_than_it_is() -> None:
    freshness = Freshness()
    for lsn in range(1, 10_001):
        freshness.mark(lsn, float(lsn))
    assert len(freshness._marks) <= 129
    freshness.passed(5_000)
    assert freshness.at is not None
    assert 4_000 < freshness.at <= 5_000
    assert freshness.is_behind
    freshness.passed(10_000)
    assert (freshness.at, freshness.is_behind) == (10_000.0, False)


def test_marks_of_a_past_that_is_gone_are_forgotten() -> None:
    freshness = Freshness()
    freshness.passed(900)
    freshness.mark(1000, 10.0)
    freshness.passed(400)
    freshness.mark(500, 20.0)
    freshness.passed(500)
    assert (freshness.at, freshness.is_behind) == (20.0, False)
