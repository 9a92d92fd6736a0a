from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.config import units


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("1s", 1.0), ("1.5s", 1.5), ("5m", 300.0), ("1h", 3600.0), ("1d", 86400.0),
     ("250us", 0.00025), (" 2 s ", 2.0), (0, 0.0), ("0s", 0.0)],
)  # fmt: skip
def test_a_duration_is_seconds(text: object, seconds: float) -> None:
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("64MB", 64 * 2**20), ("1GB", 2**30), ("512kB", 512 * 1024), ("512KB", 512 * 1024), ("1TiB", 2**40), ("7", 7),
     (123, 123), ("1.5kB", 1536), ("10 B", 10)],
)  # fmt: skip
def test_a_size_is_bytes_in_powers_of_1024(text: object, size: int) -> None:
    assert units.parse_size(text) == size


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (5, "must be a duration such as 500ms, 1s, 5m, 1h or 1d, not 5: did you mean 5s?"),
        ("5", "must be a duration such as 500ms, 1s, 5m, 1h or 1d, not '5': did you mean 5s?"),
        ("1 fortnight", "must be a duration such as 500ms, 1s, 5m, 1h or 1d, not '1 fortnight'"),
        ("-1s", "must be a duration such as 500ms, 1s, 5m, 1h or 1d, not '-1s'"),
        ("٣s", "must be a duration such as 500ms, 1s, 5m, 1h or 1d, not '٣s'"),
        (None, "must be a duration such as 500ms, 1s, 5m, 1h or 1d, not nothing"),
        (False, "must be a duration such as 500ms, 1s, 5m, 1h or 1d, not False"),
        ("0.1us", "must be whole microseconds, not '0.1us'"),
    ],
)
def test_a_wrong_duration_says_what_is_wanted(value: object, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 -- the whole text is asserted
        units.parse_duration(value)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("1XB", "must be a size such as 512kB, 64MB or 1GB, or a number of bytes, not '1XB'"),
        (-1, "must be a size such as 512kB, 64MB or 1GB, or a number of bytes, not -1"),
        (True, "must be a size such as 512kB, 64MB or 1GB, or a number of bytes, not True"),
        (1.5, "must be a size such as 512kB, 64MB or 1GB, or a number of bytes, not 1.5"),
        ("1.5B", "must be whole bytes, not '1.5B'"),
    ],
)
def test_a_wrong_size_says_what_is_wanted(value: object, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 -- the whole text is asserted
        units.parse_size(value)
    assert str(caught.value) == message


@settings(deadline=None)  # a busy machine is no fault of ours
@given(st.integers(min_value=0, max_value=10**15))
def test_what_a_duration_renders_to_is_read_back(micros: int) -> None:
    assert units.parse_duration(units.render_duration(micros / 1_000_000)) == micros / 1_000_000


@settings(deadline=None)  # a busy machine is no fault of ours
@given(st.integers(min_value=0, max_value=2**60) | st.integers(0, 2**12).map(lambda n: n * 2**30))
def test_what_a_size_renders_to_is_read_back(size: int) -> None:
    assert units.parse_size(units.render_size(size)) == size


@settings(deadline=None)  # a busy machine is no fault of ours
@given(st.text())
def test_any_text_is_a_value_or_a_value_error(text: str) -> None:
    for parse in (units.parse_duration, units.parse_size):
        with contextlib.suppress(ValueError):
            assert parse(text) >= 0
