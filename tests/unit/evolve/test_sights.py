"""Looks at the catalog, and which of them are kept."""

from __future__ import annotations

import dataclasses

from kuvasz.evolve import sights
from kuvasz.model import Seen
from tests.support.source_table import INT, SourceTable


def look(table: SourceTable, at: int, until: int | None = None, *running: int) -> sights.Sight:
    seen = Seen(lsn=at, until=until or at, running=frozenset(running))
    found = sights.of(dataclasses.replace(table.catalog(), seen=seen))
    assert found is not None
    return found


def test_a_look_that_shows_nothing_new_is_not_kept() -> None:
    table = SourceTable()
    first = look(table, 100)
    assert sights.added((first,), look(table, 200), None) == (first,)
    assert sights.added((first,), None, None) == (first,)
    table.alter(2, is_nullable=False)  # whatever it was that touched the column
    assert len(sights.added((first,), look(table, 200), None)) == 2


def test_looks_are_kept_until_no_row_needs_them() -> None:
    table = SourceTable()
    found: tuple[sights.Sight, ...] = ()
    for at in (100, 200, 300):
        table.add(f"c{at}")
        found = sights.added(found, look(table, at, at + 5), None)
    assert [one.seen.lsn for one in sights.added(found, None, 204)] == [100, 200, 300]
    assert [one.seen.lsn for one in sights.added(found, None, 205)] == [200, 300]
    assert [one.seen.lsn for one in sights.added(found, None, 1000)] == [300]


def test_of_many_looks_the_first_and_the_newest_stay() -> None:
    table = SourceTable()
    found: tuple[sights.Sight, ...] = ()
    for at in range(100, 200):
        table.alter(2, name=f"n{at}")
        found = sights.added(found, look(table, at), 50)
    assert [one.seen.lsn for one in found] == [100, *range(189, 200)]


def test_of_a_wide_table_fewer_are_kept() -> None:
    table = SourceTable(*((f"c{number}", INT) for number in range(1500)))
    found: tuple[sights.Sight, ...] = ()
    for at in range(100, 110):
        table.alter(2, name=f"n{at}")
        found = sights.added(found, look(table, at), None)
    assert [one.seen.lsn for one in found] == [100, 108, 109]


def test_a_transaction_that_was_running_is_not_shown() -> None:
    found = look(SourceTable(), 100, 100, 7)
    assert found.shows(99, 6)
    assert not found.shows(99, 7)
    assert not found.shows(100, 6)
