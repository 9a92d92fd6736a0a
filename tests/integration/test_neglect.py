"""Random neglect: tables paused, renamed, unmapped, unpublished, changed; never streaming with a difference.

Each program draws steps that happen to a source, its publication, the map, the lake and kuvasz itself, and writes
between them (`tests/support/neglect`). Some programs have a server of their own, which is put back to a backup or
promoted at its state. Whenever every table streams, the lake has to become what the source is; at the end every table
has to stream, after what the hints of those that stopped say. An error with a hint is no failure, silence with a
difference is one. Tables that keep the past may lack what they say that they lack, and nothing else.

The suite runs a few seeds, always the same. `make neglect MINUTES=10` draws new ones for as long, and `make neglect
SEED=7` runs one again; a failure prints its seed and its steps.
"""

from __future__ import annotations

import os
import random
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from tests.support.neglect.program import run

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

SEEDS = (3, 19, 22)


def wanted(what: str) -> Iterator[int]:
    """Return the seeds to try: those named, or new ones for some minutes."""
    if what.startswith("seed="):
        yield from map(int, what.removeprefix("seed=").split(","))
        return
    end = time.monotonic() + float(what) * 60
    while time.monotonic() < end:
        yield random.SystemRandom().randint(1, 10**6)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at what the stream does not tell often, and try again soon."""
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 0.5)
    monkeypatch.setattr("kuvasz.worker.lake_patrol.PATROL_S", 2.0)
    monkeypatch.setattr("kuvasz.sync.context.requests._FIRST_RETRY_S", 2.0)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", SEEDS)
def test_neglected_tables_come_back_right(
    postgres18: EmbeddedPostgres, spark_session: object, tmp_path: Path, seed: int
) -> None:
    run(postgres18, spark_session, seed, tmp_path)


@pytest.mark.skipif("NEGLECT" not in os.environ, reason="make neglect")
@pytest.mark.timeout(0)
def test_new_neglect_for_some_minutes(postgres18: EmbeddedPostgres, spark_session: object, tmp_path: Path) -> None:
    tried, failed = 0, []
    for seed in wanted(os.environ["NEGLECT"]):
        tried += 1
        began = time.monotonic()
        try:
            run(postgres18, spark_session, seed, tmp_path)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 (the others are tried all the same)
            failed.append(seed)
            traceback.print_exception(error, file=sys.stdout)
        print(f"seed {seed}: {time.monotonic() - began:.0f} s", flush=True)
    print(f"{tried} programs, {len(failed)} failed: {failed}")
    assert not failed
