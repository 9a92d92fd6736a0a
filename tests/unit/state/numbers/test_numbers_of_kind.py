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


def test_an_entry_that_was_about_to_get_another_name_is_known_by_either() -> None:
    """Whoever was to tell has ended before: what the map has says whether it came to that."""
    found = NumbersOfKind().with_all([A]).announced(A, B)
    assert found.with_all([A]) is found
    assert found.with_all([B]) == found.renamed(A, B) == NumbersOfKind(last=1, names={B: 1})
    assert found.with_all([A, B]) == NumbersOfKind(last=2, names={A: 1, B: 2}), "another one of that name"
    assert found.announced(A, A) == NumbersOfKind(last=1, names={A: 1})
    assert found.announced(A, C).coming == {C: 1}
    assert found.announced(C, B) is found
    assert NumbersOfKind.of_json(found.as_json()) == found


def test_an_announced_name_is_taken_from_whatever_had_it() -> None:
    found = NumbersOfKind().with_all([A, B]).announced(B, C).announced(A, B)
    assert found.with_all([B]) == NumbersOfKind(last=2, names={B: 1})
