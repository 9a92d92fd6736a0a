"""Numbers for people."""

from __future__ import annotations

import pytest

from kuvasz.shown import figures


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (figures.count(None), "–"), (figures.count(1234567), "1,234,567"),
        (figures.size(None), "–"), (figures.size(0), "0 B"), (figures.size(1023), "1023 B"),
        (figures.size(1536), "1.5 kB"), (figures.size(150 << 20), "150 MB"), (figures.size(5 << 60), "5120 PB"),
        (figures.seconds(None), "–"), (figures.seconds(0.04), "0.0 s"), (figures.seconds(75), "1 min 15 s"),
        (figures.seconds(3725), "1 h 2 min"), (figures.seconds(180_000), "2 d 2 h"),
        (figures.moment(None), "–"), (figures.moment("2023-11-14T22:13:15.000+00:00"), "2023-11-14 22:13:15 UTC"),
    ],
)  # fmt: skip
def test_figures(made: str, expected: str) -> None:
    assert made == expected
