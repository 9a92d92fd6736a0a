"""Whatever stops a start at a source is found by `check` before, each condition on a real server.

For each one the server is brought into it; `check` names it with what mends it, and a start stops by the same cause.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import pytest

from kuvasz.app import App
from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.config.sources import resolve
from kuvasz.lake.iceberg import lake as iceberg_lake
from kuvasz.lake.memory.lake import MemoryLake
from kuvasz.source import conninfo, slots
from kuvasz.source.check.finding import Finding
from kuvasz.state.ports import StoredRecord
from kuvasz.state.store import state_of
from kuvasz.verbs import check
from tests.support.lake import MemoryPipeline
from tests.support.local_lake import LocalEngine
from tests.support.postgres import Database, Server, create_database, drop_database, new_data_folder
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgres

NAME = "kuvasz_shop_eu"
ROLE = "condition_role"

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, n int, v text); INSERT INTO items VALUES (1, 1, 'x');"


@dataclasses.dataclass(kw_only=True)
class World:
    """A source that is about to be brought into a condition."""

    database: Database
    folder: Path
    stack: contextlib.ExitStack
    url: str = ""
    entry: Mapping[str, Any] | None = None
    tables: Mapping[str, Any] | None = None

    def execute(self, statement: str) -> list[tuple]:
        return self.database.execute(statement)

    def as_role(self, *, may: str = "LOGIN REPLICATION", grants: str = "GRANT SELECT ON items TO {role}") -> None:
        """Have kuvasz come as a role of its own."""
        self.execute(f"CREATE ROLE {ROLE} {may}")
        self.stack.callback(self.execute, f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")
        if grants:
            self.execute(grants.format(role=ROLE))
        self.url = self.database.server.url(self.database.name, user=ROLE)

    def config(self) -> Config:
        lake = {"uri": "jdbc:sqlite:c.db", "warehouse": "wh", "namespace": "shop"}
        tables = self.tables or {"items": self.entry}
        group = {"database": "shop", "urls": [{"url": self.url, "sid": "eu"}], "tables": dict(tables)}
        file = self.folder / "map.yaml"
        file.write_text(json.dumps({"lake": lake, "pipeline": {"state": "state"}, "databases": [group]}))
        return load(file, {}).config


@dataclasses.dataclass(frozen=True, kw_only=True)
class Condition:
    """One condition that stops a source, or a table of it.

    Attributes:
        name: Of the test.
        check: The name of the finding.
        found: What its value says.
        mend: What its fix says.
        stops: What the start says.
        arrange: Brings the source into it.
        is_blocking: A start is stopped for good until somebody mends it; else it waits, and goes on by itself.
    """

    name: str
    check: str
    found: str
    mend: str
    stops: str
    arrange: Callable[[World], object]
    is_blocking: bool = True


def sql(*statements: str, **entry: Any) -> Callable[[World], None]:
    """Bring a source into a condition by statements and a table's entry in the map."""

    def arrange(world: World) -> None:
        for statement in statements:
            world.execute(statement)
        if entry:
            world.entry = entry

    return arrange


def other_url(**parts: str) -> Callable[[World], None]:
    def arrange(world: World) -> None:
        for before, after in parts.items():
            world.url = re.sub({"port": r":\d+/", "name": r"/[^/]+$", "user": r"postgres@"}[before], after, world.url)

    return arrange


def wrong_password(world: World) -> None:
    world.as_role()
    world.execute(f"ALTER ROLE {ROLE} PASSWORD 'right'")
    ((file,),) = world.execute("SHOW hba_file")
    before = Path(file).read_text(encoding="utf-8")
    Path(file).write_text(f"host all {ROLE} 127.0.0.1/32 scram-sha-256\n{before}", encoding="utf-8")
    world.execute("SELECT pg_reload_conf()")

    def restore() -> None:
        Path(file).write_text(before, encoding="utf-8")
        world.execute("SELECT pg_reload_conf()")

    world.stack.callback(restore)
    world.url = world.url.replace(f"{ROLE}@", f"{ROLE}:wrong@")
    wait_until(lambda: not can_connect(world.url), "the password is asked for")


def can_connect(url: str) -> bool:
    with contextlib.suppress(psycopg.OperationalError), psycopg.connect(url):
        return True
    return False


def slot_in_use(world: World) -> None:
    world.execute(f"CREATE PUBLICATION {NAME} FOR TABLE items")
    slots.create(conninfo.replication_conninfo(world.url), NAME).close()
    reader = psycopg.pq.PGconn.connect(conninfo.replication_conninfo(world.url).encode())
    world.stack.callback(reader.finish)
    reader.exec_(
        f"START_REPLICATION SLOT {NAME} LOGICAL 0/0 (proto_version '1', publication_names '{NAME}')".encode()
    )


def slot_of_another_database(world: World) -> None:
    other = create_database(world.database.server)
    world.stack.callback(drop_database, other)
    slots.create(conninfo.replication_conninfo(other.url), NAME).close()


def foreign_publication(world: World) -> None:
    world.execute("CREATE TABLE others (id int PRIMARY KEY)")
    world.execute(f"CREATE PUBLICATION {NAME} FOR TABLE others WITH (publish_via_partition_root)")
    world.as_role()


def schema_without_usage(world: World) -> None:
    world.execute("CREATE SCHEMA closed; CREATE TABLE closed.items (id int PRIMARY KEY)")
    world.execute(f"CREATE PUBLICATION {NAME} FOR TABLE ONLY closed.items WITH (publish_via_partition_root)")
    world.tables = {"closed.items": None}
    world.as_role(grants="GRANT SELECT ON closed.items TO {role}")


def partition_below_its_root(world: World) -> None:
    world.execute("CREATE TABLE root (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    world.execute("CREATE TABLE leaf PARTITION OF root FOR VALUES FROM (0) TO (10)")
    world.tables = {"root": None, "leaf": None}


def physical_slot(world: World) -> None:
    world.execute(f"SELECT pg_create_physical_replication_slot('{NAME}')")
    world.stack.callback(world.execute, f"SELECT pg_drop_replication_slot('{NAME}')")


def owning(may: str = "LOGIN REPLICATION", *statements: str) -> Callable[[World], None]:
    """Have kuvasz come as a role that may make the publication."""

    def arrange(world: World) -> None:
        world.as_role(may=may)
        world.stack.callback(world.execute, "ALTER TABLE items OWNER TO postgres")
        world.execute(f"GRANT CREATE ON DATABASE {world.database.name} TO {ROLE}; ALTER TABLE items OWNER TO {ROLE}")
        for statement in statements:
            world.execute(statement)

    return arrange


def published(world: World) -> None:
    """Have all be as it should, but for SELECT."""
    world.execute(f"CREATE PUBLICATION {NAME} FOR TABLE ONLY items WITH (publish_via_partition_root)")
    world.as_role(grants="")


KEYLESS = "ALTER TABLE items DROP CONSTRAINT items_pkey"

CONDITIONS = [
    Condition(name="the server does not answer", check="reachable", found="refused", mend="server", stops="refused",
              arrange=other_url(port=":1/")),
    Condition(name="the database is not there", check="reachable", found='database "nix"', mend="",
              stops='database "nix"', arrange=other_url(name="/nix")),
    Condition(name="the role is not there", check="reachable", found='role "nix"', mend="", stops='role "nix"',
              arrange=other_url(user="nix@")),
    Condition(name="the password is wrong", check="reachable", found="password", mend="password", stops="password",
              arrange=wrong_password),
    Condition(name="the role may not log in", check="reachable", found="log in", mend="", stops="log in",
              arrange=lambda world: world.as_role(may="NOLOGIN")),
    Condition(name="the role has no REPLICATION", check="replication_privilege", found="no", mend="REPLICATION",
              stops="(?i)replication", arrange=owning("LOGIN")),
    Condition(name="no SELECT", check="select", found="denied", mend="GRANT SELECT", stops="denied",
              arrange=published),
    Condition(name="no USAGE on the schema", check="select", found="denied", mend="GRANT USAGE", stops="denied",
              arrange=schema_without_usage),
    Condition(name="rows are hidden by policies", check="row_security", found="hides rows", mend="BYPASSRLS",
              stops="row-level security|row security|hides",
              arrange=owning("LOGIN REPLICATION", "ALTER TABLE items ENABLE ROW LEVEL SECURITY",
                             "ALTER TABLE items FORCE ROW LEVEL SECURITY")),
    Condition(name="the publication cannot be made", check="publication", found="no CREATE|does not own",
              mend="CREATE PUBLICATION", stops="CREATE on|owner|own", arrange=lambda world: world.as_role()),
    Condition(name="the publication is another's and lacks the table", check="publication", found="does not own",
              mend="ALTER PUBLICATION", stops="own", arrange=foreign_publication),
    Condition(name="somebody reads the slot", check="slot_in_use", found="by pid", mend="pg_terminate_backend",
              stops="in use by", arrange=slot_in_use, is_blocking=False),
    Condition(name="the slot is of another database", check="slot", found="of database", mend="slot",
              stops="of database", arrange=slot_of_another_database),
    Condition(name="the slot is physical", check="slot", found="physical", mend="pg_drop_replication_slot",
              stops="physical", arrange=physical_slot),
    Condition(name="the table is missing", check="table", found="missing", mend="create it", stops="no such table",
              arrange=sql("DROP TABLE items")),
    Condition(name="the table has another case", check="table", found="missing", mend="did you mean public.Items",
              stops="no such table", arrange=sql('ALTER TABLE items RENAME TO "Items"')),
    Condition(name="it is a view", check="table", found="view", mend="take it out", stops="view",
              arrange=sql("ALTER TABLE items RENAME TO t", "CREATE VIEW items AS SELECT * FROM t")),
    Condition(name="it is unlogged", check="table", found="unlogged", mend="", stops="unlogged",
              arrange=sql("ALTER TABLE items SET UNLOGGED")),
    Condition(name="it has no key", check="key", found="no primary key|nothing|no ", mend="PRIMARY KEY|REPLICA",
              stops="no primary key|identif|key", arrange=sql(KEYLESS)),
    Condition(name="its replica identity is nothing", check="key", found="NOTHING", mend="REPLICA IDENTITY DEFAULT",
              stops="NOTHING", arrange=sql("ALTER TABLE items REPLICA IDENTITY NOTHING")),
    Condition(name="its key may be NULL", check="key|map", found="NOT NULL|NULL|key", mend="", stops="NULL|key",
              arrange=sql(KEYLESS, "ALTER TABLE items ALTER id DROP NOT NULL", key=["id"])),
    Condition(name="a column is missing", check="map", found="nix", mend="map", stops="nix",
              arrange=sql(columns=["id", "nix"])),
    Condition(name="a column that is left out is missing", check="map", found="nix", mend="map", stops="nix",
              arrange=sql(exclude=["nix"])),
    Condition(name="the key is left out", check="map", found="id", mend="map", stops="id",
              arrange=sql(columns=["n"])),
    Condition(name="a key is masked to one value", check="map", found="id", mend="hmac", stops="id",
              arrange=sql(mask={"id": "redact"})),
    Condition(name="a column is called as kuvasz's own", check="lake_table", found="sid", mend="exclude", stops="sid",
              arrange=sql("ALTER TABLE items ADD sid text")),
    Condition(name="a column is called as one of a changelog", check="lake_table", found="_op", mend="exclude",
              stops="_op", arrange=sql("ALTER TABLE items ADD _op text", type="changelog")),
    Condition(name="deleted rows would be found by no key", check="lake_table", found="no key", mend="primary key",
              stops="no key", arrange=sql(KEYLESS, "ALTER TABLE items REPLICA IDENTITY FULL", deletes="soft")),
    Condition(name="a column is called as a part of another", check="lake_table", found="tags.element",
              mend="exclude", stops="tags.element",
              arrange=sql('ALTER TABLE items ADD tags text[], ADD "tags.element" text')),
    Condition(name="a partition's column has another type", check="lake_table", found="day", mend="map", stops="day",
              arrange=sql(partition_by=["days(v)"])),
    Condition(name="a partition's column is missing", check="lake_table", found="nix", mend="map", stops="nix",
              arrange=sql(partition_by=["nix"])),
    Condition(name="an order's column is missing", check="lake_table", found="nix", mend="map", stops="nix",
              arrange=sql(sort_by=["nix"])),
    Condition(name="a text is to be a decimal", check="map", found="decimal", mend="string", stops="decimal",
              arrange=sql(types={"v": "decimal(3,1)"})),
    Condition(name="a type's column is missing", check="map", found="nix", mend="", stops="nix",
              arrange=sql(types={"nix": "string"})),
    Condition(name="a partition stands beside its root", check="partition", found="partition|part of|within|root",
              mend="", stops="root", arrange=partition_below_its_root),
]  # fmt: skip


@contextlib.contextmanager
def prepared(database: Database, folder: Path, condition: Condition) -> Iterator[World]:
    with contextlib.ExitStack() as stack:
        world = World(database=database, folder=folder, stack=stack, url=database.url)
        world.execute(ITEMS)
        condition.arrange(world)
        yield world


def named(found: list[Finding], condition: Condition) -> Finding:
    """The finding of a condition; there may be others that follow from it."""
    wrong = [one for one in found if not one.ok]
    mine = [one for one in wrong if re.fullmatch(condition.check, one.check)]
    assert mine, f"check does not find it: {[(one.check, one.value) for one in wrong]}"
    matching = [one for one in mine if re.search(condition.found, one.value)]
    assert matching, [(one.check, one.value) for one in mine]
    return matching[0]


class LocalPipeline(MemoryPipeline):
    """kuvasz in a thread, with the lake of production without Spark."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, None)  # type: ignore[arg-type]

    async def _main(self) -> int:
        self._loop = asyncio.get_running_loop()
        with mock.patch.object(iceberg_lake, "Engine", LocalEngine):
            lake = iceberg_lake.IcebergLake(self.config, state_of(self.config).witness)
        self.app = App(self.config, lake=lake)
        self._ready.set()
        return await self.app.run()


class KeptPipeline(MemoryPipeline):
    """kuvasz in a thread, with a lake that outlives it."""

    def __init__(self, config: Config, lake: MemoryLake) -> None:
        super().__init__(config, None)  # type: ignore[arg-type]
        self.lake = lake

    async def _main(self) -> int:
        self._loop = asyncio.get_running_loop()
        self.app = App(self.config, lake=self.lake)
        self._ready.set()
        return await self.app.run()


def why_stopped(pipeline: MemoryPipeline) -> str:
    """What a start says that cannot go on."""
    pipeline.__enter__()
    wait_until(lambda: pipeline.errors() or not pipeline._thread.is_alive(), "it stops")
    told = pipeline.errors()
    try:
        pipeline.stop()
    except BaseException as error:  # noqa: BLE001 (it is what is asked for)
        told.append("".join(traceback.format_exception(error)))
    return "\n".join(told)


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda one: one.name)
def test_what_stops_a_start_is_found_before(condition: Condition, database: Database, tmp_path: Path) -> None:
    with prepared(database, tmp_path, condition) as world:
        config = world.config()
        finding = named(check.of_sources(config, {"shop_eu"}), condition)
        assert finding.is_blocking is condition.is_blocking
        assert finding.fix, "a hint says what mends it"
        assert re.search(condition.mend, finding.fix), finding.fix
        told = why_stopped(LocalPipeline(config))
        assert re.search(condition.stops, told), told


@pytest.mark.parametrize(
    ("statement", "found", "mend"),
    [
        (f"SELECT pg_drop_replication_slot('{NAME}')", "is gone", "resync"),
        (f"DROP PUBLICATION {NAME}", "was dropped", "resync"),
        (
            f"SELECT pg_replication_slot_advance('{NAME}', pg_current_wal_insert_lsn())",
            "advanced by someone",
            "resync",
        ),
    ],
)
def test_what_is_missing_beside_the_rows_of_the_lake_is_found_before(
    statement: str, found: str, mend: str, database: Database, tmp_path: Path
) -> None:
    database.execute(ITEMS)
    with contextlib.ExitStack() as stack:
        world = World(database=database, folder=tmp_path, stack=stack, url=database.url)
        config, lake = world.config(), MemoryLake()
        (source,) = resolve(config)
        with KeptPipeline(config, lake) as pipeline:
            pipeline.wait_streaming()
            database.execute("UPDATE items SET n = 2")
            pipeline.wait_applied(database)

        def record() -> StoredRecord:
            return state_of(config).record(source.name)

        assert check._beside_lake(source, lake.positions, record) == []
        database.execute("UPDATE items SET n = 3; SELECT pg_switch_wal()")  # a slot is advanced up to what is flushed
        database.execute(statement)
        (finding,) = check._beside_lake(source, lake.positions, record)
        assert (finding.check, finding.is_blocking) == ("stream", True)
        assert found in finding.value
        assert mend in finding.fix
        assert found in why_stopped(KeptPipeline(config, lake))


#: What only a server of its own can be brought into: its settings, who is there already, the finding, the error.
OF_SERVER = [
    ({}, "slot", "slots", "1 of 1 used", "all replication slots are in use"),
    ({}, "sender", "senders", "1 of 1 used", "max_wal_senders"),
    ({"wal_level": "replica"}, "", "wal_level", "replica", "wal_level is replica"),
    ({"standby": "on"}, "", "recovery", "standby", "recovery|standby|read-only"),
]


def test_what_stops_a_start_at_a_whole_server_is_found_before(tmp_path: Path) -> None:
    few = {"max_replication_slots": "1", "max_wal_senders": "1"}
    server = Server(new_data_folder(), settings=few)
    server.start()
    try:
        for number, (settings, taken, name, found, stops) in enumerate(OF_SERVER):
            if settings:
                server.stop()
                if "standby" in settings:
                    (server.folder / "standby.signal").touch()
                    server.settings["wal_level"] = "logical"
                else:
                    server.settings |= settings
                server.start()
            database = Database(server, "postgres")
            if number == 0:
                database.execute(ITEMS)
            folder = tmp_path / str(number)
            folder.mkdir()
            with contextlib.ExitStack() as stack:
                if taken == "slot":
                    database.execute("SELECT pg_create_physical_replication_slot('other')")
                    stack.callback(database.execute, "SELECT pg_drop_replication_slot('other')")
                if taken == "sender":
                    other = psycopg.pq.PGconn.connect(conninfo.replication_conninfo(database.url).encode())
                    stack.callback(other.finish)
                world = World(database=database, folder=folder, stack=stack, url=database.url)
                wrong = [one for one in check.of_sources(world.config(), {"shop_eu"}) if not one.ok]
                (finding,) = [one for one in wrong if one.check == name]
                assert finding.is_blocking
                assert found in finding.value
                assert finding.fix
                told = why_stopped(LocalPipeline(world.config()))
                assert re.search(stops, told), told
    finally:
        server.stop("immediate")
        server.remove()
