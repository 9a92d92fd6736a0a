from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuvasz import lsn


@given(st.integers(0, 2**64 - 1))
def test_what_is_rendered_is_parsed(value: int) -> None:
    assert lsn.parse(lsn.render(value)) == value


@pytest.mark.parametrize(
    ("text", "value"), [("0/0", 0), ("16/B374D848", 0x16B374D848), ("16/b374d848", 0x16B374D848), ("1/0", 1 << 32)]
)
def test_parses_what_postgres_prints(text: str, value: int) -> None:
    assert lsn.parse(text) == value
    assert lsn.render(value) == text.upper()


@pytest.mark.parametrize("text", ["", "0", "0/", "/0", "x/0", "0/123456789", " 0/0", "0/0\n", "-1/0", "0x1/0"])
def test_refuses_anything_else(text: str) -> None:
    with pytest.raises(ValueError, match="not an LSN"):
        lsn.parse(text)
