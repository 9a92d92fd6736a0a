"""Partition and order of rows, and what the map may say of them."""

from __future__ import annotations

import dataclasses
import json

import pytest

from kuvasz.config import names
from kuvasz.errors import SchemaError
from kuvasz.lake.format import layout
from kuvasz.lake.format.layout import Ordering
from kuvasz.lake.format.schema import LakeSchema
from kuvasz.lake.format.schema_steps import AddField, RelaxFields, RenameField, Step
from tests.support.changes import target
from tests.support.layouts import FIELDS, term, wanted


def test_the_maps_expressions_are_read() -> None:
    asked = wanted("s", "days(at)", "bucket(16, id)", "truncate(3, `a b`)",
                   sort_by=("n desc", "x", "hours(at) asc nulls last"))  # fmt: skip
    assert asked.partition == (
        term("identity", "s"), term("day", "at"), term("bucket", "id", 16), term("truncate", "a b", 3)
    )  # fmt: skip
    assert asked.order == (
        Ordering(term=term("identity", "n"), descends=True, nulls_first=False),
        Ordering(term=term("identity", "x")),
        Ordering(term=term("hour", "at"), nulls_first=False),
    )
    assert not asked.is_plain
    assert wanted().is_plain


@pytest.mark.parametrize(
    ("option", "text", "told"),
    [
        ("partition_by", "days(idd)", "'days(idd)': the table has no column 'idd': did you mean 'id'?"),
        ("partition_by", "days(id)", "'days(id)': day is not for a column of type long"),
        ("partition_by", "hours(day)", "hour is not for a column of type date"),
        ("partition_by", "x", "identity is not for a column of type double"),
        ("partition_by", "bucket(4, x)", "bucket is not for a column of type double"),
        ("partition_by", "truncate(4, at)", "truncate is not for a column of type timestamptz"),
        ("sort_by", "years(s) desc", "'years(s) desc': year is not for a column of type string"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(option: str, text: str, told: str) -> None:
    asked = dataclasses.replace(target(), **{option: (text,)})
    with pytest.raises(SchemaError) as caught:
        layout.wanted(asked, FIELDS)
    assert str(caught.value).startswith(f"table shop.items, {option} ")
    assert told in caught.value.message


@pytest.mark.parametrize("twice", [("days(at)", "hours(at)"), ("bucket(4, id)", "bucket( 4 , id)")])
def test_two_that_divide_the_same_are_refused(twice: tuple[str, str]) -> None:
    with pytest.raises(SchemaError, match="divides the same column already"):
        wanted(*twice)


TAKEN = frozenset({("at_day", FIELDS[2].field_id), ("s", FIELDS[4].field_id)})
NEW = dataclasses.replace(FIELDS[0], field_id=1)


@pytest.mark.parametrize(
    ("steps", "name"),
    [
        ([AddField(dataclasses.replace(NEW, name="at_day"))], "at_day"),
        ([RenameField("n", "at_day")], "at_day"),
        # Another type: the earlier field is put aside, and another one gets its name.
        ([RenameField("s", "s__old"), AddField(dataclasses.replace(NEW, name="s"))], "s"),
        ([RenameField("s", "z"), RenameField("n", "s")], "s"),
    ],
)
def test_no_column_gets_the_name_of_a_partition_field(steps: list[Step], name: str) -> None:
    with pytest.raises(SchemaError, match=f"partitioned by what Iceberg calls {name}, so no column can be") as caught:
        layout.refuse_taken(steps, FIELDS, TAKEN, "source eu, table items", "shop.items")
    assert f"`exclude: [{name}]`" in str(caught.value.hint)


@pytest.mark.parametrize(
    "steps",
    [
        [AddField(dataclasses.replace(NEW, name="At_Day")), RenameField("s", "z"), RenameField("z", "s")],
        [RelaxFields(("n",)), RenameField("s", "s__old")],
    ],
)
def test_what_a_partition_field_divides_by_may_have_its_name(steps: list[Step]) -> None:
    layout.refuse_taken(steps, FIELDS, TAKEN, "source eu, table items", "shop.items")


def test_a_map_that_names_columns_as_they_were_called_before_means_the_same_ones() -> None:
    asked = dataclasses.replace(target(), partition_by=("old", "days(at)"), sort_by=("bucket(4, old) desc", "s"))
    now = dataclasses.replace(asked, partition_by=("n", "days(at)"), sort_by=("bucket(4, n) desc", "s"))
    former = {"old": "n", "s": "n", "at": "day"}
    assert layout.wanted(asked, FIELDS, former) == layout.wanted(now, FIELDS)
    with pytest.raises(SchemaError, match="the table has no column 'old'"):
        layout.wanted(asked, FIELDS)


def test_what_was_rendered_comes_back() -> None:
    asked = wanted("s", "months(at)", "bucket(16, id)", "bucket(4, id)", sort_by=("n desc nulls first",))
    fields = json.loads(layout.render_spec(asked, FIELDS))["fields"]
    names = [field["name"] for field in fields]
    assert names == ["s", "at_month", "id_bucket", "id_bucket_4"]
    assert [field["field-id"] for field in fields] == [1000, 1001, 1002, 1003]
    schema = LakeSchema(schema_id=0, fields=FIELDS)
    back = layout.parse(layout.render_spec(asked, FIELDS), layout.render_order(asked, FIELDS), schema, "shop.items")
    assert back == dataclasses.replace(asked, order_id=1)
    with pytest.raises(SchemaError, match=r"has zorder\[3\], which kuvasz cannot write"):
        layout.parse(json.dumps({"spec-id": 0, "fields": [{"transform": "zorder[3]", "source-id": 1}]}),
                     layout.render_order(wanted(), FIELDS), schema, "shop.items")  # fmt: skip


@pytest.mark.parametrize(
    ("properties", "expected"),
    [({}, ("zstd", 1)), ({"owner": "ann", f"{names.COMPRESSION}level": "6"}, ("zstd", 6)),
     ({f"{names.COMPRESSION}codec": "gzip"}, ("gzip", None)),
     ({f"{names.COMPRESSION}codec": "uncompressed"}, ("none", None))],
)  # fmt: skip
def test_compression_is_as_the_map_asks(properties: dict[str, str], expected: tuple[str, int | None]) -> None:
    found = layout.PLAIN.compressed(properties)
    assert (found.codec, found.level) == expected
    assert found.is_plain
