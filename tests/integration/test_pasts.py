"""What is remembered of a source's past says nothing once the source went on otherwise: its numbers come again."""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kuvasz.errors import LakeError
from kuvasz.lake.table.commits import Commits
from kuvasz.sync import watches
from kuvasz.sync.watch.partition_watch import PartitionWatch
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.partitioned import ATTACH, EVENTS, STANDALONE, run, wait_equal
from tests.support.postgres import Database, Server, needs
from tests.support.restore import Backup, times_lost
from tests.support.standby import LateStandby
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

EVENTS_2 = EVENTS.replace("events", "others")


@pytest.fixture
def database() -> Iterator[Database]:
    """One of a server of its own, to be put back."""
    folder = Path(tempfile.mkdtemp(prefix="kuvasz-test-")) / "data"
    with Server(folder, settings={}) as server:
        yield Database(server, "postgres")


class Looks:
    """The looks at partitions while tables stream: how many there may be yet."""

    left: float = math.inf

    def wait(self, more: int) -> None:
        """Return when so many have ended, and no more will begin."""
        self.left = more
        wait_until(lambda: not self.left, "it is looked at")


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    found, look = Looks(), PartitionWatch.look

    def counted(watch: PartitionWatch) -> None:
        if found.left:
            look(watch)
            found.left -= 1

    monkeypatch.setattr(PartitionWatch, "look", counted)
    monkeypatch.setattr(watches, "_PARTITIONS_S", 0.3)
    return found


def config_of(lake_folder: LakeFolder, database: Database, *tables: str) -> Any:
    (of_group,) = group({"eu": database}, dict.fromkeys(tables))
    return lake_folder.config([of_group | {"on_slot_lost": "resync"}])


def watch_of(pipeline: Pipeline) -> PartitionWatch:
    return pipeline.app.sync("shop_eu")._parts.watches._partitions


def next_xid(database: Database) -> int:
    ((xid,),) = database.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
    return xid


def pass_xids(database: Database, until: int) -> None:
    with database.connect(autocommit=True) as session:
        for _ in range(until - next_xid(database)):
            session.execute("SELECT pg_current_xact_id()")


def xid_of_file(database: Database, table: str) -> int:
    ((xid,),) = database.execute("SELECT xmin::text::bigint FROM pg_class WHERE relname = %s", (table,))
    return xid


def noted(pipeline: Pipeline, table: str) -> frozenset[str]:
    return pipeline.app.lake.notes.partitions(table, "shop_eu") or frozenset()


def wait_copied_again(pipeline: Pipeline, caplog: pytest.LogCaptureFixture, *tables: str) -> None:
    wait_until(lambda: times_lost(caplog) == 1, "it begins anew")
    for table in tables:
        wait_until(lambda name=table: pipeline.app.states.get(name, "shop_eu").copies == 2, "copied again")
    pipeline.wait_streaming()


@pytest.mark.slow
def test_a_horizon_from_before_a_server_was_put_back_proves_nothing(
    database: Database, lake_folder: LakeFolder, looks: Looks, caplog: pytest.LogCaptureFixture
) -> None:
    """Each row of the server that is put back has an earlier transaction, also those of a truncated partition."""
    run(database, EVENTS)
    with Pipeline(config_of(lake_folder, database, "events"), lake_folder) as pipeline:
        pipeline.wait_streaming()
        backup = Backup(database.server)
        pass_xids(database, next_xid(database) + 1000)
        run(database, "INSERT INTO events VALUES (400, '2024-01-02', 1)")
        wait_equal(pipeline, database, ["events"])
        looks.wait(2)  # with the late horizon
        backup.put_back()
        backup.remove()
        run(database, "INSERT INTO events VALUES (401, '2024-01-02', 1)")
        wait_copied_again(pipeline, caplog, "shop.events")
        run(database, "TRUNCATE events_1")
        run(database, "INSERT INTO events VALUES (900, '2024-01-05', 1)")
        looks.left = math.inf
        wait_equal(pipeline, database, ["events"])


@pytest.mark.slow
def test_suspects_and_truncates_from_before_a_server_was_put_back_explain_nothing(
    database: Database, lake_folder: LakeFolder, looks: Looks, caplog: pytest.LogCaptureFixture
) -> None:
    run(database, EVENTS, EVENTS_2)
    with Pipeline(config_of(lake_folder, database, "events", "others"), lake_folder) as pipeline:
        pipeline.wait_streaming()
        backup = Backup(database.server)
        pipeline.wait_streaming()
        for _ in range(5):  # the server that is put back does not get so far
            run(database, "CREATE TABLE t AS SELECT repeat('x', 100) FROM generate_series(1, 20000)", "DROP TABLE t")
        pass_xids(database, next_xid(database) + 60)
        run(database, "TRUNCATE others")
        run(database, "INSERT INTO others VALUES (401, '2024-01-02', 1)")
        xid = xid_of_file(database, "others_1")
        wait_equal(pipeline, database, ["events", "others"])
        looks.wait(2)
        run(database, "TRUNCATE events_1")
        looks.left = 1
        wait_until(lambda: "shop.events" in watch_of(pipeline)._suspects._emptied, "it is suspected")
        backup.put_back()
        backup.remove()
        looks.left = math.inf
        run(database, "INSERT INTO events VALUES (402, '2024-01-02', 1)")
        wait_copied_again(pipeline, caplog, "shop.events", "shop.others")
        assert not [text for text in noted(pipeline, "shop.others") if text.startswith("truncated")]
        run(database, "TRUNCATE events_1")
        run(database, "INSERT INTO events VALUES (900, '2024-01-05', 1)")
        pass_xids(database, xid)
        run(database, "TRUNCATE others_1")
        assert xid_of_file(database, "others_1") == xid
        wait_equal(pipeline, database, ["events", "others"])


@pytest.mark.parametrize("is_up", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_partition_that_an_old_primary_attached_is_looked_at_where_a_new_one_did_so(
    database: Database, lake_folder: LakeFolder, looks: Looks, is_up: bool
) -> None:
    run(database, EVENTS)
    run(database, STANDALONE.format("p"))
    config = config_of(lake_folder, database, "events")

    def fail_over() -> None:
        standby.put_back(is_promoted=True)
        standby.remove()
        run(database, "INSERT INTO p SELECT i, date '2024-03-02', 3 FROM generate_series(1, 5) i", ATTACH)
        assert link() == lost

    def link() -> Any:
        return database.execute("SELECT xmin::text FROM pg_inherits WHERE inhrelid = 'p'::regclass")

    def finish(pipeline: Pipeline) -> None:
        run(database, "INSERT INTO events VALUES (700, '2024-01-03', 1)")
        wait_equal(pipeline, database, ["events"])

    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        wait_equal(pipeline, database, ["events"])
        standby = LateStandby(database.server)
        run(database, ATTACH)  # empty, and lost with the old primary
        lost = link()
        wait_until(lambda: any(text.endswith(" public.p") for text in noted(pipeline, "shop.events")), "it is known")
        looks.wait(1)
        if is_up:
            fail_over()
            looks.left = math.inf
            finish(pipeline)
    if not is_up:
        fail_over()
        looks.left = math.inf
        with Pipeline(config, lake_folder) as pipeline:
            finish(pipeline)


def test_a_truncate_that_an_old_primary_alone_had_explains_nothing(
    database: Database, lake_folder: LakeFolder, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was noted when it came, and never applied; its transaction's number came again."""
    run(database, EVENTS)
    config = config_of(lake_folder, database, "events")
    make, is_down = Commits._make, False

    def made(self: Commits, *arguments: Any) -> Any:
        if is_down:
            raise LakeError("the catalog is away")
        return make(self, *arguments)

    monkeypatch.setattr(Commits, "_make", made)
    with contextlib.suppress(Exception), Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        wait_equal(pipeline, database, ["events"])
        standby = LateStandby(database.server)
        pipeline.wait_streaming()
        looks.wait(1)
        is_down = True
        run(database, "TRUNCATE events")
        xid = xid_of_file(database, "events_1")
        wait_until(lambda: any("truncated" in text for text in noted(pipeline, "shop.events")), "it is noted")
        pipeline.die()
    is_down = False
    standby.put_back(is_promoted=True)
    standby.remove()
    run(database, "TRUNCATE events_1")
    assert xid_of_file(database, "events_1") == xid
    looks.left = math.inf
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        run(database, "INSERT INTO events VALUES (701, '2024-01-03', 1)")
        wait_equal(pipeline, database, ["events"])


def test_a_clause_that_an_old_primary_alone_had_proves_nothing(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was seen beside the one by which the table had come; the new primary gives another the same numbers."""
    needs(database.server, 15, "publications of schemas")
    monkeypatch.setattr(watches, "PATROL_S", 0.3)
    clause = "SELECT oid::bigint, xmin::text FROM pg_publication_namespace"
    add = "ALTER PUBLICATION kuvasz_shop_eu ADD TABLES IN SCHEMA public"
    run(database, "CREATE TABLE items (id int PRIMARY KEY, day date, n int)", "INSERT INTO items VALUES (1), (2)")
    config = config_of(lake_folder, database, "items")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        wait_equal(pipeline, database, ["items"])
        backup = Backup(database.server)
        pass_xids(database, next_xid(database) + 2)
        run(database, add)
        noted = lambda: pipeline.app.lake.notes.published("shop.items", "shop_eu") or ""  # noqa: E731
        wait_until(lambda: "schema" in noted(), "it is seen")
        lost = database.execute(clause)
    backup.put_back(is_promoted=True)
    backup.remove()
    run(database, "ALTER PUBLICATION kuvasz_shop_eu DROP TABLE items")
    run(database, "UPDATE items SET n = 7 WHERE id = 1")
    run(database, add)
    assert database.execute(clause) == lost
    with Pipeline(config, lake_folder) as pipeline:
        run(database, "INSERT INTO items VALUES (3)")
        wait_equal(pipeline, database, ["items"])
