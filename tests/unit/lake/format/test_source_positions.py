from __future__ import annotations

import base64
import dataclasses
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.errors import LakeError
from kuvasz.lake.format import source_positions
from kuvasz.model import SourcePosition
from tests.support import earlier_notes

lsns = st.integers(0, 2**64 - 1)
places = st.builds(
    SourcePosition,
    lsn=lsns,
    commit_lsn=lsns,
    rows=st.integers(0, 2**40),
    system_id=st.text("0123456789", max_size=20) | st.text(max_size=5) | st.just("7361234567890123456"),
    history=st.integers(0, 99),
    xid=st.integers(0, 2**32 - 1),
    commit_us=st.integers(-(2**62), 2**62),
    started_us=st.integers(0, 2**62),
)

#: As one is after years at work.
OLD = SourcePosition(
    lsn=0x3F_FFFF_FFFF, commit_lsn=0x3F_FFFF_F000, rows=9999, system_id="9223372036854775807", history=35,
    xid=2**32 - 1, commit_us=1_600_000_000_000_000,
)  # fmt: skip


@settings(deadline=None)  # a busy machine is no fault of ours
@given(st.dictionaries(st.text(min_size=1), places))
def test_what_is_rendered_is_parsed(found: dict[str, SourcePosition]) -> None:
    properties = {
        source_positions.PREFIX + source: source_positions.render(position) for source, position in found.items()
    }
    assert source_positions.parse(properties | {"other": "x"}, "shop.items") == found


@settings(deadline=None)
@given(st.dictionaries(st.text(min_size=1), places, max_size=40))
def test_what_a_summary_repeats_is_parsed(found: dict[str, SourcePosition]) -> None:
    properties = {
        source_positions.PREFIX + source: source_positions.render(position) for source, position in found.items()
    }
    told = source_positions.packed(properties | {"other": "x"})
    assert source_positions.parse(told, "shop.items") == found
    assert told["other"] == "x"
    for source, position in found.items():
        text = source_positions.text_in(told.get, source)
        assert text is not None
        assert source_positions.lsn_of(text) == position.lsn
    assert source_positions.text_in(told.get, "") is None


def test_positions_of_many_sources_take_few_bytes_of_a_summary() -> None:
    positions = [
        dataclasses.replace(OLD, lsn=OLD.lsn + step * 7919, xid=step * 31, commit_us=OLD.commit_us + step * 65537)
        for step in range(500)
    ]
    many = {f"kuvasz.position.shop_s{at}": source_positions.render(one) for at, one in enumerate(positions)}
    told = source_positions.packed(many)
    assert [*told] == [source_positions.PACKED]
    assert len(told[source_positions.PACKED]) <= 30 * len(many)
    assert sum(map(len, [*many, *many.values()])) > 70 * len(many)
    few = dict(list(many.items())[:5])
    assert source_positions.packed(few) == few


@pytest.mark.parametrize("text", ["?", "AAAA", base64.b64encode(zlib.compress(b"[]")).decode(),
                                  base64.b64encode(zlib.compress(b'{"eu": 1}')).decode(),
                                  base64.b64encode(zlib.compress(b" " * (17 << 20) + b"{}")).decode()])  # fmt: skip
def test_damaged_positions_of_many_sources_are_named(text: str) -> None:
    with pytest.raises(LakeError, match=r"table shop.items: kuvasz.positions in the summary") as caught:
        source_positions.parse({"kuvasz.positions": text}, "shop.items")
    assert caught.value.hint
    assert source_positions.text_in({"kuvasz.positions": text}.get, "eu") is None


@given(places)
def test_what_earlier_versions_rendered_is_parsed(position: SourcePosition) -> None:
    properties = {source_positions.PREFIX + "eu": earlier_notes.position(position)}
    assert source_positions.parse(properties, "shop.items") == {"eu": position}
    for text in (*properties.values(), source_positions.render(position)):
        assert source_positions.lsn_of(text) == position.lsn


def test_a_position_takes_few_bytes() -> None:
    assert len(source_positions.render(OLD)) <= 60
    young = dataclasses.replace(OLD, lsn=0x1_2DFB_96A1, commit_lsn=0x1_2DFB_9500, rows=3, history=1, xid=742_817)
    assert len(source_positions.render(young)) <= 48


@pytest.mark.parametrize(
    "value",
    ["", "{}", "null", "0/1", "0/1;;;;;;", "1;;;;;;;", "0/1;?;;;;;;", "3",
     '{"lsn": "0/1", "commit_lsn": "0/1", "rows": 1}', '{"lsn": 1}',
     '{"lsn": "x", "commit_lsn": "0/1", "rows": 1, "system_id": ""}'],
)  # fmt: skip
def test_a_damaged_position_is_named(value: str) -> None:
    with pytest.raises(LakeError, match=r"table shop.items: property kuvasz.position.eu is not a position") as caught:
        source_positions.parse({"kuvasz.position.eu": value}, "shop.items")
    assert caught.value.hint


def test_the_newest_commit_time_is_noted_where_it_is_not_the_positions() -> None:
    position = dataclasses.replace(OLD, commit_us=70)
    told = source_positions.newest({"eu": position, "us": position, "ap": position}, {"eu": 71, "us": 70})
    assert told == {"kuvasz.newest.eu": "1z"}
    assert source_positions.parse_newest(told | {"kuvasz.newest.us": "?", "other": "1"}) == {"eu": 71}
