"""Sources whose stream cannot be continued: told why, and copied again if the map or a person says so."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.source.reading.facts import ReaderState
from kuvasz.state.tables import State
from kuvasz.verbs import check, offline, plan
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import open_table, source_rows
from tests.support.postgres import Database, Server, create_database, drop_database
from tests.support.restore import Backup, Confirmations, times_lost
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

SLOT = "kuvasz_shop_eu"
TABLES = ("items", "others")


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    """A server of the test's own, to be stopped, limited and restored."""
    folder = Path(tempfile.mkdtemp(prefix="kuvasz-test-")) / "data"
    with Server(folder, settings={"max_slot_wal_keep_size": "16MB"}) as made:
        yield made


def fill(database: Database) -> None:
    for table in TABLES:
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, n int)")
        database.execute(f"INSERT INTO {table} SELECT i, 0 FROM generate_series(1, 100) i")


class Scene:
    """One source and its lake; kuvasz is started with one policy or the other."""

    def __init__(self, database: Database, folder: LakeFolder) -> None:
        self.database, self.folder = database, folder
        fill(database)

    def pipeline(self, policy: str = "stop", *tables: str) -> Pipeline:
        (databases,) = group({"eu": self.database}, dict.fromkeys(tables or TABLES))
        return Pipeline(self.folder.config([databases | {"on_slot_lost": policy}]), self.folder)

    def first_run(self) -> None:
        with self.pipeline() as pipeline:
            pipeline.wait_streaming()
            self.database.execute("UPDATE items SET n = 1 WHERE id < 20")
            pipeline.wait_applied(self.database)

    def change(self) -> None:
        self.database.execute("UPDATE items SET n = 2 WHERE id < 10")
        self.database.execute("DELETE FROM others WHERE id < 10")

    def told(self) -> str:
        """Start, and return the error it ends with."""
        with self.pipeline() as pipeline:
            wait_until(lambda: pipeline.exit_code is not None, f"kuvasz ends: {pipeline.errors()}")
            assert pipeline.exit_code == 5
            (error,) = pipeline.errors()
            return error

    def assert_cured(self) -> None:
        """With the other policy everything is copied again, and followed."""
        with self.pipeline("resync") as pipeline:
            pipeline.wait_streaming()
            self.database.execute("INSERT INTO items SELECT max(id) + 1, 7 FROM items")
            self.wait_equal(pipeline)
        with self.pipeline() as pipeline:
            pipeline.wait_streaming()

    def wait_equal(self, pipeline: Pipeline) -> None:
        pipeline.wait_applied(self.database)
        for table in TABLES:
            pipeline.assert_equal(table, source_rows(self.database.url, table, sid="eu"))


@pytest.fixture
def scene(database: Database, lake_folder: LakeFolder) -> Scene:
    return Scene(database, lake_folder)


def test_a_slot_advanced_behind_our_back(scene: Scene) -> None:
    scene.first_run()
    scene.change()
    # The tests' servers write WAL a moment after the commit, and a slot cannot pass what is written.
    is_written = "SELECT pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()"
    wait_until(lambda: scene.database.execute(is_written) == [(True,)], "the changes are written")
    scene.database.execute(f"SELECT pg_replication_slot_advance('{SLOT}', pg_current_wal_lsn())")
    error = scene.told()
    assert f"source shop_eu: slot {SLOT} was advanced by someone else: the changes between " in error
    assert "hint: copy the source again: kuvasz resync" in error
    scene.assert_cured()


def test_a_slot_dropped_while_nobody_looked(scene: Scene) -> None:
    scene.first_run()
    scene.change()
    scene.database.execute(f"SELECT pg_drop_replication_slot('{SLOT}')")
    assert f"source shop_eu: slot {SLOT} is gone: the changes between " in scene.told()
    scene.assert_cured()


def test_a_publication_dropped_while_streaming(scene: Scene) -> None:
    with scene.pipeline("resync") as pipeline:
        pipeline.wait_streaming()
        scene.database.execute(f"DROP PUBLICATION {SLOT}")
        scene.change()
        wait_until(lambda: pipeline.app.states.get("shop.items", "shop_eu").copies == 2, "it is copied again")
        pipeline.wait_streaming()
        scene.change()
        scene.wait_equal(pipeline)
    scene.database.execute(f"DROP PUBLICATION {SLOT}")
    assert f"publication {SLOT} was dropped: changes after " in scene.told()


# Slow: a stopped one is copied again by a person as well.
@pytest.mark.slow
def test_a_person_has_a_lost_source_copied_again_while_another_streams(
    scene: Scene, lake_folder: LakeFolder, postgres16
) -> None:
    other = create_database(postgres16)
    try:
        fill(other)
        config = lake_folder.config(group({"eu": scene.database, "us": other}, dict.fromkeys(TABLES)))
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_streaming()
        scene.change()
        scene.database.execute(f"SELECT pg_drop_replication_slot('{SLOT}')")
        with Pipeline(config, lake_folder) as pipeline:
            wait_until(lambda: pipeline.app.sync("shop_eu").is_lost, "eu is lost")
            pipeline.wait_state("shop_us", "shop.items", State.STREAMING)
            other.execute("UPDATE items SET n = 5")
            pipeline.tell("resync", "shop.items", "shop_eu")
            assert pipeline.app.sync("shop_eu").is_lost, "the other table would lack changes"
            pipeline.tell("resync", "shop.others", "shop_eu")
            pipeline.wait_streaming()
            scene.change()
            pipeline.wait_applied(scene.database, other)
            for table in TABLES:
                rows = [source_rows(d.url, table, sid=sid) for sid, d in (("eu", scene.database), ("us", other))]
                pipeline.assert_equal(table, *rows, key=("sid", "id"))
    finally:
        drop_database(other)


def test_a_slot_that_the_server_gave_up(server: EmbeddedPostgres, lake_folder: LakeFolder) -> None:
    scene = Scene(Database(server, "postgres"), lake_folder)
    scene.first_run()
    scene.change()
    for _ in range(6):
        scene.database.execute("SELECT pg_switch_wal()")
        scene.database.execute("CREATE TABLE wal AS SELECT repeat('x', 100) FROM generate_series(1, 10000)")
        scene.database.execute("DROP TABLE wal")
    with scene.database.connect(autocommit=True) as session:
        session.execute("CHECKPOINT")
    error = scene.told()
    assert f"slot {SLOT} cannot be used: " in error
    assert "wal_removed" in error or "max_slot_wal_keep_size" in error
    scene.assert_cured()


def test_an_older_backup_and_another_cluster(server: EmbeddedPostgres, lake_folder: LakeFolder) -> None:
    scene = Scene(Database(server, "postgres"), lake_folder)
    scene.first_run()
    backup = Backup(server)
    with scene.pipeline() as pipeline:
        pipeline.wait_streaming()
        scene.change()
        pipeline.wait_applied(scene.database)
    backup.put_back()
    backup.remove()
    error = scene.told()
    assert "source shop_eu: its WAL ends at " in error
    assert "an older backup was restored" in error
    scene.assert_cured()
    folder = Path(tempfile.mkdtemp(prefix="kuvasz-test-")) / "data"
    with Server(folder) as another:
        scene.database = Database(another, "postgres")
        fill(scene.database)
        error = scene.told()
        assert "answers, but table shop.items holds rows of cluster" in error
        scene.assert_cured()


def reconnect(pipeline: Pipeline) -> None:
    """Have the reader connect anew."""
    reader = pipeline.app.sync("shop_eu").reader
    epoch = reader.epoch
    pipeline._loop.call_soon_threadsafe(reader.rewind)
    wait_until(lambda: reader.epoch > epoch, "the reader connects anew")


def wait_heard(pipeline: Pipeline) -> None:
    """Wait until the reader has connected again."""

    def is_heard() -> bool:
        reader = pipeline.app.sync("shop_eu").reader
        return reader is not None and reader.facts.state is ReaderState.STREAMING and not pipeline.errors()

    wait_until(is_heard, "the source is heard again")


def write_wal(database: Database) -> None:
    """WAL that says nothing of a mapped table: keepalives confirm it."""
    database.execute("CREATE TABLE unmapped AS SELECT repeat('x', 100) FROM generate_series(1, 20000)")
    database.execute("DROP TABLE unmapped")


@pytest.mark.parametrize(
    ("policy", "is_applied"),
    [
        pytest.param("resync", False, id="resync-keepalives"),
        pytest.param("repair", True, id="repair-rows", marks=pytest.mark.slow),
        pytest.param("resync", True, id="resync-rows", marks=pytest.mark.slow),
        pytest.param("repair", False, id="repair-keepalives", marks=pytest.mark.slow),
    ],
)
def test_a_source_restored_while_it_streams_is_copied_once(
    server: EmbeddedPostgres,
    lake_folder: LakeFolder,
    caplog: pytest.LogCaptureFixture,
    policy: str,
    is_applied: bool,
) -> None:
    scene = Scene(Database(server, "postgres"), lake_folder)
    with scene.pipeline(policy) as pipeline:
        pipeline.wait_streaming()
        backup = Backup(server)
        wait_heard(pipeline)
        write_wal(scene.database)
        if is_applied:
            scene.change()
        pipeline.wait_applied(scene.database)
        with Confirmations(scene.database):
            backup.put_back()
            backup.remove()
            scene.database.execute("UPDATE items SET n = 5 WHERE id = 5")
            wait_until(lambda: times_lost(caplog) == 1, "it begins anew")
            wait_heard(pipeline)
            pipeline.wait_streaming()
            scene.database.execute("INSERT INTO items VALUES (1001, 1)")
            reconnect(pipeline)
            scene.database.execute("INSERT INTO items VALUES (1002, 2)")
            scene.wait_equal(pipeline)
            server.restart("immediate")
            scene.database.execute("INSERT INTO items VALUES (1003, 3)")
            wait_heard(pipeline)
            scene.wait_equal(pipeline)
        assert times_lost(caplog) == 1
        assert pipeline.app.states.get("shop.items", "shop_eu").copies == (2 if policy == "resync" else 1)
    with scene.pipeline(policy) as pipeline:
        pipeline.wait_streaming()
        scene.database.execute("INSERT INTO items VALUES (1004, 4)")
        scene.wait_equal(pipeline)
        assert times_lost(caplog) == 1
        assert not pipeline.app.states.get("shop.items", "shop_eu").copies, "its rows are of this past"


def test_an_older_backup_that_has_grown_beyond_what_the_lake_has(
    server: EmbeddedPostgres, lake_folder: LakeFolder
) -> None:
    scene = Scene(Database(server, "postgres"), lake_folder)
    scene.first_run()
    backup = Backup(server)
    with scene.pipeline() as pipeline:
        pipeline.wait_streaming()
        scene.change()
        pipeline.wait_applied(scene.database)
        end = scene.database.execute("SELECT pg_current_wal_insert_lsn()::text")[0]
    backup.put_back()
    backup.remove()
    scene.database.execute("UPDATE items SET n = 8 WHERE id > 90")
    while scene.database.execute("SELECT pg_current_wal_flush_lsn() <= %s::pg_lsn", end) == [(True,)]:
        write_wal(scene.database)
    error = scene.told()
    assert "source shop_eu: the lake has a transaction at " in error
    assert "that is not in its WAL: an older backup was restored" in error
    assert "hint: copy the source again: kuvasz resync" in error
    assert "the lake has a transaction at " in scene.told(), "nothing was confirmed behind it"
    scene.assert_cured()


@pytest.mark.parametrize(
    "is_known", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["the state folder is there", "it is lost"]
)
def test_an_older_backup_that_has_grown_beyond_a_copy(
    server: EmbeddedPostgres, lake_folder: LakeFolder, is_known: bool
) -> None:
    """A copy beside the stream leaves no trace in the WAL by which the source could prove that it has it."""
    scene = Scene(Database(server, "postgres"), lake_folder)
    scene.first_run()
    backup = Backup(server)
    with scene.pipeline() as pipeline:
        pipeline.wait_streaming()
        server.restart()  # what does not lack anything goes on
        scene.database.execute("DELETE FROM items WHERE id = 7")
        wait_heard(pipeline)
        for table in TABLES:
            pipeline.tell("resync", f"shop.{table}", "shop_eu")
        copies = lambda: {pipeline.app.states.get(f"shop.{table}", "shop_eu").copies for table in TABLES}  # noqa: E731
        wait_until(lambda: copies() == {1}, "they are copied")
        pipeline.wait_streaming()
        end = scene.database.execute("SELECT pg_current_wal_insert_lsn()::text")[0]
    backup.put_back()
    backup.remove()
    scene.database.execute("UPDATE items SET n = 8 WHERE id > 90")
    while scene.database.execute("SELECT pg_current_wal_flush_lsn() <= %s::pg_lsn", end) == [(True,)]:
        write_wal(scene.database)
    for _ in range(2):  # nothing was noted of that server
        if not is_known:
            shutil.rmtree(lake_folder.folder / "state")
        error = scene.told()
        assert "source shop_eu: its server was started anew, slot kuvasz_shop_eu stands at " in error
        assert "and nothing proves that it has what was copied as of " in error
        assert "an older backup may have been restored" in error
    scene.assert_cured()


def metadata(folder: LakeFolder, table: str) -> str:
    """Where the table's metadata is: each change of anything makes another file."""
    return open_table(folder.pyiceberg, f"shop.{table}", catalog=folder.catalog).metadata_location


def lake_columns(folder: LakeFolder, table: str) -> list[str]:
    return [
        field.name for field in open_table(folder.pyiceberg, f"shop.{table}", catalog=folder.catalog).schema().fields
    ]


def test_a_table_that_was_not_in_the_map_when_the_slot_was_lost_is_copied_when_it_comes_back(scene: Scene) -> None:
    scene.database.execute(f"CREATE PUBLICATION {SLOT} FOR ALL TABLES WITH (publish_via_partition_root = true)")
    scene.first_run()
    scene.change()
    scene.database.execute(f"SELECT pg_drop_replication_slot('{SLOT}')")
    with scene.pipeline("resync", "items") as pipeline:
        pipeline.wait_streaming()
        scene.change()
    with scene.pipeline() as pipeline:
        pipeline.wait_streaming()
        assert pipeline.app.states.get("shop.items", "shop_eu").copies == 0
        scene.wait_equal(pipeline)


# Slow: another cluster comes behind an older backup below.
@pytest.mark.slow
def test_another_cluster_behind_a_known_sid_changes_nothing(
    database: Database, lake_folder: LakeFolder, postgres16: EmbeddedPostgres
) -> None:
    def config(source: Database):
        return lake_folder.config(group({"eu": source}, {"customers": None}))

    database.execute("CREATE TABLE customers (id int PRIMARY KEY, credit_limit int, note text)")
    database.execute("INSERT INTO customers VALUES (1, 100, 'a'), (2, 200, 'b')")
    with Pipeline(config(database), lake_folder) as pipeline:
        pipeline.wait_streaming()
    rows = source_rows(database.url, "customers", sid="eu")
    another = create_database(postgres16)
    try:
        another.execute("CREATE TABLE customers (id int PRIMARY KEY, created int, note text)")
        another.execute("INSERT INTO customers VALUES (1, 7, 'x'), (3, 8, 'y')")
        before = metadata(lake_folder, "customers")
        (planned,) = plan.plans(config(another))
        assert "answers, but table shop.customers holds rows of cluster" in planned.error
        assert plan.exit_code([planned]) == 5
        found = check.findings(config(another))
        assert check.exit_code(found) == 5
        assert [one.check for one in found if one.source == SLOT] == ["cluster"]
        with Pipeline(config(another), lake_folder) as pipeline:
            wait_until(lambda: pipeline.exit_code is not None, f"kuvasz ends: {pipeline.errors()}")
            assert pipeline.exit_code == 5
            assert "answers, but table shop.customers holds rows of cluster" in pipeline.errors()[0]
            pipeline.assert_equal("customers", rows)
        assert metadata(lake_folder, "customers") == before, "nothing was changed"
        assert (
            another.execute("SELECT 1 FROM pg_publication")
            == another.execute("SELECT 1 FROM pg_replication_slots")
            == []
        )

        offline.command(config(another), "resync", table=None, sid="eu")
        assert plan.plans(config(another))[0].tables[0].action == "copy"
        assert check.exit_code(check.findings(config(another))) == 0
        with Pipeline(config(another), lake_folder) as pipeline:
            pipeline.wait_streaming()
            another.execute("INSERT INTO customers VALUES (4, 9, 'z')")
            pipeline.wait_applied(another)
            assert sorted(pipeline.rows("customers")) == [(1, None, "x", 7), (3, None, "y", 8), (4, None, "z", 9)]
        assert lake_columns(lake_folder, "customers") == ["sid", "id", "credit_limit", "note", "created"]
    finally:
        drop_database(another)


def test_a_stopped_source_is_copied_again_with_one_start(
    database: Database, lake_folder: LakeFolder, postgres16: EmbeddedPostgres
) -> None:
    other = create_database(postgres16)
    try:
        for source in (database, other):
            fill(source)
        config = lake_folder.config(group({"eu": database, "us": other}, dict.fromkeys(TABLES)))
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_streaming()
        for attempt in range(3):  # which of the two sources comes first is a matter of luck
            database.execute(f"UPDATE items SET n = {attempt} WHERE id < 10")
            database.execute(f"SELECT pg_drop_replication_slot('{SLOT}')")
            offline.command(config, "resync", table=None, sid="eu")
            with Pipeline(config, lake_folder) as pipeline:
                pipeline.wait_streaming()
                assert pipeline.app.states.get("shop.items", "shop_eu").copies == 1
                assert pipeline.app.states.get("shop.items", "shop_us").copies == 0
                pipeline.wait_applied(database, other)
                for table in TABLES:
                    rows = [source_rows(d.url, table, sid=sid) for sid, d in (("eu", database), ("us", other))]
                    pipeline.assert_equal(table, *rows, key=("sid", "id"))
    finally:
        drop_database(other)
