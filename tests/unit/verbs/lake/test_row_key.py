"""Keys as people give them."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import math
import re
import struct
import uuid
from typing import Any

import pytest
from pyiceberg.expressions import AlwaysFalse, EqualTo, IsNaN, Reference
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from kuvasz.errors import ConfigError
from kuvasz.evolve.known import KnownColumn, SourceColumns
from kuvasz.lake.format import schema
from kuvasz.verbs.lake import row_key


def parse(
    given: list[str], *key: str, sid_of: str | None = None, **columns: IcebergType
) -> tuple[dict[str, str], list[Any]]:
    iceberg = Schema(*(NestedField(number, name, kind) for number, (name, kind) in enumerate(columns.items(), 1)))
    lake = schema.parse(iceberg.model_dump_json())
    found = row_key.parse(given, sid_of, key, (lake, iceberg), "shop.items")
    assert [field.name for field in found.fields] == (["sid"] if sid_of else []) + list(found.texts)
    return dict(found.texts), [value.as_py() for value in found.values]


@pytest.mark.parametrize("given", [["7", "x"], ["a=7", "b=x"], ["b=x", "a=7"]])
def test_a_key_is_given_in_its_order_or_by_names(given: list[str]) -> None:
    assert parse(given, "a", "b", a=IntegerType(), b=StringType()) == ({"a": "7", "b": "x"}, [7, "x"])


def test_a_text_may_look_like_a_name_and_a_value() -> None:
    assert parse(["c=7"], "b", b=StringType())[1] == ["c=7"]
    assert parse(["b=b=7"], "b", b=StringType())[1] == ["b=7"]


def test_rows_of_one_source_are_told_by_their_sid_too() -> None:
    assert parse(["7"], "a", sid_of="eu", a=LongType(), sid=StringType())[1] == ["eu", 7]


def test_a_table_without_a_key_is_asked_by_its_columns() -> None:
    assert parse(["a=7"], a=LongType(), b=StringType()) == ({"a": "7"}, [7])


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (DecimalType(9, 2), "7.50", decimal.Decimal("7.50")),
        (DateType(), "2026-11-26", datetime.date(2026, 11, 26)),
        (TimestampType(), "2026-11-26 10:00", datetime.datetime(2026, 11, 26, 10)),  # noqa: DTZ001 (the column has no zone)
        (TimestamptzType(), "2026-11-26 10:00+01", datetime.datetime(2026, 11, 26, 9, tzinfo=datetime.UTC)),
        (DecimalType(9, 2), "7.5", decimal.Decimal("7.50")),
        (DecimalType(9, 2), "750e-2", decimal.Decimal("7.50")),
        (LongType(), "9007199254740993", 9007199254740993),
        (IntegerType(), "-7", -7),
        (UUIDType(), "0" * 31 + "7", uuid.UUID(int=7).bytes),
        (BinaryType(), "\\x0aff", b"\x0a\xff"),
    ],
)
def test_values_have_the_type_of_their_column(kind: IcebergType, text: str, value: object) -> None:
    ((found),) = parse([text], "a", a=kind)[1]
    assert found == value


@pytest.mark.parametrize(
    ("kind", "given", "text"),
    [
        (LongType(), "007", "7"),
        (DecimalType(9, 2), "07.50", "7.50"),
        (DecimalType(20, 4), "7.5000", "7.5"),
        (TimestamptzType(), "2026-11-26T11:00:00+01:00", "2026-11-26 10:00:00+00"),
        (TimestampType(), "2026-11-26T10:00", "2026-11-26 10:00:00"),
        (UUIDType(), "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        (BinaryType(), "\\x0AFF", "\\x0aff"),
        (BooleanType(), "true", "t"),
        (StringType(), "x", "x"),
        (DoubleType(), "nan", "NaN"),
        (FloatType(), "NaN", "NaN"),
        (DoubleType(), "inf", "Infinity"),
        (FloatType(), "-Infinity", "-Infinity"),
    ],
)
def test_a_value_is_known_whatever_text_of_it_was_given(kind: IcebergType, given: str, text: str) -> None:
    iceberg = Schema(NestedField(1, "a", kind), NestedField(2, "sid", StringType()))
    lake = schema.parse(iceberg.model_dump_json())
    found = row_key.parse([given], "eu", ("a",), (lake, iceberg), "shop.items")
    assert found.is_of({"a": text, "b": "any"})
    assert not any(found.is_of(other) for other in ({"a": None}, {"a": "another"}, {"b": text}, {"a": f"{text}9"}))


def test_the_blanks_of_a_char_need_not_be_given() -> None:
    iceberg = Schema(NestedField(1, "a", StringType()), NestedField(2, "b", StringType()))
    lake = schema.parse(iceberg.model_dump_json())

    def columns(oid: int, typmod: int) -> SourceColumns:
        found = {1: KnownColumn(number=1, names=("a",), type_oid=oid, typmod=typmod, field=1),
                 2: KnownColumn(number=2, names=("b",), type_oid=25, field=2)}  # fmt: skip
        return SourceColumns(oid=7, columns=found)

    padded = row_key.widths([columns(1042, 9), columns(1042, 9)], lake)
    assert padded == {"a": 5}
    assert row_key.widths([columns(1042, 9), columns(1042, 14)], lake) == {}
    assert row_key.widths([columns(1042, 9), columns(25, -1)], lake) == {}
    assert row_key.widths([columns(1042, -1)], lake) == {}
    for given in ("ä", "ä    "):
        found = row_key.parse([given, "b"], None, ("a", "b"), (lake, iceberg), "shop.items", padded)
        assert [value.as_py() for value in found.values] == ["ä    ", "b"]
        assert found.is_of({"a": "ä    ", "b": "b"})


def test_a_float_is_sought_by_files_as_they_have_it() -> None:
    iceberg = Schema(NestedField(1, "a", FloatType()))
    found = row_key.parse(["0.1"], None, ("a",), (schema.parse(iceberg.model_dump_json()), iceberg), "shop.items")
    assert isinstance(found.condition, EqualTo)
    assert found.condition.literal.value == struct.unpack("<f", struct.pack("<f", 0.1))[0]


@pytest.mark.parametrize("kind", [FloatType(), DoubleType()])
def test_what_is_no_number_is_a_key_as_well(kind: IcebergType) -> None:
    iceberg = Schema(NestedField(1, "a", kind))
    lake = schema.parse(iceberg.model_dump_json()), iceberg

    def parsed(text: str) -> row_key.RowKey:
        return row_key.parse([text], None, ("a",), lake, "shop.items")

    assert parsed("NaN").condition == IsNaN(Reference("a"))
    endless = parsed("-Infinity").condition
    assert isinstance(endless, EqualTo)
    assert endless.literal.value == -math.inf
    assert not parsed("NaN").is_of({"a": "7.5"})
    assert not parsed("7.5").is_of({"a": "NaN"})


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (LongType(), "7.9"),
        (IntegerType(), "7.0"),
        (LongType(), "1_000"),
        (DecimalType(9, 2), "7.501"),
        (DecimalType(4, 2), "123.5"),
        (DecimalType(9, 2), "NaN"),
    ],
)
def test_no_other_row_is_taken_for_one_that_cannot_be(kind: IcebergType, text: str) -> None:
    with pytest.raises(ConfigError, match=f"no value of the type {re.escape(str(kind))}"):
        parse([text], "a", a=kind)


@pytest.mark.parametrize(
    ("given", "key", "message"),
    [
        (["7"], ("a", "b"), "table shop.items: --key 7 is no key: its key is (a, b)"),
        (["a=7"], ("a", "b"), "table shop.items: --key a=7 is no key: its key is (a, b)"),
        (["7"], (), "table shop.items: --key 7 is no key: it has no key: name columns"),
        (["x", "y"], ("a", "b"), "table shop.items, column a: --key x: no value of the type int"),
        (["9999999999", "y"], ("a", "b"), "table shop.items, column a: --key 9999999999: no value of the type int"),
    ],
)
def test_what_is_no_key_is_told(given: list[str], key: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError) as told:
        parse(given, *key, a=IntegerType(), b=StringType())
    assert told.value.message == message


def test_what_was_written_down_before_a_column_was_renamed_is_known() -> None:
    now = Schema(NestedField(1, "a2", LongType()), NestedField(2, "b", StringType()))
    before = Schema(NestedField(1, "a", IntegerType()))
    lake = schema.parse(now.model_dump_json())
    key = row_key.parse(["7", "x"], None, ("a2", "b"), (lake, now), "shop.items")
    assert not key.is_of({"a": "7", "b": "x"})
    key = dataclasses.replace(key, earlier=row_key.earlier_names([before, now], lake))
    assert key.earlier == {"a2": {"a"}}
    told = [key.is_of(one) for one in ({"a": "7", "b": "x"}, {"a2": "7", "b": "x"}, {"a": "8", "b": "x"}, {"a": "7"})]
    assert told == [True, True, False, False]


TYPED = Schema(NestedField(1, "a", LongType()), NestedField(2, "at", TimestampType()))


def test_what_is_no_value_of_its_column_is_the_text_of_a_rejected_row() -> None:
    lake = (schema.parse(TYPED.model_dump_json()), TYPED)
    key = row_key.parse(["7", "infinity"], None, ("a", "at"), lake, "shop.items", takes_misfits=True)
    assert (key.is_misfit, key.condition) == (True, AlwaysFalse())
    told = [key.is_of(one) for one in ({"a": "07", "at": "infinity"}, {"a": "7", "at": "-infinity"}, {"a": "7"})]
    assert told == [True, False, False]
    fitting = row_key.parse(["7", "2024-01-01"], None, ("a", "at"), lake, "shop.items", takes_misfits=True)
    assert not fitting.is_misfit
    assert not fitting.is_of({"a": "7", "at": "infinity"})


def test_a_key_of_which_not_all_is_known_may_be_it() -> None:
    both = Schema(NestedField(1, "a", LongType()), NestedField(2, "b", StringType()))
    key = row_key.parse(["7", "x" * 70_000], None, ("a", "b"), (schema.parse(both.model_dump_json()), both), "items")
    texts: list[dict[str, str | None]] = [
        {}, {"a": "7"}, {"a": "7", "b": "x" * 65_536 + "…"},
        {"a": "8"}, {"a": "7", "b": "x"}, {"a": "7", "b": "y…"}, {"a": "7", "b": None}, {"a": "7", "b": "x" * 70_000},
    ]  # fmt: skip
    assert [key.may_be_of(one) for one in texts] == [True] * 3 + [False] * 5
    assert [key.is_of(one) for one in texts] == [False] * 7 + [True]
