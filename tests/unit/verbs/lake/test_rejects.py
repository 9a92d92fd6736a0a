"""Another try at rejected rows says by its exit code whether all of them are in the lake."""

from __future__ import annotations

import dataclasses
import datetime

import pyarrow as pa
import pytest

from kuvasz.config.model import Config, LakeConfig
from kuvasz.verbs.lake import rejects
from kuvasz.verify.report import Report

EQUAL = Report(source="shop_eu", table="public.items", target="shop.items", source_rows=3, lake_rows=3)
FAILED = dataclasses.replace(EQUAL, error="it is down", error_code=3)
UNFIT = dataclasses.replace(EQUAL, rejected=1)


@pytest.mark.parametrize(
    ("tried", "code"),
    [
        ([], 0),
        ([EQUAL, dataclasses.replace(EQUAL, missing=2, mended=2)], 0),
        ([EQUAL, UNFIT], 4),
        ([FAILED, UNFIT], 4),
        ([FAILED, dataclasses.replace(EQUAL, missing=2, left=2)], 4),
        ([EQUAL, FAILED], 3),
        ([dataclasses.replace(EQUAL, skipped="it was not copied yet", error_code=1)], 1),
        ([dataclasses.replace(EQUAL, skipped="it lacks what its source had")], 4),
    ],
)
def test_what_does_not_fit_still_is_no_success(tried: list[Report], code: int) -> None:
    assert rejects.exit_code(tried) == code


def test_rows_that_were_rejected_long_ago_are_not_said_to_be_none() -> None:
    config = Config(lake=LakeConfig(about="_kuvasz", about_keep="7d"), databases=())
    told = "no row was rejected in the last 7d (lake.about_keep); `kuvasz verify` counts all that do not fit"
    assert rejects.render([], config) == told


def test_a_row_is_told_of_once_however_often_it_was_written_down() -> None:
    """A copy that begins again reads a row at another snapshot: by its LSN alone it would be another one."""
    place = {"target": "shop.items", "source": "shop_eu"}
    written = [
        {
            **place,
            "lsn": lsn,
            "ordinal": ordinal,
            "rejected_at": datetime.datetime(2026, 11, day, tzinfo=datetime.UTC),
        }
        for lsn, ordinal, day in ((7, -9, 1), (8, -9, 2), (7, 1, 3), (8, 1, 4), (8, 1, 5), (8, -5, 6))
    ]
    found = rejects._newest(pa.Table.from_pylist(written), {("shop.items", "shop_eu")}, 100)
    assert [at.day for at in found.values()] == [6, 5, 3, 2]
