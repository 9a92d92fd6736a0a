"""What the contracts of both lakes share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.local_lake import LocalWorld
from tests.support.worlds import IcebergWorld, MemoryWorld, SqliteWorld, World


@pytest.fixture(
    params=[
        "memory", "memory, a row a chunk", "an example, SQLite", "iceberg, without Spark",
        pytest.param("iceberg", marks=pytest.mark.spark),
    ]
)  # fmt: skip
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Each lake in turn; unit tests stand on the one without Spark, so it is held to the same."""
    if request.param == "iceberg":
        made: World = IcebergWorld(request.getfixturevalue("lake_folder"))
    elif request.param == "iceberg, without Spark":
        made = LocalWorld(request.getfixturevalue("tmp_path"))
    elif request.param == "an example, SQLite":
        made = SqliteWorld(request.getfixturevalue("tmp_path") / "lake.db")
    else:
        made = MemoryWorld(8 << 20 if request.param == "memory" else 1)
    yield made
    made.lake.close()
