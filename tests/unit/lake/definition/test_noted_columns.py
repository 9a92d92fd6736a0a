"""Shapes come with the notes that rest on them, and go with the last one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kuvasz.evolve import column_notes, known
from kuvasz.evolve.known import SourceColumns
from kuvasz.lake.definition.noted_columns import ColumnNotes
from tests.support import earlier_notes
from tests.support.lake_columns import World
from tests.support.source_table import SourceTable


class Table:
    """A table's properties; another process may commit between a look and a commit."""

    name = "shop.items"

    def __init__(self, *properties: Mapping[str, str]) -> None:
        self.properties = {name: text for one in properties for name, text in one.items()}
        self.others: list[Callable[[], None]] = []

    def set_properties(self, properties: Mapping[str, str | None]) -> None:
        for other in (self.others.pop(),) if self.others else ():
            other()
        merged = {**self.properties, **properties}
        self.properties = {name: text for name, text in merged.items() if text is not None}

    def change(self, source: str, columns: SourceColumns) -> dict[str, str | None]:
        """Have a source's note change, as one process does."""
        noted = notes_of(self)
        values = noted.change(source, columns)
        self.set_properties(values)
        noted.mend()
        return values


def notes_of(table: Table) -> ColumnNotes:
    build: Any = ColumnNotes  # upon a stand-in
    made: ColumnNotes = build(table)
    return made


def columns(*steps: Callable[[SourceTable], object]) -> SourceColumns:
    table = SourceTable()
    for step in steps:
        step(table)
    return known.of(table.catalog(), {1: 1, 2: 2, 3: 3, 4: 4})


PLAIN, WIDER = columns(), columns(lambda table: table.add("x"))


def shapes(table: Table) -> set[str]:
    return {name for name in table.properties if name.startswith(column_notes.SHAPE_PREFIX)}


def test_a_shape_stays_until_its_last_source_has_another() -> None:
    table = Table()
    table.change("eu", PLAIN)
    table.change("us", PLAIN)
    assert len(shapes(table)) == 1
    table.change("eu", WIDER)
    assert len(shapes(table)) == 2
    table.change("us", WIDER)
    assert len(shapes(table)) == 1
    assert column_notes.parse(table.properties, "t") == {"eu": WIDER, "us": WIDER}


def test_a_source_that_goes_takes_a_shape_along_that_nobody_else_has() -> None:
    table = Table(column_notes.render("eu", PLAIN), column_notes.render("us", WIDER), {"other": "x"})
    noted = notes_of(table)
    table.set_properties(dict.fromkeys(noted.without("eu")))
    noted.mend()
    assert table.properties == column_notes.render("us", WIDER) | {"other": "x"}
    assert notes_of(Table(column_notes.render("eu", PLAIN), column_notes.render("us", PLAIN))).without("eu") == [
        "kuvasz.columns.eu"
    ]


def test_a_shape_that_another_process_needs_meanwhile_is_put_back() -> None:
    table = Table(column_notes.render("eu", PLAIN))
    table.others.append(lambda: table.properties.update(column_notes.render("us", PLAIN)))
    table.change("eu", WIDER)
    assert column_notes.parse(table.properties, "t") == {"eu": WIDER, "us": PLAIN}


def test_notes_of_earlier_versions_are_written_anew_with_the_first_that_changes() -> None:
    old = {column_notes.PREFIX + source: earlier_notes.columns(PLAIN) for source in ("eu", "us")}
    table = Table(old)
    table.change("eu", WIDER)
    assert column_notes.earlier(table.properties) == set()
    assert column_notes.parse(table.properties, "t") == {"eu": WIDER, "us": PLAIN}
    assert "kuvasz.columns.us" not in table.change("eu", PLAIN), "once"


@pytest.mark.parametrize("changes", [True, False])
def test_a_table_of_the_version_before_is_read_works_and_is_written_anew_at_the_next_start(*, changes: bool) -> None:
    world = World()
    before = dict(world.columns.known)
    for name in [*world.iceberg.properties]:
        if name.startswith((column_notes.PREFIX, column_notes.SHAPE_PREFIX)):
            del world.iceberg.properties[name]
    for source in ("eu", "us"):
        world.iceberg.properties[column_notes.PREFIX + source] = earlier_notes.columns(before["eu"])
    world.columns = world.read()
    assert dict(world.columns.known) == {"eu": before["eu"], "us": before["eu"]}
    if changes:
        world.source.alter(2, name="m")
    world.iceberg.commits.clear()
    assert bool(world.evolve()) is changes
    assert len(world.iceberg.commits) == 1
    assert column_notes.earlier(world.iceberg.properties) == set()
    assert dict(world.read().known) == dict(world.columns.known) | {"us": before["eu"]}
    world.iceberg.commits.clear()
    world.evolve()
    assert world.iceberg.commits == []
