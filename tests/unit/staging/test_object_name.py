"""Whose an object is, by its name."""

from __future__ import annotations

import itertools

from kuvasz.staging.object_name import is_of_before, object_names
from kuvasz.state.staged.ports import LogLease

LEASE = LogLease("f00", 7)


def test_names_are_in_order_and_never_the_same() -> None:
    names = list(itertools.islice(object_names(LEASE), 12))
    assert names == sorted(set(names))
    assert set(names).isdisjoint(itertools.islice(object_names(LEASE), 12))


def test_what_is_a_later_holders_or_another_logs_is_not_of_before() -> None:
    for number, is_before in ((6, True), (7, True), (8, False)):
        name = next(object_names(LogLease("f00", number)))
        assert (is_of_before(name, LEASE), is_of_before(f"{name}.part", LEASE)) == (is_before, is_before)
    beside = LogLease("f00", 7, frozenset({5}))
    assert [is_of_before(next(object_names(LogLease("f00", number))), beside) for number in (4, 5, 6, 7)] == [
        True, False, True, True,
    ]  # fmt: skip
    for name in (next(object_names(LogLease("f01", 6))), "f00", "f00-x", "notes.txt", ""):
        assert not is_of_before(name, LEASE)
