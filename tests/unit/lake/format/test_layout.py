"""Partition and order of rows, and what the map may say of them."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import json
import math
import uuid

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuvasz.config import names
from kuvasz.errors import SchemaError
from kuvasz.lake.format import layout
from kuvasz.lake.format.layout import Layout, Ordering
from kuvasz.lake.format.partition_transforms import Term
from kuvasz.lake.format.schema import Field, LakeSchema
from kuvasz.model import LakeType, ValueType
from tests.support.changes import target

KINDS = {"id": LakeType.LONG, "n": LakeType.INT, "at": LakeType.TIMESTAMPTZ, "day": LakeType.DATE,
         "s": LakeType.STRING,
         "x": LakeType.DOUBLE, "u": LakeType.UUID, "b": LakeType.BINARY, "t": LakeType.BOOLEAN, "a b": LakeType.INT,
         "d": LakeType.DECIMAL}  # fmt: skip
FIELDS = tuple(
    Field(field_id=number, name=name, type=ValueType(kind=kind, precision=9, scale=2))
    for number, (name, kind) in enumerate(KINDS.items(), 1)
)


def wanted(*partition_by: str, sort_by: tuple[str, ...] = ()) -> Layout:
    return layout.wanted(dataclasses.replace(target(), partition_by=partition_by, sort_by=sort_by), FIELDS)


def term(transform: str, column: str, width: int = 0) -> Term:
    return Term(transform=transform, column=column, width=width)


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


def test_values_are_written_as_the_spec_has_them() -> None:
    at = datetime.datetime(1969, 12, 31, 23, 0, 0, 123456, tzinfo=datetime.UTC)
    unique = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
    rows = pa.table({
        "at": pa.array([at], pa.timestamp("us", tz="UTC")), "day": pa.array([at.date()]), "s": ["hä"],
        "u": pa.array([unique.bytes], pa.binary(16)), "b": pa.array([b"\x00\xff"]), "t": [True],
        "d": pa.array([decimal.Decimal("-1.50")], pa.decimal128(9, 2)), "n": pa.array([None], pa.int32()),
    })  # fmt: skip
    asked = wanted("at", "day", "s", "u", "b", "t", "d", "n", "days(day)", "hours(at)")
    asked = Layout(partition=(*asked.partition, term("month", "day")))
    ((values, _),) = asked.arrange(rows)
    assert values == ("1969-12-31T23:00:00.123456+00:00", "1969-12-31", "hä", str(unique), "00FF", True, "-1.50",
                      None, "1969-12-31", -1, -1)  # fmt: skip


@given(st.lists(st.tuples(st.none() | st.integers(-9, 9), st.none() | st.text(max_size=3)), max_size=30))
def test_every_row_goes_to_its_partition_once(rows: list) -> None:
    table = pa.table(
        {"n": pa.array([n for n, _ in rows], pa.int32()), "s": pa.array([s for _, s in rows], pa.string())}
    )
    found = wanted("truncate(5, n)", "truncate(1, s)").arrange(table)
    seen = [index for _, order in found for index in order.tolist()]
    assert sorted(seen) == list(range(len(rows)))
    for values, order in found if rows else ():
        assert order.tolist() == sorted(order.tolist()), "rows keep their order"
        for index in order.tolist():
            n, s = rows[index]
            assert values == (None if n is None else n - n % 5, None if s is None else s[:1])
    assert len({values for values, _ in found}) == len(found)


def _first(value: float | None, *, descends: bool, nulls_first: bool) -> tuple:
    if value is None:
        return (0 if nulls_first else 2, 0.0, 0)
    rank = (1, 0.0) if math.isnan(value) else (0, value)
    sign = math.copysign(1, value) if value == 0 else 0
    key = (*rank, sign)
    return (1, *(-part for part in key)) if descends else (1, *key)


@pytest.mark.parametrize("descends", [True, False])
@pytest.mark.parametrize("nulls_first", [True, False])
@given(
    values=st.lists(st.none() | st.floats(allow_nan=True, width=32).map(abs) | st.floats(allow_nan=False), min_size=1)
)
def test_rows_are_sorted_with_nulls_where_they_are_wanted(
    descends: bool, nulls_first: bool, values: list[float | None]
) -> None:
    words = f"x {'desc' if descends else 'asc'} nulls {'first' if nulls_first else 'last'}"
    ((_, order),) = wanted(sort_by=(words,)).arrange(pa.table({"x": pa.array(values, pa.float64())}))
    expected = sorted(range(len(values)), key=lambda i: _first(values[i], descends=descends, nulls_first=nulls_first))
    assert order.tolist() == expected


def test_the_second_term_decides_where_the_first_does_not() -> None:
    rows = pa.table({"s": ["b", "a", "b", "a"], "n": pa.array([1, 2, 3, 4], pa.int32()),
                     "t": [True, True, False, False]})  # fmt: skip
    found = wanted("t", sort_by=("s", "n desc")).arrange(rows)
    assert {values: order.tolist() for values, order in found} == {(True,): [1, 0], (False,): [3, 2]}


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
