"""What is remembered of a source's columns."""

from __future__ import annotations

import dataclasses

import pytest

from kuvasz.errors import LakeError
from kuvasz.evolve import known
from tests.unit.evolve.tables import SourceTable


def test_what_is_remembered_comes_back() -> None:
    table = SourceTable()
    table.alter(3, facts=("a", "b"))
    before = known.of(dataclasses.replace(table.catalog(), leaf_files=7), {1: 1, 2: 2, 3: 3})
    assert known.parse({known.PREFIX + "eu": before.render()}, "shop.items") == {"eu": before}
    table.alter(3, name="label")
    table.drop(2)
    now = known.of(table.catalog(), {1: 1, 2: 2, 3: 3}, before)
    properties = {known.PREFIX + "eu": now.render(), "other": "1"}
    assert known.parse(properties, "shop.items") == {"eu": now}
    assert now.columns[3].names == ("name", "label")
    assert not now.columns[2].is_live
    assert now.columns[2].field == 2
    assert sorted(now.live) == ["id", "label"]


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


def test_properties_of_earlier_versions_are_read() -> None:
    text = '{"oid": 5, "columns": {"id": 1, "n": 3}}'
    (found,) = known.parse({known.PREFIX + "eu": text}, "shop.items").values()
    assert (found.oid, found.file, found.fields) == (5, 0, {})
    assert {name: column.number for name, column in found.live.items()} == {"id": 1, "n": 3}


@pytest.mark.parametrize("value", ["", "1", "{}", '{"oid": 1, "columns": 2}', '{"oid": "x", "columns": {}}',
                                   '{"oid": 1, "columns": {}, "details": {"1": {}}}'])  # fmt: skip
def test_a_damaged_property_is_told(value: str) -> None:
    with pytest.raises(LakeError, match=r"kuvasz\.columns\.eu does not describe columns"):
        known.parse({known.PREFIX + "eu": value}, "shop.items")
