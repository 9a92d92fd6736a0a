"""Codes stand for the rows of extents, whatever was joined, put behind or cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.fold.keys import frozen
from kuvasz.index import extents
from kuvasz.index.extents import Extents
from kuvasz.index.records import ABSENT, NOWHERE
from kuvasz.model import UInt64s

FAR = ABSENT - 1
PLACES = st.lists(st.tuples(st.integers(0, 3) | st.just(FAR), st.integers(0, 9) | st.just(FAR)), min_size=1)


def places(found: list[tuple[int, int]]) -> UInt64s:
    return np.array([file << 32 | position for file, position in found], np.uint64)


def decoded(found: Extents, codes: list[int]) -> list[int]:
    """Return the places that codes stand for."""
    records = np.zeros((len(codes), 2), np.uint64)
    records[:, 1] = codes
    answer: list[int] = found.places(frozen(records)).tolist()
    return answer


@settings(deadline=None)  # the first example compiles
@given(rows=PLACES)
def test_every_place_has_a_code_that_stands_for_it(rows: list[tuple[int, int]]) -> None:
    wanted = places(rows)
    whole = Extents.of_places(wanted)
    assert whole.files == {file for file, _ in rows}
    assert len(whole) == len(whole.files)
    found: list[int] = []
    for part in map(whole.part, whole.parts()):
        assert part.fits
        codes = part.codes(wanted)
        mine = codes != ABSENT
        assert decoded(part, codes[mine].tolist()) == wanted[mine].tolist()
        found += wanted[mine].tolist()
    assert sorted(found) == sorted(wanted.tolist()), "each is in one part"


@settings(deadline=None)
@given(one=PLACES, other=PLACES)
def test_behind_others_codes_are_as_many_more(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    older, newer = Extents.of_places(places(one)), Extents.of_places(places(other))
    both = newer.behind(older)
    assert both.rows == older.rows + newer.rows
    if both.fits:
        codes = older.codes(places(one)).tolist()
        assert decoded(both, codes) == places(one).tolist()
        codes = [older.rows + code for code in newer.codes(places(other)).tolist()]
        assert decoded(both, codes) == places(other).tolist()
    joined = older.joined(newer)
    assert joined.bounds.tolist() == Extents.of_places(places(one + other)).bounds.tolist()


def test_what_is_nowhere_or_elsewhere_has_no_code() -> None:
    found = Extents.of_places(places([(1, 2), (1, 4), (3, 0)]))
    asked = np.array([1 << 32 | 1, 1 << 32 | 2, 1 << 32 | 5, 2 << 32, 3 << 32, 3 << 32 | 1, 0, NOWHERE], np.uint64)
    assert found.codes(asked).tolist() == [ABSENT, 0, ABSENT, ABSENT, 3, ABSENT, ABSENT, ABSENT]
    assert decoded(found, [ABSENT, 3, 1]) == [NOWHERE, 3 << 32, 1 << 32 | 3]
    assert Extents.none().codes(asked).tolist() == [ABSENT] * len(asked)
    assert decoded(Extents.none(), [ABSENT]) == [NOWHERE]
    assert list(Extents.none().parts()) == [slice(0, 0)]


def test_parts_have_as_many_as_there_are_codes_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Extents(places([(file, 0) for file in range(5)]), np.array([4, 3, 2, 9, 1], np.int64))
    assert list(found.parts()) == [slice(0, 5)]
    monkeypatch.setattr(extents, "CAPACITY", 7)
    assert list(found.parts()) == [slice(0, 2), slice(2, 3), slice(3, 4), slice(4, 5)]
    assert [found.part(which).rows for which in found.parts()] == [7, 2, 9, 1]


def test_they_are_read_as_they_were_written() -> None:
    found = Extents(places([(7, 1), (2, 5), (7, 3)]), np.array([4, 3, 2], np.int64))
    assert found.rendered().tolist() == [[7 << 32 | 1, 4], [2 << 32 | 5, 3], [7 << 32 | 3, 2]]
    assert Extents.parsed(found.rendered()).bounds.tolist() == found.bounds.tolist()
