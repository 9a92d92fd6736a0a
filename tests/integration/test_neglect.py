"""Random neglect: tables paused, renamed, unmapped, unpublished, changed; never streaming with a difference.

Each program draws steps that happen to a source, its publication, the map, the lake and kuvasz itself, and writes
between them (`tests/support/neglect`). Some programs have a server of their own, which is put back to a backup or
promoted at its state. Whenever every table streams, the lake has to become what the source is; at the end every table
has to stream, after what the hints of those that stopped say. An error with a hint is no failure, silence with a
difference is one. Tables that keep the past may lack what they say that they lack, and nothing else.

`make test-all` runs a few seeds, always the same, and `make test` one of tenants. `make neglect MINUTES=10` draws new
ones for as long, and `make neglect SEED=7` runs one again; a failure prints its seed and its steps.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from tests.support.neglect.program import run
from tests.support.neglect.seeds import try_all

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

SEEDS = (3, 19, 22)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at what the stream does not tell often, and try again soon."""
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 0.5)
    monkeypatch.setattr("kuvasz.worker.lake_patrol.PATROL_S", 2.0)
    monkeypatch.setattr("kuvasz.sync.context.requests._FIRST_RETRY_S", 2.0)


# Slow: test_neglect_tenants.py has programs like these with each run, test_accounted_for.py what they draw.
@pytest.mark.timeout(1200)
@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_neglected_tables_come_back_right(
    postgres18: EmbeddedPostgres, spark_session: object, tmp_path: Path, seed: int
) -> None:
    run(postgres18, spark_session, seed, tmp_path)


@pytest.mark.skipif("NEGLECT" not in os.environ, reason="make neglect")
@pytest.mark.timeout(0)
def test_new_neglect_for_some_minutes(postgres18: EmbeddedPostgres, spark_session: object, tmp_path: Path) -> None:
    try_all(lambda seed: run(postgres18, spark_session, seed, tmp_path))
