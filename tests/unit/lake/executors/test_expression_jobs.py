from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from kuvasz.errors import DecodeError, LakeError
from kuvasz.lake.executors import expression_jobs
from kuvasz.lake.executors.tasks import ApplyChunks, ChunkDone, ChunkTask, SpoolSlice
from kuvasz.model import LakeType, TableName, ValueType, Wire
from kuvasz.modes.row_rules import Computed, Input, Transform
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


@pytest.mark.parametrize(
    ("kind", "checked"),
    [
        (INT, "(x)"),
        (ValueType(kind=LakeType.STRING), "validate_utf8((x))"),
        (ValueType(kind=LakeType.LIST, element=INT), "(x)"),
        (ValueType(kind=LakeType.LIST, element=ValueType(kind=LakeType.STRING)),
         "transform((x), e -> validate_utf8(e))"),
        (ValueType(kind=LakeType.MAP),
         "transform_values(transform_keys((x), (k, v) -> validate_utf8(k)), (k, v) -> validate_utf8(v))"),
    ],
)  # fmt: skip
def test_texts_that_expressions_give_are_looked_at(kind: ValueType, checked: str) -> None:
    item = Computed(name="c", text="x", inputs=(), type=kind)
    selected = dict(map(reversed, expression_jobs._selected(Transform(place="", computed=(item,)))))
    assert selected["c0"] == f"CASE WHEN __kvsz_whole0 THEN {checked} END"


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


def test_an_expression_that_fails_is_told_of_its_source_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody but the job says that one failed: halves of the sources are tried until it is known for whom."""
    names = [f"s{number}" for number in range(16)]
    job = ApplyChunks(shapes=tuple(map(shape, names)), bounded=((),) * 16, layouts=(), properties={})
    tasks = [
        (n, ChunkTask(shape=n % 16, count=1, lengths=None, data=None, path=f"/t/kvsz-{n}-0.parquet", order=n))
        for n in range(20)
    ]
    paths: list[str] = []

    def run(
        _session: object, _transform: object, count: int, read: Any, _write: object
    ) -> list[tuple[int, ChunkDone]]:
        paths.extend(task.path for task in read.tasks)
        if any(task.shape in {3, 9} for task in read.tasks):
            raise DecodeError("an expression fails")
        return [(place, ChunkDone(order=read.tasks[place].order)) for place in range(count)]

    monkeypatch.setattr(expression_jobs, "_run", run)
    removed: list[str] = []
    monkeypatch.setattr(expression_jobs, "remove", lambda _, files: removed.extend(files))
    done = dict(expression_jobs.apply_chunks(None, job, tasks))
    assert {number for number, one in done.items() if one.error is not None} == {3, 9, 19}
    assert all(one.order == number for number, one in done.items() if one.error is None)
    assert len(paths) == len(set(paths)), "tasks of a job that failed may still be writing"
    assert len(removed) == len(paths) - 17


def test_a_spool_that_cannot_be_read_is_told_of_its_chunk_and_ends_no_job(tmp_path: Path) -> None:
    slices = [SpoolSlice(path=str(tmp_path / "gone"), offset=0, size=4)] * 2
    task = ChunkTask(shape=0, count=1, lengths=slices[0], data=slices[1], path="", order=1)
    job = ApplyChunks(shapes=(shape("eu"),), bounded=((),), layouts=(), properties={})
    places = pa.RecordBatch.from_arrays([pa.array([0])], names=["id"])
    (control,) = expression_jobs._ReadChunks(job, (task,))([places])
    facts = pickle.loads(control.column(0)[0].as_py())
    assert (facts["place"], type(facts["error"])) == (0, LakeError)
    assert facts["error"].message.startswith("cannot read spooled changes: [Errno 2] No such file")


@pytest.mark.parametrize(
    ("state", "error"), [("22012", DecodeError), ("23505", DecodeError), ("P0001", DecodeError), ("XX000", LakeError)]
)
def test_what_lies_in_the_data_is_not_tried_again(state: str, error: type[Exception]) -> None:
    """A division by zero, a map with one key twice, and what `raise_error` says."""

    class Refused(PySparkException):
        def __str__(self) -> str:
            return "it fails"

        def getSqlState(self) -> str:  # noqa: N802
            return state

        def getCondition(self) -> str:  # noqa: N802
            return "WRONG"

    class Session:
        def range(self, *_: int) -> object:
            raise Refused("it fails")

    with pytest.raises(error, match="it fails"):
        expression_jobs.read_changes(Session(), shape("eu"), b"", np.empty(0, np.uint32), lambda _: None)  # type: ignore[arg-type]
