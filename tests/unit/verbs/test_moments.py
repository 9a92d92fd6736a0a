"""Moments as people give them."""

from __future__ import annotations

from typing import Any

import pytest

from kuvasz.config.sources import Source
from kuvasz.errors import ConfigError
from kuvasz.verbs import moments
from kuvasz.verbs.moments import Moment


def source(sid: str | None) -> Source:
    url: Any = None
    name = f"shop_{sid}" if sid else "shop"
    return Source(name=name, database="shop", sid=sid, url=url, tables=(), on_slot_lost="fail")  # type: ignore[arg-type]


EU, US, ONLY = source("eu"), source("us"), source(None)


@pytest.mark.parametrize(
    ("time", "unix_s"),
    [("1970-01-02", 86_400.0), ("1970-01-01 00:00:01.5", 1.5), ("1970-01-01T01:00:00+01:00", 0.0),
     ("1970-01-01T00:00:02Z", 2.0)],
)  # fmt: skip
def test_a_time_is_in_utc_unless_it_says_otherwise(time: str, unix_s: float) -> None:
    assert moments.given([EU, US], time, [], "--time") == Moment(through=unix_s)


@pytest.mark.parametrize(
    ("sources", "lsns", "found"),
    [
        ([EU, US], ["eu:0/10", "shop_us:1/0"], {"shop_eu": 0x10, "shop_us": 1 << 32}),
        ([EU], ["0/10"], {"shop_eu": 0x10}),
        ([ONLY], ["0/10"], {"shop": 0x10}),
        ([ONLY], ["shop:0/10"], {"shop": 0x10}),
    ],
)
def test_an_lsn_is_one_of_a_source(sources: list[Source], lsns: list[str], found: dict[str, int]) -> None:
    assert moments.given(sources, None, lsns, "--time") == Moment(lsns=found)


@pytest.mark.parametrize(
    ("time", "lsns", "message", "hint"),
    [
        ("at ten", [], "--time at ten: not a time",
         "write --time '2026-11-22 10:00' for UTC, or with an offset: '2026-11-22 10:00+01:00'"),
        (None, ["eu:10"], "--lsn eu:10: not an LSN", "write --lsn eu:0/16B3748"),
        (None, ["0/10"], "--lsn 0/10: of which source?", "write it before a colon; there are eu, us"),
        (None, ["ap:0/10"], "--lsn ap:0/10: of which source?", "write it before a colon; there are eu, us"),
        ("1970-01-01", ["eu:0/10"], "--time and --lsn: which of the two?",
         "a time is of all sources, an LSN of one"),
        (None, [], "--time and --lsn: which of the two?", "a time is of all sources, an LSN of one"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_told(time: str | None, lsns: list[str], message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as told:
        moments.given([EU, US], time, lsns, "--time")
    assert (told.value.message, told.value.hint) == (message, hint)


def test_a_moment_is_of_the_sources_that_it_names() -> None:
    assert Moment(through=1.0).concerns("shop_eu")
    assert Moment(lsns={"shop_eu": 1}).concerns("shop_eu")
    assert not Moment(lsns={"shop_eu": 1}).concerns("shop_us")


def test_a_moment_in_words() -> None:
    assert Moment(through=1.5).describe() == "everything through 1970-01-01 00:00:01.500+00:00"
    assert Moment(lsns={"shop_eu": 16}).describe() == "everything before shop_eu:0/10"
    many = Moment(lsns=dict.fromkeys("abcde", 1))
    assert many.describe() == "everything before an LSN of each of 5 sources"
