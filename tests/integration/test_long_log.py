"""The index of a log that has become long: what is done with it takes no longer than it may."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kuvasz.config.model import ClusterRole
from kuvasz.state.coordinator.store import CoordinatorStore
from kuvasz.state.staged import coordinated, log_groups, slice_removal
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


@pytest.fixture
def small_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kuvasz.state.staged.slice_removal.SLICES", 40)
    monkeypatch.setattr("kuvasz.state.staged.slice_removal.OBJECTS", 30)


def slices(database: Database) -> int:
    ((count,),) = database.execute("SELECT count(*) FROM kuvasz.log_slice")
    return count


def test_the_objects_of_a_long_log_are_listed(database: Database, index: CoordinatedIndex) -> None:
    """As whoever stages does when it begins."""
    stage(database, SLICES)
    assert len(index.objects()) == SLICES


def test_what_is_needed_is_found_whatever_is_staged(database: Database, index: CoordinatedIndex) -> None:
    stage(database, SLICES)
    assert sorted(index.needed()) == sorted(map(str, range(1, SLICES + 1)))[:1000]
    database.execute("UPDATE kuvasz.log_slice SET object = CASE WHEN last < 100000 THEN 'a' ELSE 'b' END")
    with database.connect(autocommit=True) as session:
        session.execute("VACUUM ANALYZE kuvasz.log_slice")
        session.execute("SET enable_seqscan = off")
        plan = "EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) " + coordinated._NEEDED
        ((found,),) = session.execute(plan, {"cluster": "tests", "most": 1000}).fetchall()
    assert list(index.needed()) == ["a", "b"]
    assert most_rows(found[0]["Plan"]) < 10, "of 120,000 slices in two objects"


def most_rows(plan: dict[str, Any]) -> float:
    """Return the most rows that a step of a plan has read."""
    mine = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
    return max([mine, *(most_rows(one) for one in plan.get("Plans", ()))])


@pytest.mark.parametrize(("after", "first"), [pytest.param(0, 59_991, marks=pytest.mark.slow), (59_995, 59_996)])
def test_a_stream_begins_at_once_behind_much_that_another_group_lacks(
    database: Database, index: CoordinatedIndex, monkeypatch: pytest.MonkeyPatch, after: int, first: int
) -> None:
    """By the LSNs of all sources together half of this one's slices lie behind where its lake is."""
    stage(database, 60_000)
    database.execute(
        "INSERT INTO kuvasz.log_slice (cluster, source, last, first, through, is_open, object, at, size)"
        " SELECT 'tests', 's' || i % 10, i, i, 1000000 + i, false, i::text, 0, 1 FROM generate_series(1, 60000) i"
    )
    database.execute("ANALYZE kuvasz.log_slice")
    told: list[float] = []

    class Explained(psycopg.Connection[Any]):
        def execute(self, query: Any, *parameters: Any, **options: Any) -> Any:
            if "FROM kuvasz.log_slice" in str(query):
                plan = f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) {query}"
                ((found,),) = super().execute(plan, *parameters, **options).fetchall()
                told.append(most_rows(found[0]["Plan"]))
            return super().execute(query, *parameters, **options)

    @contextlib.contextmanager
    def session(_: str) -> Iterator[Explained]:
        with Explained.connect(database.url, autocommit=True) as connection:
            yield connection

    monkeypatch.setattr(index._database, "session", session)
    found = index.slices("eu", after, through=59_991, most=5)
    assert [one.last for one in found] == list(range(first, first + 5))
    assert len(told) == 1
    assert told[0] < 100, "of 60,000"


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


def test_a_log_of_which_all_may_go_gets_shorter_with_each_round(
    database: Database, index: CoordinatedIndex, small_rounds: None
) -> None:
    """Its lake was away for a day, or a group of it is retired: one statement for all would take too long."""
    stage(database, 100)
    rounds = [index.applied({"eu": 500})]
    left = [slices(database)]
    while not rounds[-1].is_all:
        rounds.append(index.applied({}, rounds[-1].names))
        left.append(slices(database))
    assert left[:3] == [60, 20, 0]
    assert sorted({name for one in rounds for name in one.names}) == sorted(map(str, range(1, 101)))
    index.applied({}, rounds[-1].names)
    assert not index.objects(), "what is gone is known no more"


def test_what_nobody_needs_is_found_behind_many_objects_that_are_needed(
    database: Database, index: CoordinatedIndex, small_rounds: None
) -> None:
    stage(database, 100)
    database.execute("INSERT INTO kuvasz.log_object (cluster, name) VALUES ('tests', 'unneeded')")
    rounds = [index.applied({}) for _ in range(5)]
    assert [one.names for one in rounds] == [[], [], [], ["unneeded"], []]
    assert [one.is_all for one in rounds] == [False, False, False, True, False], "from the first one again"


def test_each_of_two_that_shorten_goes_by_what_the_other_one_is_at(
    database: Database, index: CoordinatedIndex, small_rounds: None
) -> None:
    stage(database, 100)
    with database.connect() as other:
        other.execute("SELECT FROM kuvasz.log_slice WHERE last < 11 FOR UPDATE")
        index.applied({"eu": 500})
        assert slices(database) == 60
    ((first,),) = database.execute("SELECT min(last) FROM kuvasz.log_slice WHERE last > 10")
    assert first == 51


def test_how_far_groups_are_takes_as_long_as_with_a_short_log(database: Database, tmp_path: Path) -> None:
    """Two seconds of a lease are half a second for an answer."""
    stores = [
        CoordinatorStore(lambda: database.url, "tests", tmp_path / str(group), 2.0, group)
        for group in (None, "blue", "old")
    ]
    for store in stores:
        store._lease.role = ClusterRole.APPLY
        assert store._lease.take("applies", "") is None
        store.log_index.open()
        store.log_index.begin_anew("eu", 1)
    stage(database, SLICES)
    found = stores[0].log_groups.all()
    assert [(one.name, one.objects) for one in found] == [("blue", SLICES), ("old", SLICES)]
    for query in (log_groups._GROUPS, slice_removal._DROP):
        given = {
            "cluster": "tests", "groups": "tests/group/", "applies": "/apply/", "most": 10, "slices": 10,
        }  # fmt: skip
        plan = "\n".join(line for (line,) in database.execute(f"EXPLAIN {query}", given))
        assert "Seq Scan on log_slice" not in plan, plan
        assert "log_slice_through" in plan, plan
    for store in stores:
        store._database.close()
