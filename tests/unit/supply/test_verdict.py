from __future__ import annotations

import datetime
from dataclasses import replace

from supply.accepted import Accepted
from supply.hole import Hole
from supply.verdict import judge

TODAY = datetime.date(2026, 1, 31)
HOLE = Hole(
    package="g:a", version="1", names=("CVE-1", "GHSA-1"), summary="it leaks", fixed=("2", "1.1"), places=("pyspark",)
)
ENTRY = Accepted(hole="GHSA-1", package="g:a", reason="why", expires=TODAY)


def test_a_hole_that_nobody_accepted_is_open() -> None:
    verdict = judge([HOLE], [], TODAY)
    assert (verdict.open, verdict.is_good) == ((HOLE,), False)
    assert verdict.report.splitlines() == [
        "hole: g:a 1 (pyspark): CVE-1, GHSA-1: it leaks; mended in 2, 1.1",
        "1 open, 0 expired, 0 accepted",
    ]


def test_nothing_found_is_good() -> None:
    verdict = judge([], [], TODAY)
    assert verdict.is_good
    assert verdict.report == "0 open, 0 expired, 0 accepted"


def test_an_entry_holds_for_any_name_of_a_hole_up_to_its_last_day() -> None:
    for name in HOLE.names:
        verdict = judge([HOLE], [replace(ENTRY, hole=name)], TODAY)
        assert (verdict.accepted, verdict.open, verdict.expired, verdict.is_good) == ((HOLE,), (), (), True)


def test_an_entry_is_for_its_hole_and_its_package_alone() -> None:
    for other in (replace(ENTRY, hole="CVE-2"), replace(ENTRY, package="g:b")):
        verdict = judge([HOLE], [other], TODAY)
        assert (verdict.open, verdict.unused, verdict.is_good) == ((HOLE,), (other,), False)


def test_an_entry_whose_day_is_over_is_expired_and_its_hole_open_again() -> None:
    verdict = judge([HOLE], [ENTRY], TODAY + datetime.timedelta(days=1))
    assert (verdict.open, verdict.expired, verdict.accepted, verdict.is_good) == ((HOLE,), (ENTRY,), (), False)


def test_an_expired_entry_fails_even_where_its_hole_is_gone() -> None:
    verdict = judge([], [ENTRY], TODAY + datetime.timedelta(days=1))
    assert not verdict.is_good
    assert verdict.report.splitlines()[0] == "expired: g:a: GHSA-1, until 2026-01-31: why"


def test_an_entry_that_is_not_needed_any_more_is_told_and_does_no_harm() -> None:
    verdict = judge([], [ENTRY], TODAY)
    assert verdict.is_good
    assert verdict.report.splitlines()[0] == "no longer found, remove it: g:a: GHSA-1, until 2026-01-31: why"
