from __future__ import annotations

import pytest

from kuvasz.config.problem import (
    OptionOrigin,
    Path,
    Problem,
    listed,
    nearest,
    quoted_words,
    render,
    render_path,
    suggestion,
)

FILE = OptionOrigin(value="map.yaml:2:9", key="map.yaml:2:1", order=(0, 2, 1))
LATER = OptionOrigin(value="map.yaml:7:9", key="map.yaml:7:1", order=(0, 7, 1))
FLAG = OptionOrigin(value="flag", key="flag", order=(2, 0, 0))
ORIGINS: dict[Path, OptionOrigin] = {("lake",): FILE, ("databases", 0): LATER, ("server", "address"): FLAG}


def test_problems_stand_in_the_order_of_their_places_and_once() -> None:
    flag = Problem(path=("server", "address"), message="is no address")
    key = Problem(path=("lake", "warehous"), message="is unknown", is_key=True)
    value = Problem(path=("databases", 0, "urls"), message="is missing")
    assert render([flag, value, key, value], ORIGINS).splitlines() == [
        "map.yaml:2:1: lake.warehous: is unknown",
        "map.yaml:7:9: databases[0].urls: is missing",
        "flag: server.address: is no address",
    ]


def test_a_problem_of_no_place_and_no_option_comes_first() -> None:
    nowhere = Problem(path=(), message="the map is empty")
    elsewhere = Problem(path=("x",), message="is odd", origin=LATER)
    assert render([elsewhere, nowhere], {}).splitlines() == ["the map is empty", "map.yaml:7:9: x: is odd"]


def test_an_option_that_was_not_written_is_where_its_section_is() -> None:
    assert nearest(("databases", 0, "tables", "a"), ORIGINS) is LATER
    assert nearest(("databases", 1), ORIGINS) is None


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (("databases", 0, "tables", "a.b", "type"), 'databases[0].tables."a.b".type'),
        (("tables", '"a.b"'), 'tables."a.b"'),
        ((), ""),
    ],
)
def test_a_path_reads_as_in_the_map(path: Path, shown: str) -> None:
    assert render_path(path) == shown


def test_a_word_is_guessed_whatever_its_case_and_dashes() -> None:
    assert suggestion("Commit-Intervall", ["commit_interval", "state"]) == ": did you mean 'commit_interval'?"
    assert suggestion("zzz", ["commit_interval"]) == ""


@pytest.mark.parametrize(("words", "shown"), [(["a"], "a"), (["a", "b"], "a or b"), (["a", "b", "c"], "a, b or c")])
def test_words_are_listed(words: list[str], shown: str) -> None:
    assert listed(words) == shown


def test_quoted_words_are_found() -> None:
    assert quoted_words("Input should be 'clone', 'append' or 'history'") == ["clone", "append", "history"]
