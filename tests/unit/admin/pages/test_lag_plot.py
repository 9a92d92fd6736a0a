"""The lag as a picture."""

from __future__ import annotations

from kuvasz.admin.pages.lag_plot import lag_plot


def test_there_is_nothing_to_draw_of_one_moment() -> None:
    assert lag_plot([(0.0, 1.0)]) == ""


def test_a_lag_of_nothing_lies_on_the_ground() -> None:
    assert 'points="0.0,99.0 600.0,99.0"' in lag_plot([(0.0, 0.0), (60.0, 0.0)])


def test_the_largest_lag_is_the_top_and_is_told() -> None:
    plot = lag_plot([(0.0, 0.0), (60.0, 120.0)])
    assert 'points="0.0,99.0 600.0,5.0"' in plot
    assert 'aria-label="lag of the last 1 min 0 s, at most 2 min 0 s"' in plot
