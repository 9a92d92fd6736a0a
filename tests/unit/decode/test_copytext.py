"""COPY's text format: what COPY TO writes comes back, and every escape of the manual."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kuvasz.decode import copytext
from kuvasz.decode.copytext import split_copy
from kuvasz.errors import DecodeError
from tests.support import wires
from tests.support.examples import examples
from tests.support.wires import copy_line

#: Long enough to be passed in words, with something special anywhere.
long_values = st.tuples(st.integers(0, 90), st.binary(max_size=3), st.integers(0, 30)).map(
    lambda parts: b"x" * parts[0] + parts[1] + b"\x88" * parts[2]
)
values = (
    long_values
    | st.none()
    | st.binary(max_size=12)
    | st.sampled_from([b"", b"\\N", b"N", b"\\", b"\t", b"\n", b"\\.", b"a\\b"])
)


def table(data: bytes, columns: int) -> list[list[bytes | None]]:
    cells = split_copy(data, columns)
    assert not cells.data.flags.writeable
    return [[cells.text(column, row) for column in range(columns)] for row in range(cells.row_count)]


@st.composite
def tables(draw: st.DrawFn) -> list[list[bytes | None]]:
    columns = draw(st.integers(1, 4))
    return draw(st.lists(st.lists(values, min_size=columns, max_size=columns), min_size=1, max_size=8))


@settings(max_examples=examples(120), deadline=None)
@given(rows=tables())
def test_what_was_copied_is_what_is_found(rows) -> None:
    data = b"".join(map(copy_line, rows))
    before = bytes(data)
    assert table(data, len(rows[0])) == rows
    assert data == before


def reference(data: bytes, columns: int) -> list[list[bytes | None]] | None:
    """The format by regular expressions; None if it is broken."""
    if not data:
        return []
    rows: list[list[bytes | None]] = [[]]
    at = 0
    for match in re.finditer(rb"((?:[^\t\n\\]|\\.)*)([\t\n])", data, re.DOTALL):
        if match.start() != at:
            return None
        at = match.end()
        rows[-1].append(None if match[1] == rb"\N" else unescaped(match[1]))
        if match[2] == b"\n":
            rows.append([])
    if at != len(data) or rows.pop() != [] or any(len(row) != columns for row in rows):
        return None
    return rows


def unescaped(field: bytes) -> bytes:
    letters = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}

    def byte(match: re.Match[bytes]) -> bytes:
        if match[1]:
            return bytes([int(match[1], 8) & 255])
        if match[2]:
            return bytes([int(match[2], 16)])
        return letters.get(match[3], match[3])

    return re.sub(rb"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))", byte, field, flags=re.DOTALL)


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@settings(max_examples=examples(120), deadline=None)
@example(data=b"\\", columns=1)
@example(data=b"\\\n", columns=1)
@example(data=b"a\\\nb\n", columns=1)
@example(data=b"\\N", columns=1)
@example(data=b"\\Na\n", columns=1)
@example(data=b"a\\N\n", columns=1)
@given(
    data=st.text("\\\t\nNxbn017aF9", max_size=16).map(str.encode)
    | st.binary(max_size=16)
    | st.lists(long_values, max_size=3).map(b"".join),
    columns=st.integers(1, 3),
)
def test_any_text_is_read_as_the_manual_says_or_refused(data: bytes, columns: int) -> None:
    wanted = reference(data, columns)
    assert outcome(data, columns) == wanted
    with wires.interpreted(copytext):  # where NumPy checks every index
        assert outcome(data, columns) == wanted


def outcome(data: bytes, columns: int) -> list[list[bytes | None]] | None:
    try:
        return table(data, columns)
    except DecodeError:
        return None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (rb"\b\f\n\r\t\v", b"\b\f\n\r\t\v"), (rb"\\", b"\\"), (rb"\N", None), (rb"\\N", rb"\N"), (b"", b""),
        (rb"\101\7\400", b"A\x07\x00"), (rb"\x41\x4\xg\x", b"A\x04xgx"), (rb"\q\.", b"q."), (rb"\8", b"8"),
        (rb"\1012", b"A2"), (rb"\x414", b"A4"),
    ],
)  # fmt: skip
def test_escapes(field: bytes, value: bytes | None) -> None:
    assert table(field + b"\tx\n", 2) == [[value, b"x"]]


@pytest.mark.parametrize(
    ("data", "columns", "said"),
    [
        (b"a\tb\nc\td", 2, "line 1 of a copy of 2 columns has no newline at its end"),
        (b"a\tb\nc\n", 2, "line 1 of a copy of 2 columns has too few fields"),
        (b"a\tb\tc\n", 2, "line 0 of a copy of 2 columns has too many fields"),
        (b"a\\", 1, "line 0 of a copy of 1 columns has no newline at its end"),
        (b"", 0, "a copy without columns has no rows to read"),
        (b"\n" * 100, 1600, "100 bytes of copy are too few for 100 lines of 1600 fields"),
    ],
)
def test_each_defect_is_named(data: bytes, columns: int, said: str) -> None:
    with pytest.raises(DecodeError) as error:
        split_copy(data, columns)
    assert error.value.message == said
    assert error.value.hint


def test_nothing_copied_is_no_rows() -> None:
    assert split_copy(b"", 3).length.shape == (3, 0)
