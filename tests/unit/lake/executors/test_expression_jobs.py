from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest

from kuvasz.lake.executors import expression_jobs
from kuvasz.lake.executors.tasks import ApplyChunks, ChunkTask
from kuvasz.model import LakeType, TableName, ValueType, Wire
from kuvasz.modes.row_rules import Input, Transform
from kuvasz.modes.shape import Shape

INT = ValueType(kind=LakeType.INT, wire=Wire.INTEGER)


def shape(source: str, *, table: str = "orders", seed: bytes = b"a" * 16, condition: str = "n > 1") -> Shape:
    place = f"source {source}, table public.{table}"
    inputs = (Input(name="n", column=1, type=INT),)
    return Shape(
        source=source, table=TableName(schema="public", name=table), sid=source, column_count=2, bindings=(), key=(),
        seed=seed, schema=pa.schema([]),
        transform=Transform(place=place, inputs=inputs, filter=condition, filter_inputs=(0,)),
    )  # fmt: skip


def grouped(*shapes: Shape) -> list[list[int]]:
    job = ApplyChunks(shapes=shapes, bounded=((),) * len(shapes), layouts=(), properties={})
    tasks = [(number, ChunkTask(shape=number, count=1, lengths=None, data=None, path="", order=number))
             for number in range(len(shapes))]  # fmt: skip
    return [[key for key, _ in group] for group in expression_jobs.groups(job, tasks)]


@pytest.mark.parametrize(("is_hidden", "why"), [(False, "[CAST] The value 'Jane'"), (True, "CAST_INVALID_INPUT")])
def test_what_the_lake_is_not_to_show_a_failed_expression_does_not_either(is_hidden: bool, why: str) -> None:
    transform = Transform(place="source eu, table public.orders", is_hidden=is_hidden)
    error = expression_jobs._failed(transform, "[CAST] The value 'Jane'", "CAST_INVALID_INPUT")
    assert error.message == f"source eu, table public.orders: an expression fails: {why}"


def test_all_sources_of_a_table_are_one_job() -> None:
    assert grouped(*(shape(f"s{number}") for number in range(50))) == [list(range(50))]


def test_tables_never_share_a_job() -> None:
    assert grouped(shape("eu"), shape("eu", seed=b"b" * 16), shape("us")) == [[0, 2], [1]]


def test_sources_whose_expressions_see_other_columns_have_a_job_of_their_own() -> None:
    other = shape("us")
    assert other.transform is not None
    wide = dataclasses.replace(INT, kind=LakeType.LONG)
    changed = dataclasses.replace(other.transform, inputs=(Input(name="n", column=1, type=wide),))
    assert grouped(shape("eu"), dataclasses.replace(other, transform=changed)) == [[0], [1]]
    assert grouped(shape("eu"), shape("eu", condition="n > 2")) == [[0], [1]]
