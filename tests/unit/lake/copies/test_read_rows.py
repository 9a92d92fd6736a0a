"""Small ranges are read by who copies them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kuvasz.errors import SourceError
from kuvasz.lake.copies import read_rows
from kuvasz.lake.copies.read_rows import read_small
from kuvasz.ports import SMALL_COPY_BYTES, CopyTooLarge
from tests.support.changes import Lines

ROWS = ((1, 1, "a"), (2, 2, "b"))


def text(request: Any) -> bytes:
    return b"".join(bytes(piece) for piece in request.read(100))


def test_a_small_range_is_read_here() -> None:
    found = read_small(Lines(ROWS), 100)
    assert found is not None
    assert (text(found), found.size, found.server) == (text(Lines(ROWS)), len(text(Lines(ROWS))), "localhost:5432")
    assert found.at_pace(5.0) is found
    assert list(dataclasses.replace(found, data=bytearray()).read(100)) == []


def test_a_large_one_is_not() -> None:
    class Large(Lines):
        size = SMALL_COPY_BYTES + 1

        def read(self, chunk_bytes: int) -> Any:
            raise AssertionError

    assert read_small(Large(ROWS), 100) is None


def test_one_that_has_grown_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_rows, "SMALL_COPY_BYTES", 300)
    monkeypatch.setattr(read_rows, "_MOST_BYTES", 600)
    assert read_small(Lines(ROWS), 100) is not None
    many = Lines(tuple((number, number, "x" * 50) for number in range(3)) * 9)

    class Grown(Lines):
        size = 200

    assert read_small(Grown(many.rows), 100) is None


def test_a_row_that_is_large_by_itself_is_given_up_before_it_is_there() -> None:
    """A text that compresses well takes a megabyte at the source, and a hundred of them here, many at a time."""

    class OneRow(Lines):
        most = 0

        def bounded(self, most_bytes: int) -> OneRow:
            self.most = most_bytes
            return self

        def read(self, chunk_bytes: int) -> Any:
            assert self.most == 2 * SMALL_COPY_BYTES
            yield b"1\n"
            raise CopyTooLarge

    assert read_small(OneRow(ROWS), 100) is None


def test_what_fails_fails_for_that_source_alone() -> None:
    with pytest.raises(SourceError):
        read_small(Lines(ROWS, fails=True), 100)
