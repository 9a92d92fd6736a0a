"""The map changes while kuvasz runs and rows keep changing: the lake is what the sources are, all the time after."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kuvasz.config.load import load
from kuvasz.errors import ConfigError, MapBusy
from kuvasz.state.tables import State
from kuvasz.sync.rules.map_difference import MapDifference
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database, create_database, drop_database
from tests.support.two_tables import EU, ITEMS, OTHERS, US, confirmed, fill, lake_counts, wait_let_go
from tests.support.two_tables import load as changes
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

BOTH = {"items": None, "others": None}


@pytest.fixture
def second(postgres16) -> Iterator[Database]:
    created = create_database(postgres16)
    yield created
    drop_database(created)


class World:
    """A running kuvasz and its map."""

    def __init__(
        self, folder: LakeFolder, databases: Mapping[str, Database], tables: Mapping[str, Any], **pipeline: Any
    ) -> None:
        self.folder = folder
        self._options = pipeline
        self.pipeline = Pipeline(folder.config(group(databases, tables), **pipeline), folder)

    def reload(self, databases: Mapping[str, Database], tables: Mapping[str, Any], **more: Any) -> MapDifference:
        """Take another map over, and return when it is in use."""
        self.folder.config([group(databases, tables)[0] | more], **self._options)
        return self.pipeline.take_over()

    def assert_equal(self, databases: Mapping[str, Database], *tables: str, where: str = "true") -> None:
        """The lake has what the sources have, by Spark and by a second and a third engine."""
        self.pipeline.wait_applied(*databases.values())
        for table in tables:
            rows = [source_rows(one.url, table, sid=sid, where=where) for sid, one in databases.items()]
            self.pipeline.assert_equal(table, *rows, key=("sid", "id"))


@contextlib.contextmanager
def running(
    folder: LakeFolder, databases: Mapping[str, Database], tables: Mapping[str, Any], **pipeline: Any
) -> Iterator[World]:
    world = World(folder, databases, tables, **pipeline)
    with world.pipeline as pipeline:
        pipeline.wait_streaming()
        yield world


# Slow: acceptance/test_live_map.py has a process take it up.
@pytest.mark.slow
def test_a_source_is_added_and_the_others_stream_on(
    database: Database, second: Database, lake_folder: LakeFolder
) -> None:
    for source in (database, second):
        fill(source)
    eu, both = {"eu": database}, {"eu": database, "us": second}
    with running(lake_folder, eu, BOTH) as world, changes(database, second):
        epoch = world.pipeline.app.sync(EU).reader.epoch
        found = world.reload(both, BOTH)
        assert ([one.name for one in found.added], found.removed, found.changed) == ([US], (), ())
        world.pipeline.wait_streaming()
        assert world.pipeline.app.sync(EU).reader.epoch == epoch, "its connection is the one it had"
        assert [sync.source.name for sync in world.pipeline.app.sources] == [EU, US]
        time.sleep(1)
    # The load has ended: what is there is there for good.
    with running(lake_folder, both, BOTH) as world:
        world.assert_equal(both, "items", "others")


def test_a_source_is_removed_and_comes_back(database: Database, second: Database, lake_folder: LakeFolder) -> None:
    for source in (database, second):
        fill(source)
    eu, both = {"eu": database}, {"eu": database, "us": second}
    with running(lake_folder, both, BOTH) as world:
        with changes(database, second):
            epoch = world.pipeline.app.sync(EU).reader.epoch
            found = world.reload(eu, BOTH)
            assert ([one.name for one in found.removed], found.added, found.changed) == ([US], (), ())
            assert [one.name for one in world.pipeline.app.released] == [US]
            assert {source for source, _ in world.pipeline.states()} == {EU}
            stands = confirmed(second)
            time.sleep(1)
            assert confirmed(second) == stands, "nobody reads it, and nothing is confirmed"
            assert world.pipeline.app.sync(EU).reader.epoch == epoch
            assert lake_counts(world.pipeline, "items", "sid = 'us'") == 1000, "its rows stay"
            second.execute("DELETE FROM items WHERE id > 900")
            world.reload(both, BOTH)
            assert not world.pipeline.app.released
            world.pipeline.wait_streaming()
            time.sleep(0.5)
        world.assert_equal(both, "items", "others")
        assert [world.pipeline.app.states.get(table, US).copies for table in (ITEMS, OTHERS)] == [0, 0], "none again"


def test_a_source_that_is_removed_for_good_has_nothing_of_ours(
    database: Database, second: Database, lake_folder: LakeFolder
) -> None:
    for source in (database, second):
        fill(source, 10)
    eu, both = {"eu": database}, {"eu": database, "us": second}
    with running(lake_folder, both, BOTH) as world:
        file = lake_folder.folder / "map.yaml"
        lake_folder.config(group(eu, BOTH))
        file.write_text(json.dumps(json.loads(file.read_text()) | {"map": {"drop_removed": True}}))

        async def take_over() -> None:
            world.pipeline.app.take_over(world.pipeline.app.difference(load(file, {}).config))

        world.pipeline.call(take_over())
        wait_until(lambda: not world.pipeline.app._sources.is_changing, "the map is in use")
        assert not world.pipeline.app.released
        assert second.execute("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()") == []
        assert second.execute("SELECT pubname FROM pg_publication") == []


def test_a_source_gets_another_name(database: Database, lake_folder: LakeFolder) -> None:
    """The one that comes copies the rows by their sid: nothing of the one that goes may come after that."""
    fill(database)
    eu = {"eu": database}
    with running(lake_folder, eu, BOTH) as world:
        with changes(database):
            found = world.reload(eu, BOTH, database="store")
            assert ([one.name for one in found.removed], [one.name for one in found.added]) == ([EU], ["store_eu"])
            assert [one.name for one in world.pipeline.app.released] == [EU]
            world.pipeline.wait_streaming()
            time.sleep(0.5)
        world.assert_equal(eu, "items", "others")


@pytest.mark.slow
def test_a_table_goes_to_another_source_and_back(
    database: Database, second: Database, lake_folder: LakeFolder
) -> None:
    """Each finds the rows of the other one, in the place of those that its position speaks of."""
    fill(database)
    fill(second, 1500)
    second.execute("UPDATE items SET n = -1")
    one, other = {None: database}, {None: second}
    with running(lake_folder, one, {"items": None}) as world:
        for databases, name in ((other, "store"), (one, "shop"), (other, "store"), (one, "shop")):
            with changes(database, second):
                world.reload(databases, {"items": None}, database=name)
                world.pipeline.wait_streaming()
                time.sleep(0.5)
            world.pipeline.wait_applied(*databases.values())
            world.pipeline.assert_equal("items", source_rows(databases[None].url, "items"))


# Slow: append tables write as changelogs do, without a kind.
@pytest.mark.parametrize("kind", [pytest.param("append", marks=pytest.mark.slow), "changelog"])
def test_a_source_gets_another_name_and_back_and_nothing_is_there_twice(
    database: Database, lake_folder: LakeFolder, kind: str
) -> None:
    fill(database, 10)
    one, tables = {None: database}, {"items": {"type": kind}, "others": None}
    with running(lake_folder, one, tables) as world:
        world.pipeline.wait_applied(database)
        world.reload(one, tables, database="store")
        world.pipeline.wait_streaming()
        database.execute("INSERT INTO items VALUES (11, 5)")
        world.pipeline.wait_applied(database)
        world.reload(one, tables)
        world.pipeline.wait_state("shop", ITEMS, State.ERROR)
        world.pipeline.wait_state("shop", OTHERS, State.STREAMING)
        (told,) = world.pipeline.errors()
        assert f"are lost, and a table of type {kind} cannot be compared with its source" in told
        assert lake_counts(world.pipeline, "items", "id = 11") == 1
        world.pipeline.tell("resync", ITEMS, "shop")
        world.pipeline.wait_streaming()
        world.pipeline.wait_applied(database)
        assert lake_counts(world.pipeline, "items") == 11
        assert lake_counts(world.pipeline, "items", "id = 11") == 1


# Slow: acceptance/test_live_map.py has a process take it up.
@pytest.mark.slow
def test_a_table_is_added(database: Database, second: Database, lake_folder: LakeFolder) -> None:
    for source in (database, second):
        fill(source)
    both = {"eu": database, "us": second}
    with running(lake_folder, both, {"items": None}) as world:
        with changes(database, second):
            found = world.reload(both, BOTH)
            assert [one.describe() for one in found.changed] == ["added others"] * 2
            world.pipeline.wait_streaming()
            time.sleep(0.5)
        world.assert_equal(both, "items", "others")
        assert [world.pipeline.app.states.get(ITEMS, one).copies for one in (EU, US)] == [1, 1], "as counted before"


# Slow: acceptance/test_live_map.py has a process do so.
@pytest.mark.slow
def test_a_table_is_removed_and_comes_back_with_what_happened_meanwhile(
    database: Database, lake_folder: LakeFolder
) -> None:
    fill(database)
    eu = {"eu": database}
    with running(lake_folder, eu, BOTH) as world:
        with changes(database):
            world.reload(eu, {"items": None})
            world.pipeline.wait_streaming()
            database.execute("DELETE FROM others WHERE id > 900")
            database.execute("INSERT INTO others SELECT i, 7 FROM generate_series(2001, 2100) i")
            assert lake_counts(world.pipeline, "others") == 1000
            world.reload(eu, BOTH)
            world.pipeline.wait_streaming()
            time.sleep(0.5)
        world.assert_equal(eu, "items", "others")
        assert lake_counts(world.pipeline, "others", "n = 7") == 100


def test_a_filter_changes_and_rows_are_as_it_says(
    database: Database, second: Database, lake_folder: LakeFolder
) -> None:
    for source in (database, second):
        fill(source)
    both = {"eu": database, "us": second}
    with running(lake_folder, both, BOTH) as world:
        with changes(database, second):
            found = world.reload(both, BOTH | {"items": {"filter": "id % 2 = 0"}})
            assert [one.describe() for one in found.changed] == ["changed items"] * 2
            world.pipeline.wait_streaming()
            time.sleep(0.5)
        world.assert_equal(both, "items", where="id % 2 = 0")
        world.assert_equal(both, "others")


def test_an_expression_that_does_not_fit_stops_its_table_alone(database: Database, lake_folder: LakeFolder) -> None:
    fill(database)
    eu = {"eu": database}
    with running(lake_folder, eu, BOTH) as world:
        world.reload(eu, BOTH | {"items": {"filter": "nothing > 1"}})
        world.pipeline.wait_state(EU, ITEMS, State.ERROR)
        world.pipeline.wait_state(EU, OTHERS, State.STREAMING)
        database.execute("UPDATE items SET n = 5")
        world.reload(eu, BOTH)
        world.pipeline.wait_streaming()
        world.assert_equal(eu, "items", "others")


def test_what_is_parked_of_a_paused_table_stays_over_a_change_and_is_replayed(
    database: Database, lake_folder: LakeFolder
) -> None:
    fill(database)
    eu = {"eu": database}
    with running(lake_folder, eu, {"items": None}) as world:
        app = world.pipeline.app
        world.pipeline.tell("pause", ITEMS, EU)
        database.execute("UPDATE items SET n = 5 WHERE id <= 500")
        wait_until(app.lot.views, "it is parked")
        with changes(database):
            world.reload(eu, BOTH)
            world.pipeline.wait_state(EU, OTHERS, State.STREAMING)
            assert app.states.get(ITEMS, EU).state is State.PAUSED
            assert lake_counts(world.pipeline, "items", "n = 5") == 0
            database.execute("DELETE FROM items WHERE id > 900")
            world.pipeline.tell("resume", ITEMS, EU)
            world.pipeline.wait_streaming()
        world.assert_equal(eu, "items", "others")
        assert app.states.get(ITEMS, EU).copies == 1, "it was not copied again"


def test_a_table_in_error_that_leaves_the_map_holds_nothing(database: Database, lake_folder: LakeFolder) -> None:
    fill(database)
    eu = {"eu": database}
    with running(lake_folder, eu, BOTH, park_bytes=0) as world:
        pipeline = world.pipeline
        database.execute("UPDATE items SET at = 'infinity' WHERE id = 1")
        pipeline.wait_state(EU, ITEMS, State.ERROR)
        with changes(database):
            time.sleep(0.5)
            stands = confirmed(database)
            time.sleep(1)
            assert confirmed(database) == stands, "what it lacks is needed"
            world.reload(eu, {"others": None})
            pipeline.wait_streaming()
        world.assert_equal(eu, "others")
        wait_let_go(database)
        assert not pipeline.app.progress.held(EU)
        database.execute("UPDATE items SET at = NULL WHERE id = 1")
        world.reload(eu, BOTH)
        pipeline.wait_streaming()
        world.assert_equal(eu, "items", "others")


# Slow: test_layout.py has other layouts from start to start, and other changes are taken over here.
@pytest.mark.slow
def test_a_table_is_laid_out_otherwise_and_its_rows_stay(
    database: Database, second: Database, lake_folder: LakeFolder
) -> None:
    for source in (database, second):
        fill(source)
    both = {"eu": database, "us": second}
    with running(lake_folder, both, BOTH) as world, changes(database, second):
        app = world.pipeline.app
        for options in (
            {"partition_by": ["bucket(4, id)"], "sort_by": ["n desc"], "properties": {"owner": "ann"}},
            {"partition_by": ["sid"], "maintenance": {"target_file_size": "2MB"}},
        ):
            found = world.reload(both, BOTH | {"items": options})
            assert [one.describe() for one in found.changed] == ["changed items"] * 2
            before = world.pipeline.snapshots("items")
            wait_until(lambda: world.pipeline.snapshots("items") > before + 3, "it is committed on")  # noqa: B023
        table = app.lake.table(ITEMS)
        assert table.table.layout.read().partition == table.definition.layout.partition
        assert [term.column for term in table.definition.layout.partition] == ["sid"]
        assert table.table.properties["owner"] == "ann"
        assert dict(table.target.maintenance)
        time.sleep(0.5)
        assert [app.states.get(ITEMS, one).copies for one in (EU, US)] == [1, 1], "nothing was copied again"
    with running(lake_folder, both, BOTH | {"items": {"partition_by": ["sid"]}}) as world:
        world.assert_equal(both, "items", "others")


@pytest.mark.parametrize(
    ("kind", "is_killed"), [("history", True), pytest.param("changelog", False, marks=pytest.mark.slow)]
)
def test_a_clone_becomes_a_table_of_another_type(
    database: Database, second: Database, lake_folder: LakeFolder, kind: str, *, is_killed: bool
) -> None:
    for source in (database, second):
        fill(source)
    both, other = {"eu": database, "us": second}, BOTH | {"items": {"type": kind}}
    begun = World(lake_folder, both, BOTH)
    begun.pipeline.__enter__()
    with changes(database, second):
        begun.pipeline.wait_streaming()
        table = begun.pipeline.app.lake.table(ITEMS).table
        found = begun.reload(both, other)
        assert [one.describe() for one in found.changed] == ["changed items"] * 2
        if not is_killed:
            begun.pipeline.wait_streaming()
            begun.pipeline.stop()
        else:
            wait_until(lambda: "kvsz_end" in columns_of(begun), "it is a history")
            begun.pipeline.die()
            shown = lake_counts(begun.pipeline, "items", "coalesce(kvsz_end, '9999-01-01') = '9999-01-01'")
            assert shown == 2000, "rows from before are there until others are"
    with running(lake_folder, both, other) as world:
        database.execute("DELETE FROM items WHERE id <= 10")
        second.execute("UPDATE items SET n = -1 WHERE id <= 10")
        world.pipeline.wait_applied(database, second)
        assert world.pipeline.app.lake.table(ITEMS).table.uuid == table.uuid, "it stayed"
        assert_shown(world, both, kind)
        world.assert_equal(both, "others")
        with pytest.raises(ConfigError, match=r"target shop\.items: type cannot change"):
            world.reload(both, BOTH)
        world.reload(both, {"others": None})
        world.folder.session.sql(f"DROP TABLE {lake_folder.catalog}.shop.items")
        world.reload(both, BOTH)
        world.pipeline.wait_streaming()
        world.assert_equal(both, "items")


def test_rows_of_two_sources_get_another_key(database: Database, second: Database, lake_folder: LakeFolder) -> None:
    both, keyed = {"eu": database, "us": second}, {"items": {"key": ["id"]}, "others": None}
    for source in both.values():
        fill(source)
        source.execute("ALTER TABLE items DROP CONSTRAINT items_pkey; ALTER TABLE items REPLICA IDENTITY FULL")
        source.execute("ALTER TABLE items ADD code text; UPDATE items SET code = 'c' || id")
    with running(lake_folder, both, keyed) as world, changes(database, second):
        app = world.pipeline.app
        world.reload(both, keyed | {"items": {"key": ["code"]}})
        world.pipeline.wait_streaming()
        assert app.lake.table(ITEMS).definition.key == ("code",)
        for source in both.values():
            source.execute("UPDATE items SET id = -id WHERE id <= 100")
        time.sleep(0.5)
    with running(lake_folder, both, keyed | {"items": {"key": ["code"]}}) as world:
        world.assert_equal(both, "items", "others")
        assert [world.pipeline.app.states.get(ITEMS, one).copies for one in (EU, US)] == [0, 0], "once was enough"


def columns_of(world: World) -> list[str]:
    name = f"{world.folder.catalog}.shop.items"
    world.folder.session.sql(f"REFRESH TABLE {name}")
    return world.folder.session.table(name).columns


def assert_shown(world: World, databases: Mapping[str, Database], kind: str) -> None:
    """What the table shows of each row last is what the sources have, and nothing of it is of the type before."""
    lake = f"{world.folder.catalog}.shop.items"
    last = {
        "history": f"SELECT sid, id, n FROM {lake} WHERE kvsz_end = '9999-01-01'",
        "changelog": f"SELECT sid, id, max_by(n, named_struct('l', _lsn, 'o', _ordinal)) FROM {lake}"
        " GROUP BY sid, id HAVING max_by(_op, named_struct('l', _lsn, 'o', _ordinal)) != 'D'",
    }[kind]
    world.folder.session.sql(f"REFRESH TABLE {lake}")
    found = sorted(map(tuple, world.folder.session.sql(last).collect()))
    there = [(sid, *row) for sid, one in databases.items() for row in one.execute("SELECT id, n FROM items")]
    assert found == sorted(there)
    own = {"history": "kvsz_start", "changelog": "_op"}[kind]
    assert lake_counts(world.pipeline, "items", f"{own} IS NULL") == 0


def test_the_map_changes_while_a_table_is_copied(
    database: Database, second: Database, lake_folder: LakeFolder
) -> None:
    for source in (database, second):
        fill(source)
    second.execute("INSERT INTO items SELECT i, 0, now() FROM generate_series(1001, 200000) i")
    eu, both = {"eu": database}, {"eu": database, "us": second}
    with running(lake_folder, eu, BOTH) as world, changes(database, second):
        world.reload(both, {"items": None})
        wait_until(lambda: world.pipeline.states().get((US, ITEMS)) is State.COPYING, "it is copied")
        world.reload(both, BOTH)
        world.pipeline.wait_streaming()
    with running(lake_folder, both, BOTH) as world:
        world.assert_equal(both, "items", "others")


@pytest.mark.slow
def test_the_map_changes_in_the_middle_of_large_transactions(
    database: Database, second: Database, lake_folder: LakeFolder
) -> None:
    for source in (database, second):
        fill(source)
    both = {"eu": database, "us": second}
    with running(lake_folder, both, BOTH, memory="4MB", transaction_spill_bytes="64kB") as world:
        app = world.pipeline.app
        for number, tables in enumerate(({"items": None}, BOTH, {"others": None}, BOTH)):
            for source in (database, second):
                begin = 10_000 + 20_000 * number
                source.execute(
                    f"INSERT INTO items SELECT i, {number} FROM generate_series({begin}, {begin + 19_999}) i"
                )
                source.execute(f"UPDATE others SET n = n + {number}")
            wait_until(lambda: app.progress.pending(EU) or app.progress.pending(US), "it is on its way")
            world.reload(both, tables)
        world.pipeline.wait_streaming()
        world.assert_equal(both, "items", "others")


def test_one_change_at_a_time(database: Database, second: Database, lake_folder: LakeFolder) -> None:
    for source in (database, second):
        fill(source, 10)
    both = {"eu": database, "us": second}
    with running(lake_folder, both, BOTH) as world:
        app = world.pipeline.app
        lake_folder.config(group({"eu": database}, BOTH))
        config = load(lake_folder.folder / "map.yaml", {}).config

        async def twice() -> None:
            app.take_over(app.difference(config))
            with pytest.raises(MapBusy):
                app.take_over(app.difference(config))

        world.pipeline.call(twice())
        wait_until(lambda: not app._sources.is_changing, "the map is in use")
        world.pipeline.wait_streaming()


def test_it_stops_at_once_while_the_map_changes(
    database: Database, second: Database, lake_folder: LakeFolder
) -> None:
    for source in (database, second):
        fill(source)
    both = {"eu": database, "us": second}
    with running(lake_folder, both, BOTH) as world, changes(database, second):
        app = world.pipeline.app
        lake_folder.config(group(both, {"items": None}))
        config = load(lake_folder.folder / "map.yaml", {}).config

        async def change() -> None:
            app.take_over(app.difference(config))

        world.pipeline.call(change())
        begin = time.monotonic()
        world.pipeline.stop()
        assert time.monotonic() - begin < 30
    with running(lake_folder, both, {"items": None}) as world:
        world.reload(both, BOTH)
        world.pipeline.wait_streaming()
        world.assert_equal(both, "items", "others")
