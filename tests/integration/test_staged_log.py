"""A whole kuvasz behind a staged log, with real sources and a real coordinator: the lake alone is in memory.

It outlives the pipelines: one that dies leaves what it has staged, and the next one reads it. Where one process reads
and another one applies, the pipelines are those that apply.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kuvasz.config.load import Loaded, load
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.source import conninfo
from kuvasz.state.store import state_of
from kuvasz.state.tables import State
from kuvasz.verbs import check
from tests.support.kept_files import KeptFiles, words_at
from tests.support.lake import group
from tests.support.postgres import Database, create_database, drop_database, needs
from tests.support.staged_pipeline import Lake, Reader, StagedPipeline
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgres

CONFIRMED = (
    "SELECT bool_and(confirmed_flush_lsn >= %s::pg_lsn) FROM pg_replication_slots WHERE slot_name LIKE 'kuvasz%%'"
)


class World:
    """A source, a coordinator and a lake, and one process after another."""

    def __init__(self, source: Database, coordinator: Database, folder: Path, *, is_shared: bool) -> None:
        self.source, self.coordinator, self.folder = source, coordinator, folder
        self.is_shared = is_shared
        self.reader: Reader | None = None
        self.lake = Lake()
        self.log = folder / "log"
        self.stores: list[Any] = []
        self.entries: dict[str, dict] = {}  #: table -> what the map says of it
        self.options: dict[str, str] = {}  #: of `pipeline`
        self.of_url: dict[str, str] = {}  #: what the map says of the source itself, its url as well
        source.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
        source.execute("CREATE TABLE parts (id int PRIMARY KEY, n int)")
        for table in ("items", "parts"):
            source.execute(f"INSERT INTO {table} SELECT i, 0 FROM generate_series(1, 50) i")

    def pipeline(self, *tables: str, log: bool = True, **of_group: str) -> StagedPipeline:
        """Return a process that applies; where there is one that reads, that runs from the first one on."""
        if not self.is_shared:
            return StagedPipeline(self.load("all", "replicates", tables, log=log, **of_group).config, self.lake)
        made = StagedPipeline(self.load("apply", "applies", tables, **of_group).config, self.lake)
        if self.reader is None:
            self.reader = Reader(self.load("read", "reads", tables, **of_group))
        return made

    def stop_reader(self) -> None:
        """End the process that reads, if there is one; the next pipeline has another one."""
        reader, self.reader = self.reader, None
        if reader is not None:
            reader.stop()

    def load(self, role: str, does: str, tables: Sequence[str], *, log: bool = True, **of_group: str) -> Loaded:
        """Return what a process of a role is started with; it has the lease."""
        cluster = {"coordinator": self.coordinator.url, "lease": "10m"} | ({"log": str(self.log)} if log else {})
        wanted = {table: self.entries.get(table) for table in tables or ("items", "parts")}
        (mapped,) = group({None: self.source}, wanted)
        mapped["urls"] = [one | self.of_url for one in mapped["urls"]]
        document = {
            "pipeline": {"state": str(self.folder / f"state-{role}"), "commit_interval": "20ms"} | self.options,
            "server": {"address": None},
            "cluster": {**cluster, "role": role, "log_interval": "20ms"},
            "lake": {"namespace": "shop"},
            "databases": [mapped | of_group],
        }
        file = self.folder / f"{role}.yaml"
        file.write_text(json.dumps(document))
        loaded = load(file, {})
        self.stores.append(state_of(loaded.config))
        self.stores[-1]._lease.role = loaded.config.cluster.role
        assert self.stores[-1]._lease.take(does, "") is None
        return loaded

    def in_coordinator(self, *words: str) -> set[str]:
        """Which words are in any of the coordinator's tables."""
        tables = self.coordinator.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'kuvasz'")
        asked = [f"SELECT t::text FROM kuvasz.{table} t" for (table,) in tables]
        texts = [str(text) for query in asked for (text,) in self.coordinator.execute(query)]
        return {word for word in words if any(word in text or word.encode().hex() in text for text in texts)}

    def wait_confirmed(self) -> None:
        """Wait until the source was told that it may let go of all that it has committed so far."""
        ((now,),) = self.source.execute("SELECT pg_current_wal_insert_lsn()::text")

        def is_confirmed() -> bool:
            with self.source.connect() as session:
                return session.execute(CONFIRMED, (now,)).fetchone() == (True,)

        wait_until(is_confirmed, f"confirmed to {now}")

    def wait_equal(self, *tables: str) -> None:
        def are_equal() -> bool:
            return all(
                sorted(tuple(row.values()) for row in self.lake.rows(f"shop.{table}").to_pylist())
                == sorted(self.source.execute(f"SELECT * FROM {table}"))
                for table in tables or ("items", "parts")
            )

        wait_until(are_equal, "the lake has what the source has")

    def wait_empty(self) -> None:
        wait_until(lambda: not list(self.log.iterdir()), "no object is left")
        assert self.coordinator.execute("SELECT count(*)::int FROM kuvasz.log_slice") == [(0,)]


# Slow: one that reads and one that applies do what one that does all does, and more.
@pytest.fixture(params=[pytest.param("all", marks=pytest.mark.slow), "read and apply"])
def world(
    database: Database, postgres18: EmbeddedPostgres, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[World]:
    needs(database.server, 15, "a staged log")
    coordinator = create_database(postgres18)
    made = World(database, coordinator, tmp_path, is_shared=request.param != "all")
    yield made
    made.stop_reader()
    for store in made.stores:
        store._database.close()
    drop_database(coordinator)


@pytest.fixture
def change(world: World) -> Callable[[], None]:
    def some() -> None:
        for table in ("items", "parts"):
            world.source.execute(f"UPDATE {table} SET n = n + 1 WHERE id % 2 = 0")
            world.source.execute(f"DELETE FROM {table} WHERE id = (SELECT min(id) FROM {table})")
            world.source.execute(f"INSERT INTO {table} SELECT max(id) + 1, 0 FROM {table}")

    return some


def test_a_source_lets_go_while_the_lake_is_away_and_the_next_process_goes_on(
    world: World, change: Callable[[], None]
) -> None:
    with world.pipeline() as first:
        first.wait_streaming()
        change()
        world.wait_equal()
        world.wait_empty()
        world.lake.is_away.set()
        for _ in range(5):
            change()
        world.source.execute("ALTER TABLE items ADD COLUMN name text")
        world.source.execute("UPDATE items SET name = 'item ' || id WHERE id % 3 = 0")
        world.wait_confirmed()
        change()
        world.wait_confirmed()
        first.die()
    assert list(world.log.iterdir())
    change()
    world.lake.is_away.clear()
    with world.pipeline() as second:
        world.wait_equal()
        assert not second.errors()
        world.wait_empty()
        change()
        world.wait_equal()


def test_tables_leave_and_come_back_beside_it(world: World, change: Callable[[], None]) -> None:
    with world.pipeline() as pipeline:
        pipeline.wait_streaming()
        pipeline.tell("pause", "shop.items", "shop")
        pipeline.wait_state("shop", "shop.items", State.PAUSED)
        change()
        world.wait_equal("parts")
        wait_until(pipeline.app.lot.views, "it is parked")
        change()
        pipeline.tell("resume", "shop.items", "shop")
        world.wait_equal()
        pipeline.tell("resync", "shop.parts", "shop")
        change()
        pipeline.wait_streaming()
        world.wait_equal()
        wait_until(lambda: not pipeline.app.lot.views(), "nothing is parked")
        world.wait_empty()
        assert not pipeline.errors()


def test_a_table_that_is_new_is_copied_beside_the_stream(world: World, change: Callable[[], None]) -> None:
    with world.pipeline("items") as first:
        first.wait_streaming()
        change()
        world.wait_equal("items")
        first.die()
    change()
    with world.pipeline() as second:
        change()
        second.wait_streaming()
        change()
        world.wait_equal()
        world.wait_empty()


def test_a_slot_that_is_lost_has_its_log_begun_anew(world: World, change: Callable[[], None]) -> None:
    with world.pipeline() as first:
        first.wait_streaming()
        world.lake.is_away.set()
        change()
        world.wait_confirmed()
        first.die()
    world.lake.is_away.clear()
    world.stop_reader()
    ((slot,),) = world.source.execute("SELECT slot_name FROM pg_replication_slots")
    world.source.execute(f"SELECT pg_drop_replication_slot('{slot}')")
    change()
    with world.pipeline(on_slot_lost="resync") as second:
        second.wait_streaming()
        world.wait_equal()
        world.wait_empty()
        assert second.app.states.get("shop.items", "shop").copies == 1


def test_a_slot_that_someone_advanced_is_told_also_after_a_kill(world: World, change: Callable[[], None]) -> None:
    with world.pipeline() as first:
        first.wait_streaming()
        change()
        world.wait_equal()
        first.die()
    world.stop_reader()
    wait_until(
        lambda: world.source.execute("SELECT 1 FROM pg_replication_slots WHERE NOT active"), "nobody reads the slot"
    )
    change()  # not before: who is about to die may stage it, and nothing is missing then
    ((end,),) = world.source.execute("SELECT pg_current_wal_insert_lsn()")
    flushed = f"SELECT pg_current_wal_flush_lsn() >= '{end}'"  # commits of these servers do not wait for it
    wait_until(lambda: world.source.execute(flushed) == [(True,)], "its WAL is written")
    world.source.execute(f"SELECT pg_replication_slot_advance(slot_name, '{end}') FROM pg_replication_slots")
    with world.pipeline() as second:
        wait_until(second.errors, "it is told")
        assert "was advanced by someone else" in second.errors()[0]


def test_what_was_staged_by_a_coordinator_that_is_gone_is_told(world: World, change: Callable[[], None]) -> None:
    """The source has let go of it, and nothing else says that the lake lacks anything."""
    with world.pipeline() as first:
        first.wait_streaming()
        change()
        world.wait_equal()
        world.lake.is_away.set()
        change()
        world.wait_confirmed()
        first.die()
    world.stop_reader()
    for (table,) in world.coordinator.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'kuvasz'"):
        if table != "version":
            world.coordinator.execute(f"TRUNCATE kuvasz.{table}")
    world.lake.is_away.clear()
    with world.pipeline() as second:
        wait_until(second.errors, "it is told")
        assert "changes before" in second.errors()[0]
        assert "may have been staged, and be nowhere else" in second.errors()[0]


@pytest.mark.parametrize("world", ["all"], indirect=True)
def test_who_leaves_the_log_out_too_early_is_refused(world: World, change: Callable[[], None]) -> None:
    with world.pipeline() as first:
        first.wait_streaming()
        world.lake.is_away.set()
        change()
        world.wait_confirmed()
        first.die()
    world.lake.is_away.clear()
    with pytest.raises(BaseException, match="has staged changes of shop"), world.pipeline(log=False) as second:
        second.wait_end()
    with world.pipeline() as third:
        third.wait_streaming()
        world.wait_equal()
        world.wait_empty()
    with world.pipeline(log=False) as fourth:
        fourth.wait_streaming()
        change()
        world.wait_equal()
    assert world.coordinator.execute("SELECT count(*)::int FROM kuvasz.log_source") == [(0,)]
    with world.pipeline() as fifth:
        fifth.wait_streaming()
        change()
        world.wait_equal()


@pytest.mark.parametrize("world", ["read and apply"], indirect=True)
def test_one_that_reads_goes_on_without_the_one_that_applies(world: World, change: Callable[[], None]) -> None:
    with world.pipeline() as first:
        first.wait_streaming()
        first.die()
    change()
    world.wait_confirmed()
    assert list(world.log.iterdir())
    world.stop_reader()
    change()
    with world.pipeline() as second:
        change()
        world.wait_equal()
        assert not second.errors()
        world.wait_empty()
        # Nothing of ours happens: how far the source is known to be goes on all the same.
        ((now,),) = world.source.execute("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8")
        wait_until(lambda: second.app.progress.confirmable("shop") >= now, "it is told")
        world.source.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
        change()
        world.wait_equal()
        second.tell("resync", "shop.items", "shop")
        change()
        world.wait_equal()
        assert second.app.view().staged is not None


@pytest.mark.parametrize("world", ["read and apply"], indirect=True)
def test_one_that_reads_says_which_source_its_map_lacks(world: World) -> None:
    with world.pipeline() as pipeline:
        pipeline.wait_streaming()
        world.stop_reader()
        loaded = world.load("read", "reads", ())
        (mapped,) = loaded.config.databases
        another = mapped.model_copy(update={"database": "another"})
        config = loaded.config.model_copy(update={"databases": (another,)})
        world.reader = Reader(dataclasses.replace(loaded, config=config, store=None))
        wait_until(lambda: "has another map" in str(pipeline.app.sync("shop").reader.facts.error), "it is told")


@pytest.mark.parametrize("world", ["read and apply"], indirect=True)
def test_a_slot_is_made_anew_under_one_that_reads(world: World, change: Callable[[], None]) -> None:
    with world.pipeline(on_slot_lost="resync") as pipeline:
        pipeline.wait_streaming()
        change()
        world.wait_equal()
        assert world.reader is not None
        ((slot,),) = world.source.execute("SELECT slot_name FROM pg_replication_slots")
        world.source.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")

        def is_dropped() -> bool:
            drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active AND"
            with world.source.connect() as session:
                return session.execute(f"{drop} slot_name = %s", (slot,)).fetchone() is not None

        wait_until(is_dropped, "somebody drops it")
        change()
        wait_until(lambda: pipeline.app.states.get("shop.items", "shop").copies == 2, "it is copied again")
        change()
        world.wait_equal()
        world.wait_empty()


@pytest.mark.parametrize("world", ["read and apply"], indirect=True)
def test_a_source_that_stands_elsewhere_in_the_index_is_read_on_from_there(
    world: World, change: Callable[[], None]
) -> None:
    """As where the coordinator was restored."""
    with world.pipeline() as pipeline:
        pipeline.wait_streaming()
        change()
        world.wait_equal()
        world.wait_empty()
        world.coordinator.execute("UPDATE kuvasz.log_source SET number = number + 5")
        change()
        world.wait_equal()
        assert not pipeline.errors()


@pytest.mark.parametrize("world", ["read and apply"], indirect=True)
def test_check_looks_at_what_one_needs_that_only_reads(world: World) -> None:
    config = world.load("read", "reads", ()).config
    found = check.findings(config)
    assert [(one.check, one.value) for one in found if one.is_blocking] == []
    assert {"coordinator", "log", "reachable", "replication", "wal_level"} <= {one.check for one in found}
    assert {"java", "jars", "catalog", "warehouse"}.isdisjoint(one.check for one in found)
    assert all(one.table is None for one in found)


SLOT_ROLE, READING_ROLE = "staging_slots", "staging_reads"


@pytest.fixture
def two_roles(world: World) -> Iterator[None]:
    """One role replicates, and the one of the url may read tables alone."""
    source = world.source
    for statement in (
        f"CREATE ROLE {SLOT_ROLE} LOGIN REPLICATION", f"CREATE ROLE {READING_ROLE} LOGIN",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {READING_ROLE}",
        "CREATE PUBLICATION kuvasz_shop FOR TABLE ONLY items, ONLY parts WITH (publish_via_partition_root = true)",
    ):  # fmt: skip
        source.execute(statement)
    url = source.url.replace("postgres@", f"{READING_ROLE}@")
    world.of_url = {"url": url, "replication_url": f"postgresql://{SLOT_ROLE}@"}
    yield
    world.stop_reader()
    source.execute(f"DROP OWNED BY {READING_ROLE}")
    source.execute("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = ANY(%s)",
                   ([SLOT_ROLE, READING_ROLE],))  # fmt: skip
    source.execute(f"DROP ROLE {SLOT_ROLE}, {READING_ROLE}")


@pytest.mark.parametrize("world", ["read and apply"], indirect=True)
def test_one_that_reads_does_so_by_the_role_for_slots(
    world: World, change: Callable[[], None], two_roles: None
) -> None:
    """It ends who still has the slot, too: a process that had its lease before, and sleeps."""
    of_slot = "SELECT usename::text, pid FROM pg_replication_slots s JOIN pg_stat_activity ON pid = s.active_pid"
    with world.pipeline() as pipeline:
        pipeline.wait_streaming()
        change()
        world.wait_equal()
        ((who, _),) = world.source.execute(of_slot)
        assert who == SLOT_ROLE
        world.stop_reader()
        url = conninfo.overlaid(world.of_url["url"], world.of_url["replication_url"])
        with contextlib.ExitStack() as stack:
            sleeps = conninfo.connect_pq(conninfo.replication_conninfo(url))
            stack.callback(sleeps.finish)
            before = sleeps.backend_pid
            options = "(proto_version '1', publication_names 'kuvasz_shop')"
            sleeps.send_query(f"START_REPLICATION SLOT kuvasz_shop LOGICAL 0/0 {options}".encode())
            wait_until(lambda: world.source.execute(of_slot) == [(SLOT_ROLE, before)], "it has the slot")
            change()
            world.reader = Reader(world.load("read", "reads", ()))
            world.wait_equal()
        assert not pipeline.errors()
        ((who, pid),) = world.source.execute(of_slot)
        assert (who, pid != before) == (SLOT_ROLE, True)


@pytest.mark.parametrize("world", ["read and apply"], indirect=True)
def test_one_that_reads_is_refused_where_the_role_for_slots_may_not(world: World, two_roles: None) -> None:
    """And the role that reads tables, which may, is not asked for it."""
    with world.pipeline() as pipeline:
        pipeline.wait_streaming()
        world.source.execute(f"ALTER ROLE {SLOT_ROLE} NOREPLICATION")
        world.source.execute(f"ALTER ROLE {READING_ROLE} REPLICATION")
        world.source.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
        mend = f"ALTER ROLE {SLOT_ROLE} REPLICATION"
        wait_until(lambda: mend in str(pipeline.errors()), lambda: f"it is told: {pipeline.errors()}")
        world.source.execute(mend)
        world.source.execute("INSERT INTO items VALUES (100, 1)")
        world.wait_equal()


EXCLUDED, MASKED = (f"Zq7{word}x9V" for word in ("Excluded", "Masked"))
SECRETS = ("a secret of sixteen characters", "another one of as many")


def test_what_the_lake_is_not_to_show_is_staged_unreadable(world: World) -> None:
    """Looked for in the log, the coordinator and all state folders; the next process has another secret."""
    world.source.execute(
        "CREATE TABLE people (id int PRIMARY KEY, card text, secret text, name text);"
        "ALTER TABLE people REPLICA IDENTITY FULL"
    )
    world.entries = {"people": {"mask": {"card": "redact"}, "exclude": ["secret"]}}
    world.options = {"seal_secret": SECRETS[0]}

    def change(first: int) -> None:
        for number in range(first, first + 10):
            world.source.execute(
                "INSERT INTO people VALUES (%s, %s, %s, 'n')", (number, f"{MASKED}{number}", f"{EXCLUDED}{number}")
            )
        world.source.execute("UPDATE people SET card = card || 'u', secret = secret || 'u' WHERE id % 3 = 0")
        world.source.execute("DELETE FROM people WHERE id % 10 = 7")

    def assert_hidden() -> None:
        assert kept.words(EXCLUDED, MASKED) == set(), kept.names()
        assert words_at(world.folder, EXCLUDED, MASKED) == set()
        assert world.in_coordinator(EXCLUDED, MASKED) == set()

    change(0)
    with KeptFiles(world.folder) as kept:
        with world.pipeline("people") as pipeline:
            pipeline.wait_streaming()
            world.lake.is_away.set()
            change(10)
            world.wait_confirmed()
            assert list(world.log.iterdir())
            assert_hidden()
            pipeline.die()
        world.options = {"seal_secret": SECRETS[1], "earlier_seal_secret": SECRETS[0]}
        world.lake.is_away.clear()
        with world.pipeline("people") as pipeline:
            # The lake in memory masks nothing, so the rows alone count.
            wait_until(lambda: world.lake.rows("shop.people").num_rows == 18, "it has what was staged before")
            assert not pipeline.errors()
        assert_hidden()
