from __future__ import annotations

import pytest

from kuvasz.decode import texts
from kuvasz.decode.columns import column
from kuvasz.decode.refusals import ValueRefused
from tests.support import wires
from tests.support.wires import one_column


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"a\x80"])
def test_bytes_that_are_not_utf8_are_refused(bad: bytes) -> None:
    with pytest.raises(ValueRefused, match="is not valid UTF-8") as refused:
        column(one_column([None, "ü".encode(), bad, b"x"]), 0, wires.STRING)
    assert refused.value.row == 2


def test_a_character_split_over_two_values_is_refused() -> None:
    with pytest.raises(ValueRefused) as refused:
        column(one_column([b"\xc3", b"\xbc"]), 0, wires.STRING)
    assert refused.value.row == 0


def test_blanks_and_empty_texts_are_kept() -> None:
    assert column(one_column([b"a  ", b"", None]), 0, wires.STRING).to_pylist() == ["a  ", "", None]


@pytest.mark.parametrize("text", [b"", b"\\", b"\\x0", b"\\xgg", b"\\000", b"x00", b"\\X00"])
def test_what_is_no_bytea_is_refused(text: bytes) -> None:
    with pytest.raises(ValueRefused, match="not the text form"):
        column(one_column([text]), 0, wires.BYTEA)


def test_hex_in_either_case() -> None:
    assert column(one_column([b"\\x0aFF", b"\\x", None]), 0, wires.BYTEA).to_pylist() == [b"\n\xff", b"", None]
    assert column(one_column([b"0101FF", b""]), 0, wires.GEOMETRY).to_pylist() == [b"\x01\x01\xff", b""]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"a0eebc999c0b4ef8bb6d6bb9bd380a11",
        b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1g",
        b"a0eebc99-9c0b-4ef8-bb6d6-bb9bd380a11",
    ],
)
def test_what_is_no_uuid_is_refused(text: bytes) -> None:
    with pytest.raises(ValueRefused, match="not the text form"):
        column(one_column([text]), 0, wires.UUID)


def test_gather_tells_whether_there_is_more_than_ascii() -> None:
    for values, has_high in (([b"abc", None], False), (["ü".encode()], True), ([], False)):
        offsets, text, high = texts.gather(one_column(values).strip(0))
        assert (text.tobytes(), offsets[-1], high) == (b"".join(filter(None, values)), len(text), has_high)
