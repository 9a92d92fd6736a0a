"""The index of a log that has become long: what is done with it takes no longer than it may."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kuvasz.state.coordinator.store import CoordinatorStore
from kuvasz.state.staged.coordinated import CoordinatedIndex
from tests.support.postgres import Database

pytestmark = pytest.mark.postgres

#: More than are listed at a time.
SLICES = 120_000


@pytest.fixture
def index(database: Database, tmp_path: Path) -> Iterator[CoordinatedIndex]:
    store = CoordinatorStore(lambda: database.url, "tests", tmp_path, 2.0)
    assert store._lease.take("replicates", "") is None
    index = store.log_index
    index.open()
    index.begin_anew("eu", 1)
    yield index
    store._database.close()


def stage(database: Database, count: int) -> None:
    database.execute(
        "INSERT INTO kuvasz.log_slice (cluster, source, last, first, through, is_open, object, at, size)"
        " SELECT 'tests', 'eu', i, i, 1 + i, false, i::text, 0, 1 FROM generate_series(1, %s) i",
        (count,),
    )
    query = "INSERT INTO kuvasz.log_object (cluster, name) SELECT 'tests', i::text FROM generate_series(1, %s) i"
    database.execute(query, (count,))
    for table in ("log_slice", "log_object"):
        database.execute(f"ANALYZE kuvasz.{table}")  # as the server does, a minute later


def slices(database: Database) -> int:
    ((count,),) = database.execute("SELECT count(*) FROM kuvasz.log_slice")
    return count


def test_the_objects_of_a_long_log_are_listed(database: Database, index: CoordinatedIndex) -> None:
    """As whoever stages does when it begins."""
    stage(database, SLICES)
    assert len(index.objects()) == len(index.needed()) == SLICES


@pytest.mark.parametrize(
    "write", [lambda index: index.begin_anew("eu", 500), lambda index: index.forget("eu")], ids=["anew", "forgotten"]
)
def test_to_forget_all_of_a_source_may_take_longer_than_an_answer(
    database: Database, index: CoordinatedIndex, write: Callable[[CoordinatedIndex], None]
) -> None:
    """Millions are forgotten at once, for none of them may be left of another past."""
    stage(database, 100)
    database.execute(
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1); RETURN NULL; END $$"
    )
    database.execute("CREATE TRIGGER wait AFTER DELETE ON kuvasz.log_slice EXECUTE FUNCTION public.wait()")
    write(index)
    assert slices(database) == 0
