from __future__ import annotations

from kuvasz.source.reading.options import ReaderOptions


def test_a_gulp_gathers_ten_times_as_long_as_the_last_one_took() -> None:
    options = ReaderOptions(gulp_s=0.02, longest_gulp_s=0.2)
    assert [options.gather_s(seconds) for seconds in (0.0, 0.01, 5.0)] == [0.02, 0.1, 0.2]
