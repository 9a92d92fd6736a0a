"""Random neglect of schemas per tenant; see `tests/support/neglect/tenancy` and `test_neglect`.

`make neglect MINUTES=10` draws new programs here, too.
"""

from __future__ import annotations

import contextlib
import os
import shutil

import pytest
from pyspark.sql import SparkSession

from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.sync import watches
from tests.support.lake import LakeFolder
from tests.support.neglect.seeds import try_all
from tests.support.neglect.tenancy import Tenancy
from tests.support.postgres import create_database, drop_database

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

SEEDS = (193154,)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at what the stream does not tell often, and try again soon."""
    monkeypatch.setattr(watches, "_PARTITIONS_S", 0.2)
    monkeypatch.setattr(watches, "PATROL_S", 0.5)
    monkeypatch.setattr("kuvasz.sync.context.requests._FIRST_RETRY_S", 2.0)


def run(server: EmbeddedPostgres, session: SparkSession, seed: int) -> None:
    lake, databases = LakeFolder(session), [create_database(server), create_database(server)]
    program = Tenancy(seed, *databases, lake)
    try:
        program.run()
    finally:
        print(f"\nseed {seed}:", *program.done, sep="\n  ")  # pytest shows it if it fails
        for database in databases:
            with contextlib.suppress(Exception):
                drop_database(database)
        shutil.rmtree(lake.folder, ignore_errors=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_neglected_tenants_come_back_right(
    postgres18: EmbeddedPostgres, spark_session: SparkSession, seed: int
) -> None:
    run(postgres18, spark_session, seed)


@pytest.mark.skipif("NEGLECT" not in os.environ, reason="make neglect")
@pytest.mark.timeout(0)
def test_new_neglect_of_tenants_for_some_minutes(postgres18: EmbeddedPostgres, spark_session: SparkSession) -> None:
    try_all(lambda seed: run(postgres18, spark_session, seed))
