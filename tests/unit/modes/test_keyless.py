from __future__ import annotations

import collections
import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.errors import DecodeError
from kuvasz.fold.keys import Keys
from kuvasz.model import TableType
from kuvasz.modes import clone, dispatch, keyless
from kuvasz.modes.row_rules import Evaluated, Transform
from tests.support.changes import SAME
from tests.support.shapes import KEYLESS, pairs, shape
from tests.support.wires import copy_line, joined, message

ITEMS = shape(KEYLESS, TableType.CLONE)


def cells(n: int, body: str = "b") -> list:
    return [b"1", str(n).encode(), body.encode()]


def insert(n: int) -> bytes:
    return message("I", cells(n))


def update(old: int, new: int, *, is_same: bool = False) -> bytes:
    return message("U", [*cells(new)[:2], SAME] if is_same else cells(new), cells(old), "O")


def delete(n: int) -> bytes:
    return message("D", old=cells(n), old_tag="O")


def apply(*messages: bytes) -> clone.ChunkOutcome:
    data, lengths = joined(list(messages))
    return dispatch.apply_changes(ITEMS, np.frombuffer(data, np.uint8), lengths)


def keys(*numbers: int) -> list[tuple]:
    lines = b"".join(copy_line(cells(n)) for n in numbers)
    return pairs(dispatch.apply_copy(ITEMS, lines, 0).keys)


def test_a_chunk_comes_to_copies_more_or_fewer() -> None:
    applied = apply(insert(1), insert(1), update(2, 3), delete(4), delete(4), update(1, 5, is_same=True), insert(4))
    assert applied.delta is not None
    found = dict(zip(pairs(applied.keys), applied.delta.tolist(), strict=True))
    assert found == dict(zip(keys(1, 2, 3, 4, 5), [1, -1, 1, -1, 1], strict=True))
    assert sorted(row["n"] for row in applied.rows.to_pylist()) == [1, 3, 5]
    assert {row["body"] for row in applied.rows.to_pylist()} == {"b"}
    for key, written in zip(pairs(applied.keys), applied.written.tolist(), strict=True):
        assert (written < 0) == (found[key] < 0)


def test_a_filter_lets_copies_in_and_out() -> None:
    transform = Transform(place="source eu, table public.t", filter="n <> 2", identity=(0, 1, 2))
    filtered = dataclasses.replace(ITEMS, transform=transform)
    changes = [insert(1), insert(2), update(2, 1), update(1, 2), update(2, 2, is_same=True), delete(2), delete(3)]
    data, lengths = joined(changes)
    # Of the new rows 1, 2, 1, 2, 2 and then of the old ones 2, 1, 2, 2, 3.
    keep = np.array([1, 0, 1, 0, 0, 0, 1, 0, 0, 1], np.bool_)
    evaluated = Evaluated(keep=keep, computed=())
    applied = dispatch.apply_changes(filtered, np.frombuffer(data, np.uint8), lengths, None, evaluated)
    assert applied.delta is not None
    found = dict(zip(pairs(applied.keys), applied.delta.tolist(), strict=True))
    assert found == dict(zip(keys(1, 3), [1, -1], strict=True))


def test_several_new_copies_are_as_many_rows() -> None:
    applied = apply(insert(1), insert(2), insert(1), insert(1))
    assert sorted(row["n"] for row in applied.rows.to_pylist()) == [1, 1, 1, 2]
    by_key = dict(zip(pairs(applied.keys), applied.written.tolist(), strict=True))
    rows = applied.rows.column("n").to_pylist()
    one, two = keys(1, 2)
    assert rows[by_key[one] : by_key[one] + 3] == [1, 1, 1]
    assert rows[by_key[two]] == 2


def test_a_change_without_its_old_row_is_refused() -> None:
    with pytest.raises(DecodeError, match="has no old row to go by"):
        apply(message("U", cells(1)))


def test_copies_have_keys_of_their_own() -> None:
    found = Keys(hi=np.array([5, 5], np.uint64), lo=np.array([1, 2], np.uint64))
    copies = keyless.RowCopies.between(np.array([0, 2]), np.array([3, 4]))
    assert (copies.of.tolist(), copies.number.tolist()) == ([0, 0, 0, 1, 1], [0, 1, 2, 2, 3])
    told = pairs(keyless.copy_keys(found.take(copies.of), copies.number))
    assert len(set(told)) == 5
    assert told[0] == (5, 1)


def test_ranks_count_equal_rows() -> None:
    assert keyless.ranks(np.array([3, 1, 3, 3, 1, 0])).tolist() == [0, 0, 1, 2, 1, 0]


@settings(deadline=None)  # a busy machine is no fault of ours
@given(st.lists(st.tuples(st.sampled_from("IUD"), st.integers(0, 3), st.integers(0, 3)), max_size=30))
def test_chunks_follow_a_multiset(steps: list[tuple]) -> None:
    now: collections.Counter = collections.Counter()
    messages = []
    for kind, one, other in steps:
        if kind == "I" or not now[one]:
            now[one] += 1
            messages.append(insert(one))
        elif kind == "U":
            now[one] -= 1
            now[other] += 1
            messages.append(update(one, other))
        else:
            now[one] -= 1
            messages.append(delete(one))
    applied = apply(*messages)
    assert applied.delta is not None
    numbers = dict(zip(keys(0, 1, 2, 3), range(4), strict=True))
    found = {numbers[key]: delta for key, delta in zip(pairs(applied.keys), applied.delta.tolist(), strict=True)}
    assert found == {n: count for n, count in now.items() if count}
