"""Three sources into every table type, killed at random points: 10 times, or `CRASHES`, 20 in each life of a lake.

After each kill nothing that was confirmed is missing, and some table holds exactly what its sources had; in the end
every table does, read by Spark and by a second engine. `make crash` counts the kills in a file, and goes on by it.
With a log (`make crash LOG=1`) what was confirmed is staged, and the lake has it in the end. The catalogs take turns,
a life each, or all have that of `make crash CATALOG=rest`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kuvasz import failpoints
from kuvasz.config.load import load
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.lake.format import source_positions
from kuvasz.lake.jvm import spark
from tests.support import catalogs, oracle, scratch
from tests.support.catalogs import CATALOGS, Catalog, CatalogProcess
from tests.support.crash_tally import CrashTally
from tests.support.failpoints import (
    COPYING,
    CUTTING,
    DAILY,
    ERASING,
    EXCHANGING,
    KEEPING,
    KILLS,
    KILLS_WHILE_IT_STOPS,
    PARKING,
    REJECTING,
    REPAIRING,
    STAGING,
    STOPPING,
    STREAMING,
    UPGRADING,
)
from tests.support.load import TABLES, Load, create_tables, fill_tables
from tests.support.observer import Observer
from tests.support.postgres import Database, create_database, drop_database
from tests.support.process import Helpers

CRASHES = int(os.environ.get("CRASHES", "10"))
TALLY = CrashTally(Path(os.environ["CRASH_TALLY"])) if os.environ.get("CRASH_TALLY") else None
SEED = os.environ.get("CRASH_SEED")

#: What is confirmed: what is in the lake, or what is staged.
LOGS = {"": ["memory", "staged"], "0": ["memory"], "1": ["staged"]}[os.environ.get("CRASH_LOG", "")]

#: Where the pointers to the tables' metadata are, in turn.
BEHIND = CATALOGS if not os.environ.get("CRASH_CATALOG") else (os.environ["CRASH_CATALOG"],)

#: After so many kills all begins anew: what must be compared grows with what has happened.
LIFE = 20

#: Each life: its first kill, counted through all of them, and its catalog.
LIVES = [
    (first, BEHIND[first // LIFE % len(BEHIND)])
    for first in range(1 + (TALLY.kills if TALLY else 0), CRASHES + 1, LIFE)
]

#: Seconds between two transactions of a source. Starting, of which there are many, takes most of the machine.
PAUSE_S = 0.03

#: In a tally: the point was not reached in time.
ANY_MOMENT = "at any moment"

TYPES = ("clone", "append", "history", "changelog")
SIDS = ("eu", "us", "ap")


def test_every_point_kills_in_some_test() -> None:
    streaming = {*STREAMING, *STAGING, *REJECTING, *CUTTING}
    tried = {*COPYING, *streaming, *STOPPING, *PARKING, *REPAIRING, *DAILY, *ERASING, *UPGRADING, *KEEPING}
    assert tried == set(failpoints.NAMES)
    fixed = (*KILLS, *KILLS_WHILE_IT_STOPS, *EXCHANGING)
    assert {point.partition(":")[0] for point in fixed} == {*COPYING, *STREAMING, *STOPPING}


@dataclasses.dataclass
class World:
    """The sources, what they went through, and kuvasz."""

    sources: dict[str, Database]
    observers: dict[str, Observer]
    process: CatalogProcess
    coordinator: Database | None = None  #: where it is known what is staged; None: nothing is
    copied: dict[tuple[str, str, str], int] = dataclasses.field(default_factory=dict)  #: type, sid, table -> LSN

    @contextlib.contextmanager
    def load(self, seed: int) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for number, database in enumerate(self.sources.values()):
                stack.enter_context(Load(database, seed + number, PAUSE_S))
            yield

    def confirmed(self) -> dict[tuple[str, str], int]:
        """What each slot was told is safe, by type and sid."""
        found = {}
        for sid, database in self.sources.items():
            rows = database.execute(
                "SELECT slot_name, (confirmed_flush_lsn - '0/0'::pg_lsn)::bigint FROM pg_replication_slots"
                " WHERE database = current_database() AND slot_name LIKE 'kuvasz%' AND NOT temporary"
            )
            for slot, lsn in rows:
                kind = slot.split("_")[1]
                found[kind, sid] = int(lsn)
        return found

    def look(self, confirmed: dict[tuple[str, str], int], chosen: random.Random) -> None:
        """Nothing that was confirmed may be missing anywhere; one table is compared as a whole."""
        if self.coordinator is not None:
            self._look_staged(confirmed)
            confirmed = {}  # of the lake it says nothing
        reached = {(kind, table): self._positions(f"{kind}_{table}") for kind in TYPES for table in TABLES}
        for observer in self.observers.values():
            observer.read()
        held = {}
        for (kind, table), sid in itertools.product(reached, self.sources):
            found, source = reached[kind, table], f"{kind}_{sid}"
            if source not in found or self.process.is_parked(f"{kind}_{table}", source):
                continue  # what is parked is on this machine's disk, and confirmed
            told = confirmed.get((kind, sid), 0)
            held[kind, sid, table] = max(found[source], told)
            late = [end for end, _ in self.observers[sid].transactions[table] if found[source] < end <= told]
            # Nothing is committed where no row changes: an append table takes no DELETE.
            assert not late or self._is_alike(kind, sid, table, found[source], told), (
                f"{kind}_{table} of {sid} at {found[source]:X} lacks what was confirmed: {late[:3]}"
            )
        if held:
            kind, sid, table = chosen.choice(sorted(held))
            expected = self._expected(kind, sid, table, held[kind, sid, table])
            lake = self.process.rows(f"{kind}_{table}")
            at = lake.columns.index("sid")
            rows = type(lake.rows)({row: n for row, n in lake.rows.items() if row[at] == sid})
            mine = oracle.Rows(columns=lake.columns, rows=rows)
            oracle.assert_equal(expected, mine, key=("sid", "id"))

    def _look_staged(self, confirmed: dict[tuple[str, str], int]) -> None:
        """What was confirmed is staged, and its objects are there as long as the lake lacks it."""
        assert self.coordinator is not None
        if self.coordinator.execute("SELECT to_regclass('kuvasz.log_source') IS NOT NULL") == [(False,)]:
            return  # it was killed in its first copy
        staged = dict(self.coordinator.execute("SELECT source, lsn FROM kuvasz.log_source"))
        for (kind, sid), told in confirmed.items():
            assert told <= staged.get(f"{kind}_{sid}", told), (
                f"{kind} of {sid}: {told:X} was confirmed and not staged"
            )
        needed = {name for (name,) in self.coordinator.execute("SELECT DISTINCT object FROM kuvasz.log_slice")}
        folder = self.process.folder / "log"
        there = {file.name for file in folder.iterdir()} if folder.is_dir() else set()
        assert needed <= there, "an object is gone that is needed"

    def _positions(self, target: str) -> dict[str, int]:
        """How far each source is, noting where its copy was."""
        try:
            found = oracle.open_table(self.process.pyiceberg, f"shop.{target}")
        except Exception:  # noqa: BLE001 (PyIceberg has many words for a table that is not there yet)
            return {}
        kind, _, table = target.partition("_")
        for snapshot in sorted(found.metadata.snapshots, key=lambda one: one.sequence_number or 0):
            told = source_positions.parse(snapshot.summary.additional_properties, target)
            for source, position in told.items():
                self.copied.setdefault((kind, source.partition("_")[2], table), position.lsn)
        return {source: one.lsn for source, one in source_positions.parse(found.properties, target).items()}

    def _expected(self, kind: str, sid: str, table: str, through: int | None = None) -> oracle.Rows:
        return self.observers[sid].expected(table, kind, self.copied[kind, sid, table], sid=sid, through=through)

    def _is_alike(self, kind: str, sid: str, table: str, one: int, other: int) -> bool:
        """Whether a table has the same rows at two LSNs of a source."""
        first, second = (self._expected(kind, sid, table, through) for through in (one, other))
        return first.rows == second.rows

    def kill(self) -> dict[tuple[str, str], int]:
        helpers = self.process.helpers()
        self.process.begin_kill()
        self.process.wait()
        confirmed = self.confirmed()
        self.process.wait_helpers(helpers)
        self.process.catalog.settle()
        return confirmed

    def crash(self, point: str, passes: int, seconds: float) -> tuple[str | None, dict[tuple[str, str], int]]:
        """Start, and have it killed at a point, or some time after its first commit if that is not reached.

        Returns where it was killed, None if it was told to stop and ended in order, and what was confirmed.
        """
        process = self.process.start(failpoints=f"{point}:kill:{passes}")
        end = None
        helpers = Helpers(process)
        while process.is_running:
            helpers.look()
            if end is None and process.found("committed"):
                end = time.monotonic() + seconds
            if end is not None and time.monotonic() > end:
                if point not in STOPPING:
                    told = self.kill()
                    return (point if process.found("failpoint") else ANY_MOMENT), told
                process.begin_stop()
                end = time.monotonic() + 60
            time.sleep(0.05)
        confirmed = self.confirmed()
        process.wait()
        helpers.wait()
        process.catalog.settle()
        # Told to stop it may pass a point less often than that: not every table has something to save.
        if process.found("failpoint"):
            return point, confirmed
        assert point in STOPPING, process.report()
        assert process.wait() == 0, process.report()
        return None, confirmed

    def finish(self, session: object) -> None:
        """Catch up and compare everything."""
        self.process.start("--until-caught-up")
        assert self.process.wait(300) == 0, self.process.report()
        reader = session.newSession()  # the catalog's name belongs to its tables, and other tests have catalogs of it
        for setting, value in spark.settings(load(self.process.map, {}).config).items():
            if setting.startswith("spark.sql.catalog."):
                reader.conf.set(setting, value)
        for kind in TYPES:
            for table in TABLES:
                target = f"{kind}_{table}"
                assert len(self._positions(target)) == len(self.sources)
                parts = [self._expected(kind, sid, table) for sid in self.sources]
                self.process.assert_equal(target, *parts, key=("sid", "id"))
        for target in ("clone_items", "history_docs"):
            found = oracle.lake_rows_pyiceberg(self.process.pyiceberg, f"shop.{target}")
            oracle.assert_equal(found, oracle.lake_rows_spark(reader, f"kuvasz.shop.{target}"), key=("sid", "id"))


@pytest.fixture
def world(postgres18: EmbeddedPostgres, postgres16: EmbeddedPostgres, log: str, catalog: str) -> Iterator[World]:
    folder = scratch.new_folder("kuvasz-process-")
    with catalogs.running(catalog, postgres18, folder / "wh") as behind:
        yield from made(behind, folder, (postgres18, postgres16), log)


def made(behind: Catalog, folder: Path, of: tuple[EmbeddedPostgres, EmbeddedPostgres], log: str) -> Iterator[World]:
    postgres18, postgres16 = of
    servers = (postgres18, postgres16, postgres18)
    sources = {sid: create_database(server) for sid, server in zip(SIDS, servers, strict=True)}
    observers = {}
    for sid, database in sources.items():
        create_tables(database)
        observers[sid] = Observer(database, dict.fromkeys(TABLES, ("id",)))
        fill_tables(database, 600)
    groups = [
        {
            "database": kind, "urls": [{"url": database.url, "sid": sid} for sid, database in sources.items()],
            "tables": {table: {"type": kind, "target": f"{kind}_{table}"} for table in TABLES},
        }
        for kind in TYPES
    ]  # fmt: skip
    process = CatalogProcess(
        groups, behind, folder=folder, pipeline={"transaction_spill_bytes": "64kB"},
        maintenance={"interval": "500ms", "min_files": 4, "target_file_size": "256kB"},
    )  # fmt: skip
    coordinator = create_database(postgres18) if log == "staged" else None
    if coordinator is not None:
        process._cluster = {"coordinator": coordinator.url, "lease": "10s", "log": str(process.folder / "log")}
        process.write_map(groups)
    yield World(sources, observers, process, coordinator)
    process.remove()
    if coordinator is not None:
        drop_database(coordinator)
    for database in sources.values():
        drop_database(database)


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.spark
@pytest.mark.timeout(600 + 120 * LIFE)
@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize(("first", "catalog"), LIVES)
def test_killed_at_random_points(world: World, spark_session: object, first: int, catalog: str) -> None:
    seed = int(SEED) if SEED else random.randrange(1 << 30)  # noqa: S311
    print(f"seed {seed}, {catalog}")
    chosen = random.Random(seed)  # noqa: S311
    kills = min(LIFE, CRASHES + 1 - first)
    killed: list[str] = []
    staging = () if world.coordinator is None else (*STAGING, *STAGING)
    points = [
        *COPYING,
        *(chosen.choice((*STREAMING, *STREAMING, *staging, *STOPPING)) for _ in range(kills - len(COPYING))),
    ]
    with world.load(seed):
        for number, point in enumerate(points[:kills], first):
            passes = chosen.randint(1, 4 if point in STOPPING else 12) if point != "shutdown" else 1
            where, confirmed = world.crash(point, passes, chosen.uniform(1, 8))
            if where is None:  # it ended in order, which is no kill
                world.look(confirmed, chosen)
                where, confirmed = world.crash("shutdown", 1, chosen.uniform(1, 8))
                assert where is not None, "every stop passes that"
            killed.append(where)
            print(f"{number}: {point} {passes}: killed {where}", flush=True)
            assert not world.process.found("table_failed"), world.process.report()
            world.look(confirmed, chosen)
            if chosen.random() < 0.1:
                chosen.choice(list(world.sources.values())).execute(f"TRUNCATE {chosen.choice(list(TABLES))}")
    world.finish(spark_session)
    if TALLY is not None:
        TALLY.add(killed, seed, catalog)
        print(TALLY.render(), flush=True)
