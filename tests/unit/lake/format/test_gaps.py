"""Gaps as table properties."""

from __future__ import annotations

import pytest

from kuvasz.errors import LakeError
from kuvasz.lake.format import gaps
from kuvasz.ports import Gap

CLOSED = Gap(from_lsn=0x1A2B, noticed_us=1_763_700_000_000_001, to_lsn=0x2_0000_0000, until_us=1_763_700_000_000_002)
OPEN = Gap(from_lsn=0x3_0000_0000, noticed_us=1_763_700_000_000_003)


def test_there_and_back() -> None:
    text = gaps.render((CLOSED, OPEN))
    assert '"from": "0/1A2B"' in text
    assert '"noticed": "2025-11-21T04:40:00.000001+00:00"' in text
    assert gaps.parse({"kuvasz.gap.eu": text}, "eu", "t") == (CLOSED, OPEN)
    assert gaps.parse({"kuvasz.gap.eu": text}, "us", "t") == ()


def test_one_begins_where_anything_may_be_missing() -> None:
    assert gaps.begin(1000, None) == gaps.begin(1000, 1200) == 1000
    assert gaps.begin(1000, 800) == 800


def test_only_the_last_may_be_open() -> None:
    assert gaps.open_one((CLOSED, OPEN)) == OPEN
    assert gaps.open_one((CLOSED,)) is None
    assert gaps.open_one(()) is None


def test_the_oldest_are_forgotten() -> None:
    assert len(gaps.parse({"kuvasz.gap.eu": gaps.render([CLOSED] * 60)}, "eu", "t")) == 50


@pytest.mark.parametrize("text", ["nonsense", "{}x", '[{"from": "0/1"}]', '[{"from": 1, "noticed": 2}]'])
def test_damage_is_told(text: str) -> None:
    with pytest.raises(LakeError, match=r"table t: property kuvasz.gap.eu is not a list of gaps"):
        gaps.parse({"kuvasz.gap.eu": text}, "eu", "t")
