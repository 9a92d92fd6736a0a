from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.errors import InternalError
from kuvasz.fold.fold import duplicates, fold, newest
from kuvasz.fold.keys import Keys
from tests.support.examples import examples


def keys_of(numbers):
    # The same low word under two high ones: both words of a key must be compared.
    numbers = np.array(numbers, np.uint64)
    return Keys(hi=numbers % np.uint64(2) + np.uint64(11), lo=numbers // np.uint64(2))


def folded(operations):
    """Fold (tag, new or None, old or None) and return it with keys as numbers."""
    olds = [old for _, _, old in operations if old is not None]
    old_row, used = [], 0
    for _, _, old in operations:
        old_row.append(-1 if old is None else used)
        used += old is not None
    result = fold(
        np.array([ord(tag) for tag, _, _ in operations], np.uint8),
        keys_of([0 if new is None else new for _, new, _ in operations]),
        keys_of(olds),
        np.array(old_row, np.int32),
    )
    numbers = (result.keys.lo * np.uint64(2) + result.keys.hi - np.uint64(11)).tolist()
    return result, numbers


def replay(operations):
    """The same, by a dict of key -> (row, key in the lake of its chain's start)."""
    held: dict[int, int | None] = {}  # None: deleted
    touched, previous, root = [], [], []
    gone: dict[int, tuple[int, int]] = {}  # key -> (row that gave it up, row that had it)

    def touch(key):
        if key not in touched:
            touched.append(key)

    for at, (tag, new, old) in enumerate(operations):
        previous.append(-1)
        root.append(-1)
        source = new if old is None else old
        if tag == "D" or (tag == "U" and source != new):
            touch(source)
        if tag != "D":
            touch(new)
        if tag == "U":
            if held.get(source) is not None:
                previous[at], root[at] = held[source], root[held[source]]
            elif source not in held:
                root[at] = touched.index(source)
        if tag == "D" or (tag == "U" and source != new):
            if held.get(source, -1) is not None:
                gone[source] = (at, held.get(source, -1))
            held[source] = None
        if tag != "D":
            held[new] = at
    keep = sorted(row for row in held.values() if row is not None)
    written = [-1 if held[key] is None else keep.index(held[key]) for key in touched]
    gone_by, gone_from = ([gone[key][part] if held[key] is None else -1 for key in touched] for part in (0, 1))
    return keep, touched, written, previous, root, gone_by, gone_from


key = st.integers(0, 7)
operation = st.one_of(
    st.tuples(st.just("I"), key, st.none()),
    st.tuples(st.just("U"), key, st.none() | key),
    st.tuples(st.just("D"), st.none(), key),
)


@settings(max_examples=examples(150), deadline=None)  # the first example compiles
@given(st.lists(operation, max_size=30))
def test_fold_agrees_with_a_dict(operations):
    result, numbers = folded(operations)
    keep, touched, written, previous, root, gone_by, gone_from = replay(operations)
    assert numbers == touched
    assert result.keep.tolist() == keep
    assert result.written.tolist() == written
    assert result.previous.tolist() == previous
    assert result.root.tolist() == root
    assert result.gone_by.tolist() == gone_by
    assert result.gone_from.tolist() == gone_from


def test_insert_and_delete_cancel():
    result, numbers = folded([("I", 5, None), ("D", None, 5)])
    assert (numbers, result.keep.tolist(), result.written.tolist()) == ([5], [], [-1])


def test_a_moved_row_finds_its_earlier_version_under_the_old_key():
    result, numbers = folded([("U", 2, 1), ("U", 3, 2), ("U", 3, None)])
    assert numbers == [1, 2, 3]
    assert result.keep.tolist() == [2]
    assert result.written.tolist() == [-1, -1, 0]
    assert result.previous.tolist() == [-1, 0, 1]
    assert result.root.tolist() == [0, 0, 0]  # the lake holds it under key 1


def test_a_row_born_in_the_chunk_has_no_root():
    result, _ = folded([("D", None, 1), ("I", 1, None), ("U", 1, None)])
    assert result.previous.tolist() == [-1, -1, 1]
    assert result.root.tolist() == [-1, -1, -1]


def test_many_random_operations_agree_with_a_dict():
    rng = np.random.default_rng(3)
    operations = []
    for tag, new, old in zip(rng.integers(0, 4, 20_000), *rng.integers(0, 3_000, (2, 20_000)), strict=True):
        operations.append(
            [("I", int(new), None), ("U", int(new), None), ("U", int(new), int(old)), ("D", None, int(old))][tag]
        )
    result, numbers = folded(operations)
    final: dict[int, int | None] = {}
    for at, (tag, new, old) in enumerate(operations):
        if old is not None and old != new:
            final[old] = None
        if tag != "D":
            final[new] = at
    assert {
        number: None if place < 0 else int(result.keep[place])
        for number, place in zip(numbers, result.written.tolist(), strict=True)
    } == final


@settings(deadline=None)
@given(st.lists(st.integers(0, 20), max_size=40))
def test_duplicates_are_the_rows_whose_key_occurred_before_and_the_newest_those_that_occur_last(numbers):
    expected = [at for at, number in enumerate(numbers) if number in numbers[:at]]
    assert duplicates(keys_of(numbers)).tolist() == expected
    last = {number: row for row, number in enumerate(numbers)}
    assert np.flatnonzero(newest(keys_of(numbers))).tolist() == sorted(last.values())


def test_broken_input_is_refused():
    one, no = keys_of([1]), Keys.empty()
    with pytest.raises(InternalError, match=r"^row 0 of the chunk cannot be folded: tag 84\n"):
        fold(np.array([ord("T")], np.uint8), one, no, np.array([-1], np.int32))
    with pytest.raises(InternalError, match=r"^row 0 of the chunk cannot be folded: old tuple -1 of 0\n"):
        fold(np.array([ord("D")], np.uint8), one, no, np.array([-1], np.int32))
    with pytest.raises(InternalError, match=r"^row 0 of the chunk cannot be folded: old tuple 3 of 1\n"):
        fold(np.array([ord("U")], np.uint8), one, one, np.array([3], np.int32))
    with pytest.raises(InternalError, match=r"^a chunk of 1 tags with 0 keys and 1 old rows cannot be folded\n"):
        fold(np.array([ord("I")], np.uint8), no, no, np.array([-1], np.int32))
