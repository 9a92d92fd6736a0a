"""Rows that do not fit are counted and handed on in bounded portions."""

from __future__ import annotations

import collections

import pyarrow as pa
import pytest

from kuvasz.errors import DecodeError
from kuvasz.lake.executors import refused_rows
from kuvasz.lake.executors.refused_rows import RefusedPart, RefusedRows, by_source, packed, portions, unpacked
from kuvasz.modes.rejects import RECORD


def rows(*sources: str) -> pa.Table:
    notes = [{"source": source, "reason": "is no number", "raw_row": "x" * 1000} for source in sources]
    return pa.Table.from_pylist(notes, schema=RECORD)


def test_what_is_packed_is_small_and_comes_back() -> None:
    found = rows(*1000 * ["eu"])
    assert unpacked(packed(found)) == found
    assert len(packed(found)) < found.nbytes / 50


def test_they_are_counted_by_source() -> None:
    assert by_source(rows("eu", "us", "eu")) == {"eu": 2, "us": 1}
    assert by_source(rows()) == {}


def test_a_part_of_which_too_much_does_not_fit_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_rows, "PART_BYTES", 10_000)
    part = RefusedPart("db: public.t", "copy")
    part.add(None)
    part.add(rows())
    assert part.packed() is None
    part.add(rows(*5 * ["eu"]))
    whole = part.packed()
    assert whole is not None
    assert by_source(unpacked(whole)) == {"eu": 5}
    with pytest.raises(DecodeError, match=r"db: public\.t: 15 rows and more of one part of its copy do not fit"):
        part.add(rows(*10 * ["eu"]))


def test_no_more_than_a_portion_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_rows, "PORTION_BYTES", 3000)
    kept: list[int] = []
    found = RefusedRows(lambda some: kept.append(some.num_rows))
    for _ in range(10):
        found.add(rows("eu"))
    found.flush()
    found.flush()
    assert (kept, found.rows) == ([3, 3, 3, 1], {"eu": 10})
    count = collections.Counter[str]()
    assert [len(some) for some in portions((packed(rows("eu")) for _ in range(7)), count)] == [3, 3, 1]
    assert count == {"eu": 7}
