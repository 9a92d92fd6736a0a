from __future__ import annotations

import json
from typing import Any

import pytest

from kuvasz.admin.api.refusal import RequestRefused
from kuvasz.admin.entries.list_query import ListQuery

FIELDS = ("id", "name", "sid", "up")
RECORDS = [
    {"id": 1, "name": "b", "sid": None, "up": True},
    {"id": 2, "name": "a", "sid": "eu", "up": False},
    {"id": 3, "name": "c", "sid": "", "up": True},
]


def chosen(**given: Any) -> tuple[list[int], int]:
    query = ListQuery.of({name: json.dumps(value) for name, value in given.items()}, FIELDS)
    found, total = query.chosen(RECORDS)
    return [one["id"] for one in found], total


def test_without_a_wish_all_come_in_their_order() -> None:
    assert chosen() == ([1, 2, 3], 3)
    assert chosen(filter={}, page=3) == ([1, 2, 3], 3), "what others ask for says nothing"


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        (["name", "ASC"], [2, 1, 3]), (["name", "desc"], [3, 1, 2]), (["id", "DESC"], [3, 2, 1]),
        (["sid", "ASC"], [1, 3, 2]),
    ],
)  # fmt: skip
def test_a_list_is_sorted_by_a_field(sort: list[str], expected: list[int]) -> None:
    assert chosen(sort=sort) == (expected, 3)


@pytest.mark.parametrize(
    ("given", "expected"), [([0, 0], [1]), ([1, 24], [2, 3]), ([3, 5], []), ([0, 999], [1, 2, 3]), ([0, -1], [])]
)
def test_a_range_has_both_its_ends_and_the_total_counts_all(given: list[int], expected: list[int]) -> None:
    assert chosen(range=given) == (expected, 3)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"id": [1, 3]}, [1, 3]), ({"id": "2"}, [2]), ({"up": True}, [1, 3]), ({"up": True, "name": "b"}, [1]),
        ({"sid": None}, [1]), ({"sid": ""}, [3]), ({"id": []}, []),
    ],
)  # fmt: skip
def test_a_filter_takes_what_has_one_of_the_values(given: dict, expected: list[int]) -> None:
    assert chosen(filter=given) == (expected, len(expected))
    assert chosen(filter=given, range=[0, 0]) == (expected[:1], len(expected))


@pytest.mark.parametrize(
    "given",
    [
        {"sort": "name"}, {"sort": ["name"]}, {"sort": ["name", "up"]}, {"sort": ["nobody", "ASC"]},
        {"range": [5, 2]}, {"range": [-1, 2]}, {"range": [0]}, {"range": [True, True]},
        {"filter": [1]}, {"filter": {"nobody": 1}},
    ],
)  # fmt: skip
def test_what_is_malformed_is_refused_with_what_is_expected(given: dict) -> None:
    with pytest.raises(RequestRefused) as told:
        chosen(**given)
    assert (told.value.status, bool(told.value.hint)) == (400, True)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000])
def test_what_is_no_json_is_refused(text: str) -> None:
    for name in ("sort", "range", "filter"):
        with pytest.raises(RequestRefused):
            ListQuery.of({name: text}, FIELDS)
