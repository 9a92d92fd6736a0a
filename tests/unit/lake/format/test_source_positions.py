from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.errors import LakeError
from kuvasz.lake.format import source_positions
from kuvasz.model import SourcePosition

lsns = st.integers(0, 2**64 - 1)
places = st.builds(
    SourcePosition,
    lsn=lsns,
    commit_lsn=lsns,
    rows=st.integers(0, 2**40),
    system_id=st.text("0123456789", max_size=20),
)


@settings(deadline=None)  # a busy machine is no fault of ours
@given(st.dictionaries(st.text(min_size=1), places))
def test_what_is_rendered_is_parsed(found: dict[str, SourcePosition]) -> None:
    properties = {
        source_positions.PREFIX + source: source_positions.render(position) for source, position in found.items()
    }
    assert source_positions.parse(properties | {"other": "x"}, "shop.items") == found


@pytest.mark.parametrize(
    "value",
    ["", "{}", "null", "3", '{"lsn": "0/1", "commit_lsn": "0/1", "rows": 1}', '{"lsn": 1}',
     '{"lsn": "x", "commit_lsn": "0/1", "rows": 1, "system_id": ""}'],
)  # fmt: skip
def test_a_damaged_position_is_named(value: str) -> None:
    with pytest.raises(LakeError, match=r"table shop.items: property kuvasz.position.eu is not a position") as caught:
        source_positions.parse({"kuvasz.position.eu": value}, "shop.items")
    assert caught.value.hint
