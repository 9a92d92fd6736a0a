"""Sources whose stream cannot be continued: told why, and copied again if the map or a person says so."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.state.tables import State
from tests.fix_lake import LakeFolder, Pipeline, group, wait_until
from tests.fix_postgres import Database
from tests.oracle import source_rows

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

SLOT = "kuvasz_shop_eu"
TABLES = ("items", "others")


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    """A server of the test's own, to be stopped, limited and restored."""
    folder = Path(tempfile.mkdtemp(prefix="kuvasz-test-")) / "data"
    with EmbeddedPostgres(folder, version=18, settings={"max_slot_wal_keep_size": "16MB"}) as made:
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

    def pipeline(self, policy: str = "stop") -> Pipeline:
        (databases,) = group({"eu": self.database}, dict.fromkeys(TABLES))
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


def test_a_person_has_a_lost_source_copied_again_while_another_streams(
    scene: Scene, lake_folder: LakeFolder, postgres16
) -> None:
    from tests.fix_postgres import create_database, drop_database

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
    server.stop()
    backup = server.folder.with_name("backup")
    shutil.copytree(server.folder, backup, symlinks=True)
    server.start()
    with scene.pipeline() as pipeline:
        pipeline.wait_streaming()
        scene.change()
        pipeline.wait_applied(scene.database)
    server.stop()
    shutil.rmtree(server.folder)
    backup.rename(server.folder)
    give_away(server.folder)
    server.start()
    error = scene.told()
    assert "source shop_eu: its WAL ends at " in error
    assert "an older backup was restored" in error
    scene.assert_cured()
    folder = Path(tempfile.mkdtemp(prefix="kuvasz-test-")) / "data"
    with EmbeddedPostgres(folder, version=18) as another:
        scene.database = Database(another, "postgres")
        fill(scene.database)
        error = scene.told()
        assert "answers, but table shop.items holds rows of cluster" in error
        scene.assert_cured()


def give_away(folder: Path) -> None:
    """Have every file belong to the server's account again."""
    import os
    import pwd

    from kuvasz.demo import postgres

    if os.geteuid() == 0:
        owner = pwd.getpwnam(postgres.SERVER_ACCOUNT)
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, owner.pw_uid, owner.pw_gid, follow_symlinks=False)
