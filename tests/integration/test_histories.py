"""Many random histories of tables at once, over stops, deaths and commits that fail.

Values are never under a wrong column. What cannot be proved is copied again, or stops its table with a hint; a table
that follows has all that its source has. Many tables share one pipeline, so a history costs about a second. A hundred
are the same each time; as many more, and then `HISTORIES` others, are tried with the slow tests. As many are in
`unit/sync/watch/test_schema_watch.py`, without a server.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.history_batch import Batch, KilledBatch
from tests.support.lake import LakeFolder
from tests.support.postgres import Database, create_database, drop_database
from tests.support.process import Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

HISTORIES = int(os.environ.get("HISTORIES", "2000"))
#: Tables of one pipeline; a third of them are in two sources, and have a history in each.
TABLES = 75
#: Of one that ends in less than half a minute.
FEW = 18
BATCH = 100


@pytest.fixture
def sources(postgres18: Any, postgres16: Any) -> Iterator[dict[str, Database]]:
    made = {"eu": create_database(postgres18), "us": create_database(postgres16)}
    yield made
    for database in made.values():
        drop_database(database)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("seed", "tables"), [("always the same", FEW), pytest.param("and another one", TABLES, marks=pytest.mark.slow)]
)
def test_some_histories(sources: dict[str, Database], lake_folder: LakeFolder, seed: str, tables: int) -> None:
    batch = Batch(lake_folder, sources, seed, tables)
    batch.run()
    # Where the machine is slow, kuvasz looks less often, and more tables changed twice between two looks.
    assert len(batch.stopped) < tables, batch.stopped


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_histories_with_an_installed_kuvasz_that_is_killed(
    sources: dict[str, Database], lake_folder: LakeFolder, new_process: Callable[..., Process]
) -> None:
    KilledBatch(new_process([]), lake_folder, sources, "killed", TABLES, deaths=3).run()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(0, HISTORIES, BATCH))
def test_many_histories(sources: dict[str, Database], spark_session: object, first: int) -> None:
    seed = f"{first} {random.randrange(1 << 30)}"  # noqa: S311
    print(f"seed {seed}")
    folder = LakeFolder(spark_session, format_version=3 - first // BATCH % 2)
    Batch(folder, sources, seed, TABLES, deaths=3).run()
    folder.remove()
