"""One process asks, the other one waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from kuvasz.lake.table import commit_yield
from kuvasz.lake.table.commit_yield import CommitYield


class Table:
    """An Iceberg table of which someone else takes a property away at some look."""

    def __init__(self) -> None:
        self.properties: dict[str, str] = {}
        self.looks = 0
        self.last_look = 3

    def touch(self, properties: Mapping[str, str]) -> None:
        self.properties |= properties

    def remove_properties(self, names: Iterable[str]) -> None:
        for name in names:
            del self.properties[name]

    def refresh(self) -> None:
        self.looks += 1
        if self.looks == self.last_look:
            self.properties.clear()


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.setattr(commit_yield, "_LOOK_S", 0.001)
    return Table()


def test_nobody_waits_unasked(table: Table) -> None:
    mine = CommitYield(table)
    mine.note(1)
    assert not mine.give()
    assert table.looks == 0


def test_it_waits_until_the_other_one_has_committed(table: Table) -> None:
    mine = CommitYield(table)
    CommitYield(table).ask()
    assert not mine.give(), "it was not noted yet"
    mine.note(2)
    assert mine.give()
    assert table.looks == 3


def test_it_waits_once_and_not_for_ever(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_yield, "YIELD_S", 0.01)
    table.last_look = 0
    mine, other = CommitYield(table), CommitYield(table)
    other.ask()
    mine.note(3)
    assert mine.give()
    looks = table.looks
    assert looks > 0
    mine.note(4)
    assert not mine.give(), "the one that asked may be dead"
    assert table.looks == looks
    other.ask()
    mine.note(5)
    assert mine.give(), "another value is another request"


def test_it_is_noted_when_commits_of_others_were_read(table: Table) -> None:
    mine = CommitYield(table)
    mine.note(1)
    CommitYield(table).ask()
    mine.note(1)
    assert not mine.give()
    mine.note(2)
    assert mine.give()


def test_who_does_not_commit_takes_it_back(table: Table) -> None:
    other = CommitYield(table)
    other.ask()
    assert list(table.properties) == ["kuvasz.yield"]
    other.stop_asking()
    assert not table.properties
