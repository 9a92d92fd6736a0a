from __future__ import annotations

import pytest

from kuvasz.lake.about.tables import TABLES, AboutTable
from kuvasz.lake.format import layout
from kuvasz.lake.format.schema import parse, render
from kuvasz.model import LakeType, TableType


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_table_lies_by_the_days_of_its_rows(table: AboutTable) -> None:
    fields, target = table.fields(), table.target("_kuvasz")
    assert (target.name, target.type) == (f"_kuvasz.{table.name}", TableType.APPEND)
    (term,) = layout.wanted(target, fields).partition
    assert (term.transform, term.column) == ("day", table.time)
    assert [field.name for field in fields if field.required] == [table.time]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_its_columns_are_iceberg_s(table: AboutTable) -> None:
    fields = table.fields()
    found = parse(render(fields, ()))
    assert [(field.name, field.type.kind) for field in found.fields] == list(table.columns.items())
    ids = [number for field in fields for number in (field.field_id, *field.inner_ids)]
    assert ids == list(range(1, len(ids) + 1))
    assert "sid" not in table.columns, "that is a name of kuvasz's own"
    assert LakeType.LIST not in table.columns.values()
