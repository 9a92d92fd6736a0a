from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from supply import pip_audit
from supply.hole import DatabaseUnreachableError, Hole
from supply.package import Package
from tests.support.hole_database import HoleDatabase, hole_database


def pin(name: str, version: str, marker: str = "") -> Package:
    return Package(name=name, version=version, marker=marker, hashes=("a" * 64,), needed_by=())


@pytest.fixture
def database() -> Iterator[HoleDatabase]:
    with hole_database() as database:
        yield database


def test_two_versions_of_a_package_are_asked_for_one_after_the_other() -> None:
    packages = {pin("a", "1"): ["run"], pin("a", "2"): ["dev"], pin("b", "1"): ["run"]}
    assert list(pip_audit.layers(packages)) == [[pin("a", "1"), pin("b", "1")], [pin("a", "2")]]
    assert list(pip_audit.layers({})) == []


@pytest.mark.process
def test_pins_of_other_platforms_and_second_versions_are_asked_for_too(database: HoleDatabase) -> None:
    fixed = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3"}]}]
    database.add("PyPI", "a", "2", id="GHSA-1", aliases=["CVE-1"], summary="it leaks", ranges=fixed)
    elsewhere = pin("b", "1", "sys_platform == 'nowhere'")
    found = pip_audit.holes_of(
        {pin("a", "1"): ["run"], pin("a", "2"): ["dev", "run"], elsewhere: ["run"]}, database.url
    )
    assert found == (
        Hole(
            package="a", version="2", names=("CVE-1", "GHSA-1"), summary="it leaks", fixed=("3",),
            places=("dev.lock", "run.lock"),
        ),
    )  # fmt: skip
    assert sorted(database.asked) == [("PyPI", "a", "1"), ("PyPI", "a", "2"), ("PyPI", "b", "1")]


@pytest.mark.process
def test_a_database_that_does_not_answer_is_no_answer(database: HoleDatabase) -> None:
    database.status = 503
    with pytest.raises(DatabaseUnreachableError, match=f"^{re.escape(database.url)}: pip-audit ended with 1: "):
        pip_audit.holes_of({pin("a", "1"): ["run"]}, database.url)
