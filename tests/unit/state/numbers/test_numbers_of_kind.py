from __future__ import annotations

from kuvasz.state.numbers.numbers_of_kind import NumbersOfKind

A, B, C = ("a",), ("b",), ("b", "c")


def test_names_get_the_next_numbers_in_their_order_and_once() -> None:
    found = NumbersOfKind().with_all([B, A, B])
    assert (found.names, found.last) == ({B: 1, A: 2}, 2)
    assert found.with_all([A]) is found
    assert found.with_all([C, A]).names == {B: 1, A: 2, C: 3}


def test_a_number_that_lost_its_name_is_nobodys() -> None:
    found = NumbersOfKind().with_all([A, B]).renamed(A, B)
    assert (found.names, found.last) == ({B: 1}, 2)
    assert found.with_all([A]).names == {B: 1, A: 3}
    assert found.renamed(A, C) is found
    assert found.renamed(B, B) is found
