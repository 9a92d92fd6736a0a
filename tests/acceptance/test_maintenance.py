"""Files are exchanged all the time under load, and kuvasz is killed in the middle of it, again and again."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

import pytest

from kuvasz import lsn
from kuvasz.config.load import load
from kuvasz.lake.jvm import spark
from tests.support import oracle
from tests.support.crash_scene import Scene
from tests.support.failpoints import DAILY, EXCHANGING
from tests.support.lake import group
from tests.support.load import TABLES
from tests.support.observer import Observer
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.process import Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

#: Whatever is there is merged, at every look.
EAGER = {"interval": "200ms", "min_files": 2, "max_dead_percent": 2, "target_file_size": "64kB",
         "snapshot_age": "2s", "snapshots_kept": 2}  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("format_version", "points"),
    [
        (3, EXCHANGING[3:]),
        (2, EXCHANGING[3:]),
        (3, EXCHANGING[:3]),
        (2, EXCHANGING[:3]),
    ],
)
def test_killed_around_an_exchange_of_files(
    two_sources: dict[str, Database],
    new_process: Callable[..., Process],
    format_version: int,
    points: tuple[str, ...],
) -> None:
    lake = {"format_version": format_version}
    scene = Scene(two_sources, new_process(group(two_sources, dict.fromkeys(TABLES)), lake=lake, maintenance=EAGER))
    with scene.load(11):
        for point in points:
            scene.killed_at(f"{point}:kill:3")
        scene.process.start()
        scene.process.wait_event("compacted", 5)
        _assert_went_well(scene.process)
        scene.kill()
    scene.finish()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_killed_while_orphans_are_removed(database: Database, new_process: Callable[..., Process]) -> None:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
    database.execute("INSERT INTO items SELECT i, 0 FROM generate_series(1, 100) i")
    process = new_process(group({None: database}, {"items": None}), maintenance={"interval": "200ms"})
    orphan = process.folder / "wh" / "shop" / "items" / "data" / "kvsz-orphan.parquet"
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"x")
    os.utime(orphan, (1, 1))
    process.start(failpoints=f"{DAILY[0]}:kill:1")
    process.wait_killed()
    assert orphan.exists()
    database.execute("UPDATE items SET n = 1 WHERE id < 50")
    process.start()
    process.wait_event("orphans_removed")
    process.wait_confirmed(database)
    process.terminate()
    assert not orphan.exists()
    _assert_went_well(process)
    process.assert_equal("items", source_rows(database.url, "items"))


def _assert_went_well(process: Process) -> None:
    for event in ("maintenance_failed", "table_failed", "bug"):
        assert not process.found(event), process.report()


#: Target -> table and type of those that keep what was.
GROWN = {"past_items": ("items", "history"), "log_docs": ("docs", "append")}


class Hours(Scene):
    """Clones of two sources; of one of them also a history and a table that only grows, in a group of their own."""

    def __init__(
        self, databases: dict[str, Database], new_process: Callable[..., Process], session: object, version: int
    ) -> None:
        eu = databases["eu"]
        self.observer = Observer(eu, dict.fromkeys(TABLES, ("id",)), name="witness", shows_defaults=True)
        # What was written before shows a later column as empty.
        self.observer.defaults = {f"extra_{number}": None for number in range(12)}
        tables = {table: {"type": kind, "target": target} for target, (table, kind) in GROWN.items()}
        groups = [
            *group(databases, dict.fromkeys(TABLES)),
            {"database": "past", "urls": [{"url": eu.url}], "tables": tables},
        ]
        super().__init__(databases, new_process(groups, lake={"format_version": version}, maintenance=EAGER))
        self.spark = session.newSession()
        for name, value in spark.settings(load(self.process.map, {}).config).items():
            if name.startswith("spark.sql.catalog."):
                self.spark.conf.set(name, value)
        self.copied: dict[str, int] = {}
        self.commits = self.exchanges = 0

    def copy(self) -> None:
        """Let every table be copied."""
        self.process.start()
        self.process.wait_event("copied", 2 * len(TABLES) + len(GROWN))
        self.copied = {event["table"]: lsn.parse(event["lsn"]) for event in self.process.found("copied")}

    def count(self) -> None:
        """Add what the process that has just ended did."""
        _assert_went_well(self.process)
        self.commits += len(self.process.found("committed"))
        self.exchanges += len(self.process.found("compacted"))

    def disturb(self, moments: random.Random, number: int) -> None:
        """Empty a table, or change its columns."""
        name = moments.choice(list(self.sources))
        table = moments.choice(list(TABLES))
        statements = {
            0: [f"TRUNCATE {table}"],
            1: [f"ALTER TABLE {table} ADD COLUMN extra_{number} int", f"UPDATE {table} SET extra_{number} = id % 9"],
            2: [
                f"ALTER TABLE {table} ALTER n TYPE bigint",
                f"UPDATE {table} SET n = n + 3000000000 WHERE id % 7 = 0",
            ],
        }
        for statement in statements[number % 3]:
            self.sources[name].execute(statement)

    def finish(self) -> None:
        super().finish()
        self.count()
        for table in TABLES:
            rows = [oracle.source_rows(database.url, table, sid=sid) for sid, database in self.sources.items()]
            seen = oracle.lake_rows_spark(self.spark, f"kuvasz.shop.{table}")
            oracle.assert_equal(rows[0] + rows[1], seen, key=("sid", "id"))
        for target, (table, kind) in GROWN.items():
            expected = self.observer.expected(table, kind, self.copied[f"shop.{target}"])
            self.process.assert_equal(target, expected, key=("id",))
            oracle.assert_equal(expected, oracle.lake_rows_spark(self.spark, f"kuvasz.shop.{target}"), key=("id",))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("format_version", [3, 2])
def test_hours_of_commits_with_kills_at_random(
    two_sources: dict[str, Database],
    new_process: Callable[..., Process],
    spark_session: object,
    format_version: int,
) -> None:
    """Thousands of commits with truncates and new columns between them; equality is looked at after each phase."""
    seed = random.randrange(1 << 30)  # noqa: S311
    print(f"seed {seed}")
    moments = random.Random(seed)  # noqa: S311
    hours = Hours(two_sources, new_process, spark_session, format_version)
    disturbances = 0
    for phase in range(3):
        with hours.load(seed + phase):
            if phase == 0:
                hours.copy()
            else:
                hours.killed_at(f"{moments.choice(EXCHANGING)}:kill:{moments.randint(1, 20)}")
                hours.count()
                hours.process.start()
            for commits in (80, 200, 350, 500):
                hours.process.wait_until(
                    lambda commits=commits: len(hours.process.found("committed")) >= commits, "commits", 600
                )
                hours.disturb(moments, disturbances)
                disturbances += 1
            time.sleep(moments.uniform(0, 2))
            hours.kill()
            hours.count()
        hours.finish()
    print(f"{hours.commits} commits, {hours.exchanges} exchanges of files")
    assert hours.commits > 1500
    assert hours.exchanges > 100
