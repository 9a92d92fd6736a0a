"""What is remembered of a source's columns after the steps, and of the names that expressions read."""

from __future__ import annotations

import dataclasses

import pytest

from kuvasz.lake.format.evolution import Evolution
from kuvasz.ports import Target
from tests.support.lake_table import schema
from tests.support.source_table import INT, SourceTable

PLAIN = Target(name="shop.items")
FILTERED = dataclasses.replace(PLAIN, filter="n > 1")
SCHEMA = schema((1, "id", "int"), (2, "n", "int"), (3, "name", "string"), (4, "fresh", "int"))


def evolution(added: dict[int, str] | None = None) -> Evolution:
    return Evolution(added=added or {}, fields={1: 1, 2: 2, 3: 3}, key=("id",))


def test_a_column_is_known_by_the_field_that_it_fills() -> None:
    table = SourceTable()
    fresh = table.add("fresh", INT)
    known = evolution({fresh: "fresh"}).columns(table.catalog(), SCHEMA, None)
    assert {number: column.field for number, column in known.columns.items()} == {1: 1, 2: 2, 3: 3, fresh: 4}


@pytest.mark.parametrize("has_default", [True, False])
def test_a_default_is_that_of_the_column_which_brought_it(*, has_default: bool) -> None:
    table = SourceTable()
    fresh = table.add("fresh", INT)
    with_default = schema((1, "id", "int"), (2, "n", "int"), (3, "name", "string"), (4, "fresh", "int", 7))
    known = evolution({fresh: "fresh"}).columns(table.catalog(), with_default if has_default else SCHEMA, None)
    assert known.columns[fresh].default_of == (4 if has_default else 0)
    again = evolution().columns(table.catalog(), with_default, known)
    assert again.columns[fresh].default_of == known.columns[fresh].default_of, "and stays so"


def test_without_expressions_nothing_is_read() -> None:
    found = evolution()
    assert found.reading(PLAIN, SourceTable().catalog(), ["n"], None) is found


def test_what_expressions_read_is_remembered_by_number() -> None:
    table = SourceTable()
    found = evolution().reading(FILTERED, table.catalog(), ["n", "nowhere"], None)
    assert dict(found.reads) == {"n": table.number("n")}
    assert found.expressions
    known = found.columns(table.catalog(), SCHEMA, None)
    assert (known.reads, known.expressions) == (found.reads, found.expressions)


def test_a_name_that_means_another_column_now_has_the_rows_copied_again() -> None:
    table = SourceTable()
    before = evolution().reading(FILTERED, table.catalog(), ["n"], None).columns(table.catalog(), SCHEMA, None)
    table.drop(table.number("n"))
    table.add("n", INT)
    found = evolution().reading(FILTERED, table.catalog(), ["n"], before)
    assert (found.moved, found.is_change) == (("n",), True)
    assert found.why_copy == "n in the map's expressions names another column than before"
    assert found.told == (found.why_copy,)


def test_expressions_that_a_person_has_written_anew_mean_what_they_say() -> None:
    table = SourceTable()
    before = evolution().reading(FILTERED, table.catalog(), ["n"], None).columns(table.catalog(), SCHEMA, None)
    table.drop(table.number("n"))
    table.add("n", INT)
    other = dataclasses.replace(PLAIN, filter="n > 2")
    found = evolution().reading(other, table.catalog(), ["n"], before)
    assert (found.moved, found.why_copy) == ((), "")
    assert found.expressions != before.expressions


def test_the_order_of_set_is_part_of_what_it_says() -> None:
    table = SourceTable()
    one = dataclasses.replace(PLAIN, set={"id": "id", "n": "n"})
    other = dataclasses.replace(PLAIN, set={"n": "n", "id": "id"})
    digests = [evolution().reading(target, table.catalog(), [], None).expressions for target in (one, other)]
    assert len(set(digests)) == 2
