"""What is remembered of a source's columns."""

from __future__ import annotations

import dataclasses

from kuvasz.evolve import column_notes, known
from kuvasz.model import Uniqueness
from tests.support.source_table import SourceTable


def test_what_is_remembered_comes_back() -> None:
    table = SourceTable()
    table.alter(3, facts=("a", "b"))
    before = known.of(dataclasses.replace(table.catalog(), leaf_files=7), {1: 1, 2: 2, 3: 3})
    assert column_notes.parse(column_notes.render("eu", before), "shop.items") == {"eu": before}
    table.alter(3, name="label")
    table.drop(2)
    now = known.of(table.catalog(), {1: 1, 2: 2, 3: 3}, before)
    properties = {**column_notes.render("eu", now), "other": "1"}
    assert column_notes.parse(properties, "shop.items") == {"eu": now}
    assert now.columns[3].names == ("name", "label")
    assert not now.columns[2].is_live
    assert now.columns[2].field == 2
    assert sorted(now.live) == ["id", "label"]


def test_by_which_expressions_a_table_was_followed_is_known() -> None:
    table = SourceTable()
    expressions = known.expressions_of("id > 0", None)
    before = dataclasses.replace(known.of(table.catalog(), {1: 1, 2: 2, 3: 3}), expressions=expressions)
    table.alter(3, name="label")
    now = known.of(table.catalog(), {1: 1, 2: 2, 3: 3}, before)
    now = dataclasses.replace(now, expressions=expressions)
    for one in (before, now):
        assert one.went_by(known.expressions_of("id > 0", None), ["name"])
        assert not one.went_by(known.expressions_of("id > 1", None), ["name"])
        assert not one.went_by(known.expressions_of("id > 0", {"id": "id"}), ["name"])
        assert not one.went_by(expressions, ["nmae"])
    assert known.expressions_of(None, None) == ""


def test_whose_a_default_is_comes_back() -> None:
    table = SourceTable()
    table.add("d", default="9")
    before = known.of(table.catalog(), {1: 1, 2: 2, 3: 3, 4: 4})
    assert before.defaulted == set(), "only who adds the field knows that it has this default"
    columns = {**before.columns, 4: dataclasses.replace(before.columns[4], default_of=4)}
    before = dataclasses.replace(before, columns=columns)
    assert before.defaulted == {4}
    (found,) = column_notes.parse(column_notes.render("eu", before), "shop.items").values()
    assert found == before
    assert known.of(table.catalog(), {1: 1, 2: 2, 3: 3, 4: 4}, before).defaulted == {4}
    assert known.of(table.catalog(), {1: 1, 2: 2, 3: 3, 4: 5}, before).defaulted == set()
    table.drop(4)
    assert known.of(table.catalog(), {1: 1, 2: 2, 3: 3}, before).defaulted == set()


def test_names_do_not_pile_up() -> None:
    table = SourceTable()
    remembered = None
    for turn in range(30):
        table.alter(2, name=f"n{turn}")
        remembered = known.of(table.catalog(), {}, remembered)
    assert len(remembered.columns[2].names) == 8
    assert remembered.columns[2].name == "n29"
    table.alter(2, name="n28")
    remembered = known.of(table.catalog(), {}, remembered)
    assert remembered.columns[2].names[-2:] == ("n29", "n28")


def test_another_table_is_remembered_for_itself() -> None:
    table = SourceTable()
    before = known.of(table.catalog(), {1: 1})
    other = dataclasses.replace(SourceTable(("x", before and table.live[1].pg_type)).catalog(), oid=7)
    assert sorted(known.of(other, {}, before).columns) == [1]


def test_the_last_key_is_remembered_while_there_is_none() -> None:
    table = SourceTable()
    before = known.of(table.catalog(), {})
    table.uniqueness = Uniqueness()
    assert known.of(table.catalog(), {}, before).uniqueness == before.uniqueness
    table.uniqueness = Uniqueness(1, 2, 3)
    assert known.of(table.catalog(), {}, before).uniqueness == (1, 2, 3)
