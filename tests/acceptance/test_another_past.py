"""A source whose past is another one, and starts that must change nothing, with the installed command.

A server is put back to an older state while kuvasz runs; another cluster answers in its place; a slot is gone while
kuvasz is stopped; one table may not be published; a key is to be hidden. One lake and two sources, in this order, so
that it takes four starts, of more than ten seconds of CPU each. So it is slow: `tests/integration/test_slot_lost.py`,
`tests/integration/test_expressions.py` and `tests/unit/sync/context/test_publications.py` have each by itself.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kuvasz.config.names import object_name
from kuvasz.demo.postgres import EmbeddedPostgres
from tests.support import oracle
from tests.support.lake import group
from tests.support.oracle import source_rows
from tests.support.postgres import Database, create_database, drop_database
from tests.support.process import Process
from tests.support.restore import Backup, Confirmations

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

TABLES = ("items", "others")
ROLE = "another_past_role"
PUBLICATION = object_name("depot", "us")
NOT_PUBLISHED = "shop.private"


@pytest.fixture
def server(new_data: Path) -> Iterator[EmbeddedPostgres]:
    """A server of the test's own, to be restored."""
    made = EmbeddedPostgres(Path(tempfile.mkdtemp(prefix="kuvasz-test-")) / "data", version=18)
    subprocess.run(["cp", "-a", new_data, made.folder], check=True)
    made.start()
    yield made
    with contextlib.suppress(RuntimeError):
        made.stop("immediate")
    made.remove()


@pytest.fixture
def depot(postgres18: EmbeddedPostgres) -> Iterator[Database]:
    """A source whose publication is the DBA's, so that kuvasz may add no table to it."""
    owner = create_database(postgres18)
    for name in ("stock", "private"):
        owner.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int); INSERT INTO {name} VALUES (1, 0), (2, 0)")
    owner.execute(f"CREATE PUBLICATION {PUBLICATION} FOR TABLE stock WITH (publish_via_partition_root = true)")
    owner.execute(f"CREATE ROLE {ROLE} LOGIN REPLICATION; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {ROLE}")
    yield owner
    owner.execute(f"DROP OWNED BY {ROLE}")
    drop_database(owner)
    Database(postgres18, "postgres").execute(f"DROP ROLE {ROLE}")


@pytest.fixture
def another(postgres18: EmbeddedPostgres) -> Iterator[Database]:
    """A database of another cluster, with a table of one of the names."""
    created = create_database(postgres18)
    created.execute("CREATE TABLE items (id int PRIMARY KEY, created int); INSERT INTO items VALUES (1, 7), (500, 8)")
    created.execute("CREATE TABLE others (id int PRIMARY KEY, n int)")
    yield created
    drop_database(created)


class Scene:
    """Two sources and their lake.

    Args:
        shop: Its server will be restored.
        depot: The other source.
    """

    def __init__(self, shop: Database, depot: Database) -> None:
        self.shop, self.depot = shop, depot
        self.process = Process(self.map(shop, "resync"))

    def map(self, shop: Database, policy: str, items: Mapping[str, object] | None = None) -> list[dict]:
        weak = Database(self.depot.server, self.depot.name)
        weak.url = self.depot.server.url(self.depot.name, user=ROLE)
        (one,) = group({"eu": shop}, {"items": items and dict(items), "others": None})
        (other,) = group({"us": weak}, {"stock": None, "private": None}, "depot")
        return [one | {"on_slot_lost": policy}, other]

    def copies(self, target: str) -> int:
        return len(self.process.found("copied", table=f"shop.{target}"))

    def wait_equal(self, database: Database, *targets: str, sid: str = "eu") -> None:
        """Wait until the lake has a source's rows, and compare them."""
        for target in targets:
            expected = source_rows(database.url, target, sid=sid)
            is_there = lambda t=target, e=expected: self.process.rows_seen(t).select(e.columns).rows == e.rows  # noqa: E731
            self.process.wait_until(is_there, f"{target} is equal")

    def metadata(self) -> dict[str, str]:
        """Where the metadata of each table is: any change makes another file."""
        names = (*TABLES, "stock")
        return {name: oracle.open_table(self.process.pyiceberg, f"shop.{name}").metadata_location for name in names}


@pytest.fixture
def scene(server: EmbeddedPostgres, depot: Database) -> Iterator[Scene]:
    shop = Database(server, "postgres")
    for name in TABLES:
        shop.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)")
        shop.execute(f"INSERT INTO {name} SELECT i, 0 FROM generate_series(1, 100) i")
    made = Scene(shop, depot)
    yield made
    made.process.remove()


def test_a_past_that_is_not_the_lakes(scene: Scene, another: Database) -> None:
    a_source_is_restored_while_it_streams(scene)
    a_hidden_key_is_refused(scene)
    another_cluster_changes_nothing(scene, another)
    one_start_copies_both_sources(scene, another)


def a_source_is_restored_while_it_streams(scene: Scene) -> None:
    """One copy and no loop, though kuvasz reconnects; and meanwhile one table alone cannot be published."""
    process, shop = scene.process.start(), scene.shop
    process.wait_event("copied", 3)
    told = process.wait_event("table_failed", table=NOT_PUBLISHED)["error"]
    assert f"is not in publication {PUBLICATION}, and role {ROLE} does not own the publication" in told
    assert f'ALTER PUBLICATION "{PUBLICATION}" ADD TABLE ONLY "public"."private"' in told.partition("hint: ")[2]
    backup = Backup(shop.server)
    shop.execute("UPDATE items SET n = 2 WHERE id < 10")
    shop.execute("CREATE TABLE unmapped AS SELECT repeat('x', 100) FROM generate_series(1, 20000)")
    scene.wait_equal(shop, *TABLES)
    process.wait_confirmed(shop)
    with Confirmations(shop):
        backup.put_back()
        backup.remove()
        shop.execute("UPDATE items SET n = 5 WHERE id = 5")
        process.wait_event("slot_lost", source="shop_eu")
        process.wait_until(lambda: [scene.copies(name) for name in TABLES] == [2, 2], "all is copied again")
        shop.execute("INSERT INTO items VALUES (1001, 1)")
        scene.wait_equal(shop, *TABLES)
        shop.server.restart("immediate")
        shop.execute("INSERT INTO items VALUES (1002, 2)")
        scene.wait_equal(shop, *TABLES)
        process.wait_confirmed(shop)
    assert len(process.found("slot_lost")) == 1
    assert [scene.copies(name) for name in (*TABLES, "stock")] == [2, 2, 1]
    scene.depot.execute("UPDATE stock SET n = 3 WHERE id = 1")
    scene.wait_equal(scene.depot, "stock", sid="us")
    process.kill()


def a_hidden_key_is_refused(scene: Scene) -> None:
    """It stops its table alone, which has rows; only a first start ends."""
    before = scene.metadata()
    scene.process.write_map(scene.map(scene.shop, "stop", {"mask": {"id": "redact"}}))
    process = scene.process.start()
    told = process.wait_event("table_failed", table="shop.items")["error"]
    assert "mask redacts id, which identifies the rows: all of them would be one" in told
    assert "hint: hmac keeps rows apart" in told
    process.wait_event("reader.streaming", 2)
    process.kill()
    assert scene.metadata() == before


def another_cluster_changes_nothing(scene: Scene, another: Database) -> None:
    """Nor does a source whose slot is gone; there is none left, so it ends with 5."""
    before = scene.metadata()
    slot = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()"
    scene.depot.execute(slot)
    scene.depot.execute("UPDATE stock SET n = 4 WHERE id = 2")
    scene.process.write_map(scene.map(another, "stop"))
    scene.process.start()
    assert scene.process.wait() == 5, scene.process.report()
    stopped = {event["source"]: event["error"] for event in scene.process.found("source_stopped")}
    assert "answers, but table shop.items holds rows of cluster" in stopped["shop_eu"]
    assert f"slot {PUBLICATION} is gone: the changes between" in stopped["depot_us"]
    assert scene.metadata() == before
    assert another.execute("SELECT 1 FROM pg_publication") == []
    assert scene.process.run("plan").returncode == 5


def one_start_copies_both_sources(scene: Scene, another: Database) -> None:
    for sid in ("eu", "us"):
        noted = scene.process.run("resync", "--sid", sid)
        assert noted.returncode == 0, noted.stderr
    scene.process.start()
    scene.process.wait_event("copied", 3)
    another.execute("INSERT INTO items VALUES (2, 9)")
    scene.depot.execute("INSERT INTO stock VALUES (3, 1)")
    scene.wait_equal(another, *TABLES)
    scene.wait_equal(scene.depot, "stock", sid="us")
    assert [scene.copies(name) for name in (*TABLES, "stock")] == [1, 1, 1]
    assert not scene.process.found("source_stopped")
    scene.process.terminate()
