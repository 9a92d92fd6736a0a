"""Types on their way to Spark and back, and names as Spark finds them; parsing is tried on Spark."""

from __future__ import annotations

import dataclasses

import pytest
from pyspark.sql import types as spark_types

from kuvasz.errors import ExpressionRefused
from kuvasz.lake.executors.analyzer import Analyzer, spark_type
from kuvasz.model import LakeType, ValueType
from tests.support.changes import ITEMS
from tests.support.wires import DATE, HSTORE, INT, LONG, STRING, TIMESTAMPTZ, UUID, array, decimal

ANALYZER = Analyzer(None, ITEMS, "map, items")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (INT, "int"), (LONG, "bigint"), (STRING, "string"), (UUID, "string"), (DATE, "date"),
        (TIMESTAMPTZ, "timestamp"), (decimal(12, 2), "decimal(12,2)"), (array(decimal(5, 1)), "array<decimal(5,1)>"),
        (HSTORE, "map<string,string>"),
    ],
)  # fmt: skip
def test_expressions_see_a_column_as(kind: ValueType, expected: str) -> None:
    assert spark_type(kind).simpleString() == expected


def test_every_type_of_the_lake_is_seen_somehow() -> None:
    nested = {LakeType.LIST, LakeType.DECIMAL}
    for kind in set(LakeType) - nested:
        assert spark_type(ValueType(kind=kind)) is not None


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (spark_types.ByteType(), ("int2", -1)), (spark_types.LongType(), ("int8", -1)),
        (spark_types.DecimalType(12, 2), ("numeric", (12 << 16 | 2) + 4)),
        (spark_types.ArrayType(spark_types.StringType()), ("_text", -1)),
        (spark_types.MapType(spark_types.StringType(), spark_types.StringType()), ("hstore", -1)),
        (spark_types.TimestampNTZType(), ("timestamp", -1)), (spark_types.TimestampType(), ("timestamptz", -1)),
    ],
)  # fmt: skip
def test_a_result_becomes_in_the_lake(kind: spark_types.DataType, expected: tuple[str, int]) -> None:
    found, typmod = ANALYZER.result(kind, "x", "set.x")
    assert (found.name, typmod) == expected


@pytest.mark.parametrize(
    ("kind", "told"),
    [(spark_types.NullType(), "gives only NULL"), (spark_types.StructType([]), "gives struct<>"),
     (spark_types.MapType(spark_types.StringType(), spark_types.LongType()), "gives map<string,bigint>"),
     (spark_types.ArrayType(spark_types.ArrayType(spark_types.LongType())), "gives array<array<bigint>>")],
)  # fmt: skip
def test_a_result_that_has_no_column_is_refused(kind: spark_types.DataType, told: str) -> None:
    with pytest.raises(ExpressionRefused) as caught:
        ANALYZER.result(kind, "f(x)", "set.x")
    assert caught.value.message == f"map, items, set.x: 'f(x)' {told}, which has no column in the lake: CAST it"


@pytest.mark.parametrize(("name", "found"), [("n", 1), ("BODY", 2), ("nn", None)])
def test_a_name_is_a_column_in_whatever_case(name: str, found: int | None) -> None:
    assert ANALYZER._find(name) == found


def test_of_names_that_differ_in_case_the_exact_one_is_meant() -> None:
    columns = (*ITEMS.columns, dataclasses.replace(ITEMS.columns[1], name="N"))
    analyzer = Analyzer(None, dataclasses.replace(ITEMS, columns=columns), "map")  # type: ignore[arg-type]
    assert (analyzer._find("n"), analyzer._find("N")) == (1, 3)
    columns = (*columns[:1], dataclasses.replace(columns[1], name="Ab"), dataclasses.replace(columns[1], name="aB"))
    assert Analyzer(None, dataclasses.replace(ITEMS, columns=columns), "map")._find("ab") is None  # type: ignore[arg-type]
