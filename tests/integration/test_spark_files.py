"""What Spark is given to do, rows, keys and passwords among it, is in no file of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kuvasz.lake.executors import expression_jobs
from kuvasz.lake.executors.jobs import Jobs
from kuvasz.model import LakeType, TableName, ValueType, Wire
from kuvasz.modes.row_rules import Evaluated, Input, Transform
from kuvasz.modes.shape import Shape
from tests.support.changes import insert
from tests.support.kept_files import KeptFiles
from tests.support.lake import LakeFolder
from tests.support.wires import joined

pytestmark = pytest.mark.spark

PLANTED = "Zq7Redactedx9V"


def folders(session: SparkSession) -> list[Path]:
    """Where Spark has files: what PySpark hands to it, and blocks."""
    context = session.sparkContext
    blocks = session._jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager().localDirsString()
    return [Path(context._temp_dir), *map(Path, blocks)]


class Echo:
    """A job that has rows in it, and gives back what its tasks have."""

    def __init__(self, rows: bytes) -> None:
        self._rows = rows

    def __call__(self, tasks):
        return [(len(self._rows), task) for task in tasks]


@pytest.mark.parametrize("size", [1, 100_000])
def test_jobs_and_their_tasks(lake_folder: LakeFolder, size: int) -> None:
    session = lake_folder.session
    rows = PLANTED.encode() * size  # what is large of a job is handed on by itself
    with KeptFiles(*folders(session)) as kept:
        for _ in range(5):
            done = Jobs(session).run(Echo(rows), [rows, rows], [1, 1])
            assert done == [(len(rows), rows)] * 2
        assert kept.words(PLANTED) == set(), kept.names()


def count(evaluated: Evaluated) -> int:
    return int(evaluated.keep.sum())


def test_changes_that_a_verify_has_evaluated(lake_folder: LakeFolder) -> None:
    session = lake_folder.session
    data, lengths = joined([insert(number, number % 4, PLANTED * 3) for number in range(50_000)])
    inputs = (Input(name="n", column=1, type=ValueType(kind=LakeType.INT, wire=Wire.INTEGER)),)
    shape = Shape(
        source="eu", table=TableName(schema="public", name="items"), sid="eu", column_count=3, bindings=(), key=(),
        seed=b"a" * 16, schema=pa.schema([]),
        transform=Transform(place="table items", inputs=inputs, filter="n > 1", filter_inputs=(0,)),
    )  # fmt: skip
    with KeptFiles(*folders(session)) as kept:
        found = expression_jobs.read_changes(session, shape, bytes(data), np.asarray(lengths, np.uint32), count)
        assert found == 25_000
        assert kept.words(PLANTED) == set(), kept.names()
