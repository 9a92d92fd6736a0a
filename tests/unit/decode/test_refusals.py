from __future__ import annotations

import pickle

from kuvasz.decode.refusals import (
    CUT_AWAY,
    MALFORMED,
    NOT_FINITE,
    NOT_UTF8,
    OUT_OF_RANGE,
    SEVERAL_DIMENSIONS,
    ValueRefused,
    refusal,
    way_out,
)
from kuvasz.errors import DecodeError


def test_a_refusal_comes_back_from_an_executor_whole() -> None:
    error = pickle.loads(pickle.dumps(refusal(7, b"abc", MALFORMED)))
    assert isinstance(error, ValueRefused)
    assert isinstance(error, DecodeError)
    assert (error.row, error.text, error.reason) == (7, "abc", "is not the text form of its type")
    assert error.message == "value 'abc' in row 7 is not the text form of its type"
    assert error.hint is not None


def test_a_policy_is_named_where_it_helps() -> None:
    entry = "into the table's entry in the map and start again"
    dates = "put `out_of_range: null | clamp` or `types: {at: string}` " + entry
    assert way_out(OUT_OF_RANGE, "at") == dates
    assert way_out(OUT_OF_RANGE, "at", has_policy=False) == "put `types: {at: string}` " + entry
    assert way_out(NOT_FINITE, "n") == "put `out_of_range: null` or `types: {n: string}` " + entry
    assert way_out(SEVERAL_DIMENSIONS, "v") == "put `types: {v: string}` " + entry
    assert "types" not in way_out(NOT_UTF8, "v"), "its text cannot be taken either"
    assert way_out(CUT_AWAY, "v").startswith("raise `pipeline.max_row_bytes`")


def test_a_long_value_is_cut() -> None:
    error = refusal(0, b"x" * 10_000_000, MALFORMED)
    assert error.text == "x" * 120 + "…"
    assert refusal(0, ("ü" * 120).encode(), MALFORMED).text == "ü" * 120


def test_wrong_bytes_can_be_shown() -> None:
    assert refusal(0, b"a\xff", NOT_UTF8).text == "a\\xff"


def test_a_moved_refusal_keeps_all_but_the_row() -> None:
    error = refusal(0, b"abc", MALFORMED).moved_to(5)
    assert (error.row, error.text) == (5, "abc")
    assert "in row 5" in str(error)
