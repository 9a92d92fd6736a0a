"""Random neglect: tables paused, renamed, unmapped, unpublished, changed; never streaming with a difference.

Each program draws steps that happen to a source, its publication, the map, the lake and kuvasz itself, and writes
between them. Some programs have a server of their own, which is put back to a backup or promoted at its state.
Whenever every table streams, the lake has to become what the source is; at the end every table has to stream, after
what the hints of those that stopped say. An error with a hint is no failure, silence with a difference is one.

The suite runs a few seeds, always the same. `make neglect MINUTES=10` draws new ones for as long, and `make neglect
SEED=7` runs one again; a failure prints its seed and its steps.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import os
import random
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kuvasz.config.model import OnLakeRewound
from kuvasz.config.names import object_name
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.errors import CheckError
from kuvasz.state.store import state_of
from kuvasz.state.tables import State
from kuvasz.verbs import verify
from tests.support import oracle
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.postgres import Database, create_database, drop_database
from tests.support.restore import Backup

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

SEEDS = (2, 7, 15)
STEPS = 14
PATIENCE_S = 120.0
PAUSES_S = (0.0, 0.0, 0.5, 3.0)  #: between steps: at once, or when kuvasz has got somewhere
EU = "shop_eu"
PUBLICATION = object_name("shop", "eu")
OPERATIONS = "insert, update, delete, truncate"


class Table:
    """A source table under whatever name it has now."""

    def __init__(self, target: str, *, has_key: bool) -> None:
        self.target = target
        self.name = target
        self.mapped = target
        self.has_key = has_key
        self.columns = ["n"]
        self.is_parted = target == "parted"
        self.parts: list[int] = []  #: hundreds of ids that have a partition
        self.is_mapped = True
        self.is_paused = False
        self.namespace = "shop"  #: of the target, which a map may move and move back
        self.even_alone = False  #: a filter of the map

    @property
    def identifier(self) -> str:
        return f"{self.namespace}.{self.target}"

    @property
    def entry(self) -> dict[str, str]:
        """What the map says of it."""
        return {"target": self.identifier} | ({"filter": "id % 2 = 0"} if self.even_alone else {})

    @property
    def where(self) -> str:
        """The rows of the source that are to be in the lake."""
        return "id % 2 = 0" if self.even_alone else "true"


class Members(Table):
    """Several source tables that are one target, by a `partitions_regex` that takes them in, or none for a while."""

    def __init__(self) -> None:
        super().__init__("events", has_key=True)
        self.is_taken = True
        self.names: list[str] = []

    @property
    def entry(self) -> dict[str, str]:
        return {"partitions_regex": "events_[0-9]+" if self.is_taken else "nothing_[0-9]+"}


class Neglect:
    """One program on one database."""

    def __init__(self, seed: int, database: Database, lake: LakeFolder, *, owns_server: bool = False) -> None:
        self.owns_server = owns_server
        self.random = random.Random(seed)  # noqa: S311 (programs, not secrets)
        self.database = database
        self.lake = lake
        self.tables = [Table("items", has_key=True), Table("others", has_key=True), Table("bag", has_key=False)]
        self.parted = Table("parted", has_key=True)
        if self.random.random() < 0.5:
            self.tables.append(self.parted)
        self.members = Members()
        if not owns_server and self.random.random() < 0.4:
            self.tables.append(self.members)
        self.on_slot_lost = self.random.choice(["resync", "repair"])
        self.on_lake_rewound = self.random.choice(list(OnLakeRewound))
        self.backup: Backup | None = None
        self.backed_up: list[Table] = []
        self.pipeline: Pipeline | None = None
        self.done: list[str] = []
        self._began = time.monotonic()
        self._stack = contextlib.ExitStack()
        self._number = 0

    # The source

    def note(self, *steps: str) -> None:
        self.done += [f"{time.monotonic() - self._began:6.1f} s: {step}" for step in steps]

    def execute(self, *statements: str) -> None:
        self.note(*statements)
        with self.database.connect() as session:
            for statement in statements:
                session.execute(statement)

    def create(self) -> None:
        if self.random.random() < 0.3:
            self.execute(f"CREATE PUBLICATION {PUBLICATION} FOR ALL TABLES WITH (publish_via_partition_root = true)")
        for table in self.tables:
            if table is self.members:
                self.add_member()
                continue
            key = " PRIMARY KEY" if table.has_key else ""
            parted = " PARTITION BY RANGE (id)" if table.is_parted else ""
            self.execute(f"CREATE TABLE {table.name} (id int{key}, n text){parted}")
            if table.is_parted:
                self.execute(f"CREATE TABLE rest PARTITION OF {table.name} DEFAULT")
                self.add_part()
            self.execute(f"INSERT INTO {table.name} SELECT i, 'first' FROM generate_series(1, 50) i")
            if not table.has_key:
                self.execute(f"ALTER TABLE {table.name} REPLICA IDENTITY FULL")

    def write(self) -> None:
        """Change every table a little, some of them much."""
        for table in self.tables:
            self._number += 1
            if table.is_parted:
                self.write_parted()
                continue
            if table is self.members:
                self.write_members()
                continue
            column, value = self.random.choice(table.columns), f"'{self._number}'"
            some = self.random.randrange(2, 9)
            statements = [
                f"INSERT INTO {table.name} (id, {column}) SELECT max(id) + i, {value}"
                f" FROM {table.name}, generate_series(1, 3) i GROUP BY i",
                f"UPDATE {table.name} SET {column} = {value} WHERE id % {some} = 0",
                f"DELETE FROM {table.name} WHERE id % {self.random.randrange(20, 40)} = 1",
                f"UPDATE {table.name} SET id = (SELECT max(id) + 1 FROM {table.name})"
                f" WHERE id = (SELECT min(id) FROM {table.name})",
            ]
            self.execute(*self.random.sample(statements, self.random.randrange(1, 4)))

    def add_member(self) -> None:
        self._number += 1
        name = f"events_{self._number}"
        self.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n text)", *self._more_of(name))
        self.members.names.append(name)

    def write_members(self) -> None:
        if not self.members.names or self.random.random() < 0.1:
            self.add_member()
        for name in self.members.names:
            self.execute(*self._more_of(name), f"UPDATE {name} SET n = '{self._number}' WHERE id % 3 = 0")

    def _more_of(self, name: str) -> list[str]:
        self._number += 1
        first = 1000 * self._number  # ids are unique over all members: the target knows rows by them
        return [f"INSERT INTO {name} SELECT i, 'new' FROM generate_series({first}, {first + 5}) i"]

    def write_parted(self) -> None:
        table, value = self.parted, f"'{self._number}'"
        column = self.random.choice(table.columns)
        first = 1000 * (self._number + 1)
        statements = [
            f"INSERT INTO {table.name} (id, {column}) SELECT {first} + i, {value} FROM generate_series(1, 3) i",
            f"UPDATE {table.name} SET {column} = {value} WHERE id % 7 = {self.random.randrange(7)}",
            f"DELETE FROM {table.name} WHERE id % 30 = {self.random.randrange(30)}",
        ]
        if table.parts:
            part = self.random.choice(table.parts)
            statements.append(
                f"INSERT INTO {table.name} (id, {column}) SELECT {100_000_000 + 100 * part} + i, {value}"
                f" FROM generate_series(1, 99) i ON CONFLICT (id) DO UPDATE SET {column} = {value}"
            )
        self.execute(*self.random.sample(statements, self.random.randrange(1, len(statements) + 1)))

    def add_part(self) -> None:
        table = self.parted
        self._number += 1
        first = 100_000_000 + 100 * self._number
        column = self.random.choice(table.columns)
        bounds = f"FROM ({first}) TO ({first + 100})"
        self.execute(
            f"CREATE TABLE part_{self._number} PARTITION OF {table.name} FOR VALUES {bounds}",
            f"INSERT INTO {table.name} (id, {column}) SELECT i, 'part' FROM generate_series({first}, {first + 40}) i",
        )
        table.parts.append(self._number)

    def change_parts(self) -> None:
        """Truncate, detach, drop, attach or make a partition."""
        table = self.parted
        if table not in self.tables:
            return
        if not table.parts or self.random.random() < 0.3:
            self.add_part()
            return
        part = self.random.choice(table.parts)
        first = 100_000_000 + 100 * part
        way = self.random.choice(["truncate", "detach", "drop", "again"])
        if way == "truncate":
            self.execute(f"TRUNCATE part_{part}")
            return
        if way == "drop":
            self.execute(f"DROP TABLE part_{part}")
            table.parts.remove(part)
            return
        self.execute(f"ALTER TABLE {table.name} DETACH PARTITION part_{part}")
        table.parts.remove(part)
        if way == "again":
            self.execute(f"DELETE FROM part_{part} WHERE id % 3 = 0")
            if self.random.random() < 0.5:
                self.write()
            self.execute(
                f"ALTER TABLE {table.name} ATTACH PARTITION part_{part} FOR VALUES FROM ({first}) TO ({first + 100})"
            )
            table.parts.append(part)

    def restore(self) -> None:
        """Take a backup of the server, or put it back, or promote it."""
        if self.backup is None:
            self.note("back up")
            self.backed_up = copy.deepcopy(self.tables)
            self.backup = Backup(self.database.server)
            return
        is_promoted = self.random.random() < 0.5
        self.note("promote the backup" if is_promoted else "put the backup back")
        self.backup.put_back(is_promoted=is_promoted)
        for table, then in zip(self.tables, self.backed_up, strict=True):
            table.name, table.columns, table.parts = then.name, list(then.columns), list(then.parts)
        if is_promoted:  # a backup of before would be one of another past
            self.forget_backup()

    def forget_backup(self) -> None:
        if self.backup is not None:
            self.backup.remove()
        self.backup = None

    def some(self) -> Table:
        return self.random.choice([table for table in self.tables if table is not self.members])

    def truncate(self) -> None:
        table = self.some()
        column = self.random.choice(table.columns)
        self.execute(f"TRUNCATE {table.name}", f"INSERT INTO {table.name} (id, {column}) VALUES (1, 'after')")

    def replace(self) -> None:
        """Drop a table and make another one of its name."""
        table = self.some()
        if table.is_parted:
            return
        key = " PRIMARY KEY" if table.has_key else ""
        self.execute(f"DROP TABLE {table.name}", f"CREATE TABLE {table.name} (id int{key}, n text)",
                     f"INSERT INTO {table.name} SELECT i, 'anew' FROM generate_series(1, 20) i")  # fmt: skip
        if not table.has_key:
            self.execute(f"ALTER TABLE {table.name} REPLICA IDENTITY FULL")
        table.columns = ["n"]

    def rename(self) -> None:
        table = self.some()
        self._number += 1
        name = self.random.choice([f"{table.target}_{self._number}", table.target])
        if name != table.name:
            self.execute(f"ALTER TABLE {table.name} RENAME TO {name}")
            table.name = name

    def unpublish(self) -> None:
        """Take a table out of the publication, or what it sends of it, for a while."""
        if not self.database.execute(f"SELECT 1 FROM pg_publication WHERE pubname = '{PUBLICATION}'"):
            return
        ((is_for_all,),) = self.database.execute(
            f"SELECT puballtables FROM pg_publication WHERE pubname = '{PUBLICATION}'"
        )
        alter, name = f"ALTER PUBLICATION {PUBLICATION}", self.some().name
        ways = [(f"{alter} SET (publish = 'insert')", f"{alter} SET (publish = '{OPERATIONS}')")]
        published = {row[0] for row in self.database.execute("SELECT tablename FROM pg_publication_tables")}
        if not is_for_all and name in published and name != self.parted.name:
            table = next(table for table in self.tables if table.name == name)
            if table.has_key:  # else the server refuses updates: REPLICA IDENTITY FULL wants every column
                ways.append((
                    f"{alter} DROP TABLE {name}; {alter} ADD TABLE ONLY {name} (id, {table.columns[0]})",
                    f"{alter} DROP TABLE {name}; {alter} ADD TABLE ONLY {name}",
                ))  # fmt: skip
            ways.append((f"{alter} DROP TABLE {name}", f"{alter} ADD TABLE ONLY {name}"))
        out, back = self.random.choice(ways)
        self.execute(out)
        self.write()
        # Meanwhile kuvasz may have put it right.
        with contextlib.suppress(Exception):
            self.execute(back)

    def change_columns(self) -> None:
        table = self.some()
        self._number += 1
        column = f"c{self._number}"
        if len(table.columns) > 1 and self.random.random() < 0.4:
            old = self.random.choice(table.columns)
            if self.random.random() < 0.5:
                self.execute(f"ALTER TABLE {table.name} DROP {old}")
                table.columns.remove(old)
            else:
                self.execute(f"ALTER TABLE {table.name} RENAME {old} TO {column}")
                table.columns[table.columns.index(old)] = column
            return
        default = self.random.choice(["", " DEFAULT 'some'", " DEFAULT md5(random()::text)"])
        self.execute(f"ALTER TABLE {table.name} ADD {column} text{default}")
        table.columns.append(column)

    # kuvasz

    def start(self) -> None:
        """Start with a map that lacks a table now and then, or has a name of before."""
        for table in self.tables:
            table.is_mapped = self.random.random() < 0.85
            if self.random.random() < 0.5:
                table.mapped = table.name
            if not table.is_paused and table is not self.members and self.random.random() < 0.15:
                table.namespace = "archive" if table.namespace == "shop" else "shop"
            if table.has_key and not table.is_parted and table is not self.members and self.random.random() < 0.15:
                table.even_alone = not table.even_alone
        self.members.is_taken = self.random.random() < 0.8
        self._start()

    def _start(self) -> None:
        if not any(table.is_mapped for table in self.tables):
            self.tables[0].is_mapped = True
        mapped = {table.mapped: table.entry for table in self.tables if table.is_mapped}
        self.note(f"start with {mapped}")
        (entry,) = group({"eu": self.database}, mapped)
        config = self.lake.config([entry | {"on_slot_lost": self.on_slot_lost}])
        rewound = config.lake.model_copy(update={"on_lake_rewound": self.on_lake_rewound})
        config = config.model_copy(update={"lake": rewound})
        self._stack.enter_context(state_of(config).own("replicates"))
        self.pipeline = self._stack.enter_context(Pipeline(config, self.lake))

    def stop(self) -> None:
        self.note("stop")
        self._stack.close()
        self._stack = contextlib.ExitStack()
        self.pipeline = None

    def restart(self) -> None:
        self.stop()
        for _ in range(self.random.randrange(3)):
            self.random.choice([self.write, self.rename, self.change_columns, self.unpublish])()
        self.start()

    def pause(self) -> None:
        table = self.some()
        if table.is_mapped:
            verb = "resume" if table.is_paused else "pause"
            self.note(f"{verb} {table.target}")
            self.pipeline.tell(verb, table.identifier, EU)
            table.is_paused = not table.is_paused

    def resync(self) -> None:
        table = self.some()
        if table.is_mapped:
            self.note(f"resync {table.target}")
            self.pipeline.tell("resync", table.identifier, EU)

    def roll_back(self) -> None:
        """Set a table back in the lake, while kuvasz runs."""
        table = self.some()
        name = f"{self.lake.catalog}.{table.identifier}"
        session = self.lake.session
        with contextlib.suppress(Exception):  # it is not there yet, or someone commits at the same time
            loaded = session._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session._jsparkSession, name)
            ids = [row.snapshot_id for row in session.sql(f"SELECT snapshot_id FROM {name}.history").collect()]
            loaded.manageSnapshots().rollbackTo(self.random.choice(ids)).commit()
            self.note(f"roll {table.identifier} back in the lake")

    def start_second(self) -> None:
        """Someone starts kuvasz once more on the same state folder: refused, and nothing else happens."""
        self.note("start a second one")
        command = [sys.executable, "-m", "kuvasz", "--config", str(self.lake.folder / "map.yaml")]
        second = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert (second.returncode, "is in use: " in second.stderr) == (2, True), second

    def revive(self) -> None:
        """Where kuvasz ended because none of the tables can be replicated, do what the hints say and start again."""
        if self.pipeline.exit_code == CheckError.exit_code:
            errors = self.pipeline.errors()
            assert errors, "it ended without an error"
            assert all("kuvasz resync" in error for error in errors), errors
            self.note(f"ended: {errors}")
            self.stop()
            for table in [table for table in self.tables if table.is_mapped]:
                self.note(f"resync {table.target}")
                command = [sys.executable, "-m", "kuvasz", "resync", "--table", table.identifier]
                subprocess.run([*command, "--config", str(self.lake.folder / "map.yaml")], check=True)
            self._start()

    def wait(self) -> None:
        """Have kuvasz get on for a while, and look at what it shows."""
        self.look(self.random.choice([0.5, 5.0, 20.0]))

    # What has to be true

    def difference(self, table: Table) -> str:
        if table is self.members:
            return self.difference_of_members()
        source = oracle.source_rows(self.database.url, table.name, sid="eu", where=table.where)
        lake = oracle.lake_rows_pyiceberg(self.lake.pyiceberg, table.identifier, catalog=self.lake.catalog)
        # A column that was dropped stays in the lake, and one that the source has with NULLs alone may come late.
        lake = lake.select(source.columns)
        return "" if source.rows == lake.rows else oracle.difference(source, lake, key=("id",))

    def difference_of_members(self) -> str:
        if not self.members.is_taken:
            return ""
        found = [oracle.source_rows(self.database.url, name, sid="eu") for name in self.members.names]
        lake = oracle.lake_rows_pyiceberg(self.lake.pyiceberg, self.members.identifier, catalog=self.lake.catalog)
        lake = lake.select(found[0].columns)
        rows = sum((one.rows for one in found), collections.Counter())
        return "" if rows == lake.rows else f"{rows.total()} rows at the source, {lake.rows.total()} in the lake"

    def states(self) -> dict[str, State]:
        ended = self.pipeline.error or self.pipeline.exit_code
        assert ended is None, f"kuvasz ended: {ended!r} {self.pipeline.errors()}"
        return {target: state for (_, target), state in self.pipeline.states().items()}

    def look(self, patience_s: float) -> bool:
        """Return whether every table streams and is as its source within a while; a difference that stays fails."""
        away = () if self.members.is_taken else (self.members,)
        mapped = [table for table in self.tables if table.is_mapped and table not in away]
        differing: dict[str, str] = {}
        streaming_since, end = time.monotonic(), time.monotonic() + patience_s
        while time.monotonic() < end or (differing and time.monotonic() < streaming_since + PATIENCE_S):
            if self.pipeline.exit_code == CheckError.exit_code:
                return False
            if any(self.states().get(table.identifier) is not State.STREAMING for table in mapped):
                streaming_since, differing = time.monotonic(), {}
                if time.monotonic() >= end:
                    return False
            else:
                differing = {table.target: found for table in mapped if (found := self.difference(table))}
                if not differing and all(state is State.STREAMING for state in self.states().values()):
                    return True
            time.sleep(0.2)
        assert not differing, f"streaming with a difference: {differing}"
        return False

    def finish(self) -> None:
        """Have everything as it should be, do what hints say, and compare."""
        self.stop()
        for table in self.tables:
            table.is_mapped, table.mapped = True, table.name
        self.members.is_taken, self.members.mapped = True, self.members.target
        self._start()
        for table in self.tables:
            if table.is_paused:
                self.pipeline.tell("resume", table.identifier, EU)
        self.write()
        end = time.monotonic() + 4 * PATIENCE_S
        while not self.look(30.0):
            self.revive()
            assert time.monotonic() < end, f"never at rest: {self.states()} {self.pipeline.errors()}"
            for state in self.pipeline.app.states.snapshot():
                if state.state is State.ERROR:
                    assert state.error.hint, f"an error without a hint: {state.error}"
                    verb = "resync" if "kuvasz resync" in str(state.error) else "retry"
                    self.note(f"{verb} {state.target}: {state.error}")
                    self.pipeline.tell(verb, state.target, EU)
        self.write()
        assert self.look(PATIENCE_S), f"never equal: {self.states()} {self.pipeline.errors()}"
        for report in verify.reports(self.pipeline.config, session=self.lake.session):
            assert (report.left, report.error) == (0, ""), report

    def run(self) -> None:
        steps: list[Callable[[], None]] = [
            self.write, self.write, self.rename, self.unpublish, self.change_columns, self.restart, self.pause,
            self.resync, self.wait, self.wait, self.change_parts, self.roll_back, self.start_second, self.truncate,
            self.replace, self.restart,
        ]  # fmt: skip
        if self.owns_server:
            steps += [self.restore] * 4
        with contextlib.ExitStack() as end:
            end.callback(self.forget_backup)
            end.callback(self.stop)
            self.create()
            self._start()
            for _ in range(STEPS):
                self.revive()
                self.random.choice(steps)()
                self.write()
                time.sleep(self.random.choice(PAUSES_S))
            self.finish()


def run(server: EmbeddedPostgres, session: object, seed: int, folder: Path) -> None:
    """Run one program; every third has a server of its own."""
    lake, owns_server = LakeFolder(session), seed % 3 == 0
    with own_server(folder / f"server-{seed}") if owns_server else contextlib.nullcontext(server) as where:
        program = Neglect(seed, database := create_database(where), lake, owns_server=owns_server)
        try:
            program.run()
        finally:
            print(f"\nseed {seed}:", *program.done, sep="\n  ")  # pytest shows it if it fails
            with contextlib.suppress(Exception):
                drop_database(database)
            shutil.rmtree(lake.folder, ignore_errors=True)


@contextlib.contextmanager
def own_server(folder: Path) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(folder, settings={"shared_buffers": "16MB"}) as server:
        yield server


def wanted(what: str) -> Iterator[int]:
    """Return the seeds to try: those named, or new ones for some minutes."""
    if what.startswith("seed="):
        yield from map(int, what.removeprefix("seed=").split(","))
        return
    end = time.monotonic() + float(what) * 60
    while time.monotonic() < end:
        yield random.SystemRandom().randint(1, 10**6)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at what the stream does not tell often, and try again soon."""
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 0.5)
    monkeypatch.setattr("kuvasz.worker.lake_patrol.PATROL_S", 2.0)
    monkeypatch.setattr("kuvasz.sync.context.requests._FIRST_RETRY_S", 2.0)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", SEEDS)
def test_neglected_tables_come_back_right(
    postgres18: EmbeddedPostgres, spark_session: object, tmp_path: Path, seed: int
) -> None:
    run(postgres18, spark_session, seed, tmp_path)


@pytest.mark.skipif("NEGLECT" not in os.environ, reason="make neglect")
@pytest.mark.timeout(0)
def test_new_neglect_for_some_minutes(postgres18: EmbeddedPostgres, spark_session: object, tmp_path: Path) -> None:
    tried, failed = 0, []
    for seed in wanted(os.environ["NEGLECT"]):
        tried += 1
        began = time.monotonic()
        try:
            run(postgres18, spark_session, seed, tmp_path)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 (the others are tried all the same)
            failed.append(seed)
            traceback.print_exception(error, file=sys.stdout)
        print(f"seed {seed}: {time.monotonic() - began:.0f} s", flush=True)
    print(f"{tried} programs, {len(failed)} failed: {failed}")
    assert not failed
