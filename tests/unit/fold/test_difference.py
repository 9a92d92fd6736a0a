"""Listings of two sides: every kind of difference, and corrections by what the stream says."""

from __future__ import annotations

import collections

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kuvasz.fold.difference import Difference, DifferenceKind, Listing, difference, distinct, find
from kuvasz.fold.keys import Keys

#: Few keys and contents, so that they meet; large ones, so that words are not taken for signed.
KEYS = st.sampled_from([(0, 1), (0, 2), (0, 2**64 - 1), (2**63, 1), (2**64 - 1, 0)])
ROWS = st.lists(st.tuples(KEYS, st.integers(1, 3)), max_size=12)


def listing(rows: list[tuple[tuple[int, int], int]]) -> Listing:
    words = np.array([key for key, _ in rows], np.uint64).reshape(-1, 2)
    prints = np.array([content for _, content in rows], np.uint64)
    return Listing(
        keys=Keys(hi=words[:, 0].copy(), lo=words[:, 1].copy()), prints=Keys(hi=prints, lo=prints * np.uint64(7)),
        files=np.arange(len(rows), dtype=np.uint32), places=np.arange(len(rows), dtype=np.uint32) + 100,
    )  # fmt: skip


def kinds(found: Difference) -> dict[tuple[int, int], DifferenceKind]:
    pairs = zip(found.keys.hi.tolist(), found.keys.lo.tolist(), strict=True)
    return dict(zip(pairs, [DifferenceKind(kind) for kind in found.kinds.tolist()], strict=True))


def expected(source: list, lake: list) -> dict[tuple[int, int], DifferenceKind]:
    """Row by row."""
    sides = [collections.defaultdict(list), collections.defaultdict(list)]
    for side, rows in zip(sides, (source, lake), strict=True):
        for key, content in rows:
            side[key].append(content)
    found = {}
    for key in sorted({*sides[0], *sides[1]}):
        here, there = sides[0][key], sides[1][key]
        if len(here) == len(there) and sum(here) == sum(there):
            continue
        if not here:
            found[key] = DifferenceKind.EXTRA
        elif len(there) < len(here):
            found[key] = DifferenceKind.MISSING
        else:
            found[key] = DifferenceKind.DOUBLED if len(there) > len(here) else DifferenceKind.CHANGED
    return found


@given(ROWS, ROWS)
def test_differences_are_those_found_row_by_row(source: list, lake: list) -> None:
    found = difference(listing(source), listing(lake))
    assert kinds(found) == expected(source, lake)
    places = sorted((found.files[row], found.places[row]) for row in range(len(found.files)))
    wrong = expected(source, lake)
    assert places == [(number, number + 100) for number, (key, _) in enumerate(lake) if key in wrong]
    assert found.lake_rows.tolist() == np.bincount(found.owner, minlength=len(found)).tolist()


@given(ROWS, ROWS)
def test_joined_groups_are_as_one(source: list, lake: list) -> None:
    whole = difference(listing(source), listing(lake))
    parts = []
    for of in (0, 1):
        some = [[row for row in rows if row[0][1] % 2 == of] for rows in (source, lake)]
        parts.append(difference(listing(some[0]), listing(some[1])))
    joined = Difference.concat([part for part in parts if len(part)])
    assert kinds(joined) == kinds(whole)
    assert list(kinds(joined)) == list(kinds(whole)), "in the same order"
    assert joined.lake_rows.tolist() == np.bincount(joined.owner, minlength=len(joined)).tolist()


@given(st.dictionaries(KEYS, st.integers(1, 3)), ROWS, st.dictionaries(KEYS, st.none() | st.integers(1, 3)))
def test_what_the_stream_says_counts_for_what_was_read(source: dict, lake: list, changes: dict) -> None:
    """Correcting is as if the source had been read after the changes, for the keys that differed before."""
    before = difference(listing(list(source.items())), listing(lake))
    known = [(number, key) for number, key in enumerate(kinds(before)) if key in changes]
    contents = np.array([changes[key] or 0 for _, key in known], np.uint64)
    corrected = before.corrected(
        np.array([number for number, _ in known], np.int64),
        np.array([changes[key] is not None for _, key in known], np.int64),
        Keys(hi=contents, lo=contents * np.uint64(7)),
    )
    after = {key: content for key, content in (source | changes).items() if content is not None}
    meant = {key: kind for key, kind in expected(list(after.items()), lake).items() if key in kinds(before)}
    assert kinds(corrected) == meant


@given(st.sets(KEYS), st.lists(KEYS, max_size=8))
def test_find_is_a_look_up(wanted: set[tuple[int, int]], keys: list[tuple[int, int]]) -> None:
    ascending = sorted(wanted)
    found = find(listing([(key, 1) for key in ascending]).keys, listing([(key, 1) for key in keys]).keys)
    assert found.tolist() == [ascending.index(key) if key in wanted else -1 for key in keys]


def test_find_among_integers_of_many_sources() -> None:
    """Each source's keys share a word: of a hundred sources they are neither few runs nor hashes, each alone."""
    hi = np.repeat(np.arange(100, dtype=np.uint64) * np.uint64(7919), 5)
    lo = np.tile(np.arange(0, 10, 2, dtype=np.uint64), 100)
    wanted = Keys(hi=hi, lo=lo)
    some = np.random.default_rng(1).permutation(500)
    assert find(wanted, wanted.take(some)).tolist() == some.tolist()
    between = Keys(hi=hi, lo=lo + np.uint64(1))
    assert find(wanted, between).tolist() == [-1] * 500


def test_find_among_many_hashes_and_many_integers() -> None:
    random = np.random.default_rng(1)
    hashes = Keys(
        hi=np.sort(random.integers(0, 2**64, 10_000, np.uint64)), lo=random.integers(0, 2**64, 10_000, np.uint64)
    )
    some = random.permutation(10_000)[:500]
    assert find(hashes, hashes.take(some)).tolist() == some.tolist()
    integers = Keys(hi=np.full(10_000, 5, np.uint64), lo=np.arange(0, 20_000, 2, dtype=np.uint64))
    asked = Keys(hi=np.full(4, 5, np.uint64), lo=np.array([0, 3, 19_998, 20_000], np.uint64))
    assert find(integers, asked).tolist() == [0, -1, 9_999, -1]


def test_distinct_keys_ascend() -> None:
    keys = Keys(hi=np.array([2, 1, 2, 1], np.uint64), lo=np.array([1, 9, 1, 3], np.uint64))
    found = keys.take(distinct(keys))
    assert list(zip(found.hi.tolist(), found.lo.tolist(), strict=True)) == [(1, 3), (1, 9), (2, 1)]
