"""Notes of columns as earlier versions wrote them."""

from __future__ import annotations

import json

import pytest

from kuvasz.errors import LakeError
from kuvasz.evolve import column_notes, known
from tests.support.earlier_notes import columns
from tests.support.source_table import SourceTable


def test_whose_a_default_is_when_an_earlier_version_did_not_write_it() -> None:
    table = SourceTable()
    table.add("d", default="9")
    table.add("e")
    written = json.loads(columns(known.of(table.catalog(), {4: 4, 5: 5})))
    del written["defaults"]
    (found,) = column_notes.parse({column_notes.PREFIX + "eu": json.dumps(written)}, "shop.items").values()
    assert found.defaulted == {4}, "that of a column with a constant in old rows"
    del written["missing"]
    (found,) = column_notes.parse({column_notes.PREFIX + "eu": json.dumps(written)}, "shop.items").values()
    assert found.defaulted == {4, 5}


def test_properties_of_earlier_versions_are_read() -> None:
    text = '{"oid": 5, "columns": {"id": 1, "n": 3}}'
    (found,) = column_notes.parse({column_notes.PREFIX + "eu": text}, "shop.items").values()
    assert (found.oid, found.file, found.fields, any(found.uniqueness)) == (5, 0, {}, False)
    assert {name: column.number for name, column in found.live.items()} == {"id": 1, "n": 3}


@pytest.mark.parametrize("value", ["", "1", "{}", '{"oid": 1, "columns": 2}', '{"oid": "x", "columns": {}}',
                                   '{"oid": 1, "columns": {}, "details": {"1": {}}}'])  # fmt: skip
def test_a_damaged_property_is_told(value: str) -> None:
    with pytest.raises(LakeError, match=r"kuvasz\.columns\.eu does not describe columns"):
        column_notes.parse({column_notes.PREFIX + "eu": value}, "shop.items")
