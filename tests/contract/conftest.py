"""What the contracts of both lakes share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.worlds import IcebergWorld, MemoryWorld, World


@pytest.fixture(params=["memory", "memory, a row a chunk", pytest.param("iceberg", marks=pytest.mark.spark)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Each lake in turn."""
    if request.param == "iceberg":
        made: World = IcebergWorld(request.getfixturevalue("lake_folder"))
    else:
        made = MemoryWorld(8 << 20 if request.param == "memory" else 1)
    yield made
    made.lake.close()
