"""What no row tells of: changes of quiet tables and of types reach the lake by themselves, or are told."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

from kuvasz.state.tables import State
from kuvasz.sync.watch.standstill import Standstill
from tests.support import oracle
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database, create_database, drop_database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

TYPES = """
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TYPE grade AS ENUM ('low', 'high');
CREATE DOMAIN feeling AS mood CHECK (VALUE IS NOT NULL);
CREATE TYPE pair AS (n int, m mood);
CREATE TYPE grades AS RANGE (subtype = grade);
"""

# Table -> (its columns, its rows)
TABLES = {
    "rewritten": ("id int PRIMARY KEY, v int", "SELECT i, i FROM generate_series(1, 9) i"),
    "constant": ("id int PRIMARY KEY", "SELECT i FROM generate_series(1, 9) i"),
    "digits": ("id int PRIMARY KEY", "SELECT i FROM generate_series(1, 9) i"),
    "volatile": ("id int PRIMARY KEY", "SELECT i FROM generate_series(1, 9) i"),
    "dropped": ("id int PRIMARY KEY, a text", "SELECT i, 'a' FROM generate_series(1, 9) i"),
    "labels": ("id int PRIMARY KEY, m mood, l mood[], d feeling, p pair, r grades",
               "SELECT i, 'sad'::mood, '{sad,ok}'::mood[], 'sad'::feeling, (1, 'sad')::pair, '[low,high)'::grades"
               " FROM generate_series(1, 9) i"),
    "label_key": ("m mood PRIMARY KEY, n int", "VALUES ('sad', 1), ('ok', 2)"),
    "label_bag": ("m mood, n int", "VALUES ('sad', 1), ('ok', 2)"),
    "attributes": ("id int PRIMARY KEY, p pair[]", "SELECT i, ARRAY[(i, 'ok')::pair] FROM generate_series(1, 9) i"),
    "parts": ("id int PRIMARY KEY, v int) PARTITION BY RANGE (id", "SELECT i, i FROM generate_series(1, 9) i"),
}  # fmt: skip

CHANGES = (
    "ALTER TABLE rewritten ALTER v TYPE int USING v * 10",
    "ALTER TABLE constant ADD d int DEFAULT 9",
    "ALTER TABLE digits ADD n numeric(38,20) DEFAULT 1000000000",
    "ALTER TABLE volatile ADD d float DEFAULT random()",
    "ALTER TABLE dropped RENAME a TO b",
    "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'",
    "ALTER TYPE grade RENAME VALUE 'low' TO 'poor'",
    "ALTER TYPE pair ADD ATTRIBUTE more text",
    "ALTER TABLE parts ALTER v TYPE int USING v * 10",
)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the catalog often."""
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 0.3)


def make(database: Database) -> None:
    for statement in filter(str.strip, TYPES.split(";")):
        database.execute(statement)
    for name, (columns, rows) in TABLES.items():
        database.execute(f'CREATE TABLE "{name}" ({columns})')
        if "PARTITION" in columns:
            database.execute(f"CREATE TABLE {name}_1 PARTITION OF {name} FOR VALUES FROM (0) TO (5)")
            database.execute(f"CREATE TABLE {name}_2 PARTITION OF {name} FOR VALUES FROM (5) TO (100)")
        database.execute(f'INSERT INTO "{name}" {rows}')
    database.execute("ALTER TABLE label_bag REPLICA IDENTITY FULL")


def same(pipeline: Pipeline, database: Database, table: str, columns: list[str] | None = None) -> bool:
    """Whether PyIceberg reads the source's rows."""
    expected = oracle.source_rows(database.url, table, sid="eu")
    lake = pipeline.folder
    found = oracle.lake_rows_pyiceberg(lake.pyiceberg, f"shop.{table}", catalog=lake.catalog)
    return set(expected.columns) <= set(found.columns) and found.select(expected.columns).rows == expected.rows


# Slow: test_accounted_for.py has it in one scene with other mishaps, of fewer types.
@pytest.mark.slow
def test_a_change_of_a_quiet_table_reaches_the_lake_without_a_row(
    database: Database, lake_folder: LakeFolder, often: None
) -> None:
    make(database)
    with Pipeline(lake_folder.config(group({"eu": database}, dict.fromkeys(TABLES))), lake_folder) as pipeline:
        pipeline.wait_streaming()
        for statement in CHANGES:
            database.execute(statement)
        for table in TABLES:
            wait_until(lambda t=table: same(pipeline, database, t), f"{table} is followed: {pipeline.errors()}", 60)
        pipeline.wait_streaming()
        # And rows go on from there, by the new words.
        database.execute("UPDATE label_key SET n = n + 10")
        database.execute("UPDATE label_bag SET n = n + 10")
        database.execute("ALTER TYPE mood ADD VALUE 'great'")
        database.execute("INSERT INTO label_key VALUES ('great', 3)")
        pipeline.wait_applied(database)
        for table, key in (("label_key", ("m",)), ("label_bag", ("n",)), ("digits", ("id",))):
            pipeline.assert_equal(table, oracle.source_rows(database.url, table, sid="eu"), key=key)
        state = {one.target: one.copies for one in pipeline.app.states.snapshot()}
        assert state["shop.constant"] == state["shop.digits"] == state["shop.dropped"] == 1


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the server was at rest, each time that it was asked."""
    found: list[bool] = []
    lasts = Standstill.lasts

    async def told(self: Standstill) -> bool:
        found.append(await lasts(self))
        return found[-1]

    monkeypatch.setattr(Standstill, "lasts", told)
    return found


def test_a_source_at_rest_is_not_looked_at_until_something_is_written(
    database: Database, lake_folder: LakeFolder, often: None, answers: list[bool]
) -> None:
    database.execute("CREATE TABLE items (id int PRIMARY KEY)")
    database.execute("INSERT INTO items VALUES (1)")
    with Pipeline(lake_folder.config(group({"eu": database}, {"items": None})), lake_folder) as pipeline:
        pipeline.wait_streaming()
        wait_until(lambda: answers[-3:] == [True] * 3, lambda: f"it is at rest: {answers}")
        elsewhere = create_database(database.server)
        wait_until(lambda: not answers[-1], "another database of the server is written to")
        drop_database(elsewhere)
        wait_until(lambda: answers[-3:] == [True] * 3, lambda: f"it is at rest again: {answers}")
        database.execute("ALTER TABLE items ADD n int DEFAULT 5")
        wait_until(lambda: same(pipeline, database, "items"), "it is followed without a row")


def test_a_commit_that_nobody_sees_yet_is_no_rest(
    database: Database, lake_folder: LakeFolder, often: None, answers: list[bool]
) -> None:
    """A commit that waits for a standby is in the WAL, and what it has changed shows when nothing more is written."""
    database.execute("CREATE TABLE items (id int PRIMARY KEY)")
    database.execute("INSERT INTO items VALUES (1)")
    with (
        Pipeline(lake_folder.config(group({"eu": database}, {"items": None})), lake_folder) as pipeline,
        database.connect(autocommit=True) as session,
    ):
        pipeline.wait_streaming()
        wait_until(lambda: answers[-3:] == [True] * 3, lambda: f"it is at rest: {answers}")
        with waiting_commits(database):
            session.execute("SET synchronous_commit = on")
            altering = threading.Thread(target=session.execute, args=("ALTER TABLE items ADD n int DEFAULT 5",))
            altering.start()
            wait_until(lambda: answers[-45:] == [False] * 45, lambda: f"there is no rest: {answers}")
            assert altering.is_alive()
        altering.join()
        wait_until(lambda: same(pipeline, database, "items"), "it is followed without a row")


@contextlib.contextmanager
def waiting_commits(database: Database) -> Iterator[None]:
    """Have synchronous commits wait for a standby that there is not."""

    def set_names(names: str) -> None:
        with database.connect(autocommit=True) as session:
            session.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
            session.execute("SELECT pg_reload_conf()")
        wait_until(lambda: database.execute("SHOW synchronous_standby_names") == [(names,)], "it counts")

    set_names("nobody")
    try:
        yield
    finally:
        set_names("")


# Slow: changelogs are told of as append tables are.
@pytest.mark.parametrize("table_type", ["append", pytest.param("changelog", marks=pytest.mark.slow), "history"])
def test_what_keeps_the_past_is_told(
    database: Database, lake_folder: LakeFolder, often: None, caplog: pytest.LogCaptureFixture, table_type: str
) -> None:
    database.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    database.execute("CREATE TABLE feelings (id int PRIMARY KEY, m mood)")
    database.execute("CREATE TABLE moods (m mood PRIMARY KEY, n int)")
    database.execute("INSERT INTO feelings VALUES (1, 'sad'), (2, 'ok')")
    database.execute("INSERT INTO moods VALUES ('sad', 1), ('ok', 2)")
    tables = {name: {"type": table_type} for name in ("feelings", "moods")}
    with (
        caplog.at_level("INFO"),
        Pipeline(lake_folder.config(group({"eu": database}, tables)), lake_folder) as pipeline,
    ):
        pipeline.wait_streaming()
        database.execute("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'")
        told = lambda: [getattr(record, "what", "") for record in caplog.records]  # noqa: E731
        wait_until(lambda: any("column m was shown in other words" in what for what in told()), "it is told")
        if table_type == "history":
            pipeline.wait_state("shop_eu", "shop.moods", State.ERROR)
            assert "hint: kuvasz resync --table shop.moods" in pipeline.errors()[0]
            pipeline.tell("resync", "shop.moods", "shop_eu")
            pipeline.wait_streaming()
            database.execute("UPDATE moods SET n = 5")
            pipeline.wait_applied(database)
            opened = [row for row in pipeline.rows("moods") if row[3].year == 9999]
            assert sorted(row[:2] for row in opened) == [("blue", 5), ("ok", 5)]


SWAP = "ALTER TABLE {t} RENAME a TO x; ALTER TABLE {t} RENAME b TO a; ALTER TABLE {t} RENAME x TO b"
BACKFILL = (
    "ALTER TABLE {t} ADD c int; UPDATE {t} SET c = 100 - a; ALTER TABLE {t} RENAME a TO before;"
    " ALTER TABLE {t} RENAME c TO a"
)


# Slow: test_accounted_for.py has it in one scene with other mishaps, of fewer types.
@pytest.mark.slow
def test_expressions_mean_the_same_of_all_rows(database: Database, lake_folder: LakeFolder, often: None) -> None:
    options = {
        "filtered": {"filter": "a > 5"},
        "computed": {"set": {"id": "id", "x": "a", "y": "b + 1"}},
        "grown": {"type": "append", "filter": "a > 5"},
        "past": {"type": "history", "set": {"id": "id", "x": "a * 2"}},
    }
    for table, change in zip(options, (SWAP, BACKFILL, SWAP, SWAP), strict=True):
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, a int, b int)")
        database.execute(f"INSERT INTO {table} SELECT i, i, 10 - i FROM generate_series(1, 9) i")
        options[table] = options[table] | {"change": change}
    changes = {table: option.pop("change") for table, option in options.items()}
    database.execute("CREATE VIEW filtered_seen AS SELECT * FROM filtered WHERE b > 5")
    with Pipeline(lake_folder.config(group({"eu": database}, options)), lake_folder) as pipeline:
        pipeline.wait_streaming()
        with database.connect() as session:
            for table, statements in changes.items():
                for statement in statements.split(";"):
                    session.execute(statement.format(t=table))
        for table in ("grown", "past"):
            pipeline.wait_state("shop_eu", f"shop.{table}", State.ERROR)
        said = sorted(error for error in pipeline.errors() if "names another column" in error)
        assert "table public.grown: column a was renamed to b: the lake's too" in said[0], said
        assert "a in the map's expressions names another column than before" in said[0]
        assert "name the columns in the map as they are called now" in said[0]
        assert "kuvasz resync --table shop.grown" in said[0]
        assert "table public.past: column a was renamed to b" in said[1], said
        pipeline.wait_state("shop_eu", "shop.filtered", State.STREAMING)
        database.execute("UPDATE filtered SET b = b + 1")
        database.execute("INSERT INTO computed (id, a, b) VALUES (10, 0, 0)")
        database.execute("INSERT INTO grown (id, a, b) VALUES (10, 0, 9), (11, 9, 0)")
        database.execute("DROP VIEW filtered_seen")
        rows = database.execute("SELECT id, a, b + 1 FROM computed")
        wait_until(lambda: sorted(pipeline.rows("computed")) == sorted(rows), "the backfilled column is taken")
        seen = database.execute("SELECT id, b, a FROM filtered WHERE a > 5")
        wait_until(
            lambda: sorted(pipeline.rows("filtered")) == sorted(seen), f"the filter: {pipeline.rows('filtered')}"
        )
        pipeline.tell("resync", "shop.past", "shop_eu")
        pipeline.wait_state("shop_eu", "shop.past", State.STREAMING)
        opened = [row[:2] for row in pipeline.rows("past") if row[3].year == 9999]
        assert sorted(opened) == sorted(database.execute("SELECT id, a * 2 FROM past"))
    options["grown"] = {"type": "append", "filter": "b > 5"}
    with Pipeline(lake_folder.config(group({"eu": database}, options)), lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        rows = database.execute("SELECT id, b, a FROM grown WHERE b > 5")
        wait_until(lambda: sorted(pipeline.rows("grown")) == sorted(rows), f"they go on: {pipeline.rows('grown')}")


def test_what_is_written_without_a_log_is_looked_for(
    database: Database, lake_folder: LakeFolder, often: None
) -> None:
    """PostgreSQL allows it for partitions of a published root, and for tables of `FOR ALL TABLES`."""
    database.execute("CREATE PUBLICATION kuvasz_shop_eu FOR ALL TABLES WITH (publish_via_partition_root = true)")
    database.execute("CREATE TABLE parts (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)")
    database.execute("CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (100)")
    database.execute("CREATE TABLE items (id int PRIMARY KEY, v int)")
    database.execute("CREATE TABLE grown (id int PRIMARY KEY, v int)")
    tables = {"parts": None, "items": None, "grown": {"type": "append"}}
    for table in tables:
        database.execute(f"INSERT INTO {table} SELECT i, i FROM generate_series(1, 9) i")
    with Pipeline(lake_folder.config(group({"eu": database}, tables)), lake_folder) as pipeline:
        pipeline.wait_streaming()
        for table in ("parts_1", "items", "grown"):
            database.execute(f"ALTER TABLE {table} SET UNLOGGED")
            database.execute(f"UPDATE {table} SET v = v + 1 WHERE id < 3")
        for table in tables:
            pipeline.wait_state("shop_eu", f"shop.{table}", State.ERROR)
        said = "\n".join(pipeline.errors())
        assert "its partitions public.parts_1 are unlogged" in said
        for which in ("each of them", '"public"."items"', '"public"."grown"'):
            assert f"hint: ALTER TABLE {which} SET LOGGED, or take it out of the map" in said
        for table in ("parts_1", "items", "grown"):
            database.execute(f"DELETE FROM {table} WHERE id = 9")
            database.execute(f"ALTER TABLE {table} SET LOGGED")
        for table in ("parts", "items"):
            pipeline.wait_state("shop_eu", f"shop.{table}", State.STREAMING)
            database.execute(f"INSERT INTO {table} VALUES (50, 50)")
            wait_until(lambda t=table: same(pipeline, database, t), f"{table} is equal again: {pipeline.errors()}")
        wait_until(lambda: "goes on with the gap" in str(pipeline.errors()), f"it is told: {pipeline.errors()}")


def test_what_came_and_went_in_a_backlog_is_followed_or_told(
    database: Database, lake_folder: LakeFolder, often: None
) -> None:
    """The replica identity was another one for a while; a column has another name than `partition_by` says."""
    database.execute("CREATE TABLE parted (id int PRIMARY KEY, n int)")
    database.execute("INSERT INTO parted SELECT i, i % 3 FROM generate_series(1, 9) i")
    tables: dict[str, dict | None] = {"parted": {"partition_by": ["n"], "sort_by": ["n desc"]}}
    for table, options in (("plain", None), ("entire", None), ("past", {"type": "history"})):
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, n int, u int NOT NULL UNIQUE)")
        database.execute(f"INSERT INTO {table} SELECT i, i, i FROM generate_series(1, 9) i")
        tables[table] = options
    database.execute('CREATE TABLE clash (id int PRIMARY KEY, tags text[], "tags.element" int)')
    tables["clash"] = {"exclude": ["tags.element"]}
    with Pipeline(lake_folder.config(group({"eu": database}, tables)), lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("ALTER TABLE parted RENAME n TO m")
        database.execute("INSERT INTO parted VALUES (10, 5)")
        pipeline.wait_applied(database)
    database.execute("INSERT INTO parted VALUES (11, 6)")
    for table in ("plain", "entire", "past"):
        identity = "FULL" if table == "entire" else f"USING INDEX {table}_u_key"
        database.execute(f"ALTER TABLE {table} REPLICA IDENTITY {identity}")
        database.execute(f"UPDATE {table} SET n = n + 1")
        database.execute(f"UPDATE {table} SET id = 100 WHERE id = 3")
        database.execute(f"DELETE FROM {table} WHERE id = 2")
        database.execute(f"ALTER TABLE {table} REPLICA IDENTITY DEFAULT")
        database.execute(f"UPDATE {table} SET n = n + 1")
    tables["clash"] = None
    with Pipeline(lake_folder.config(group({"eu": database}, tables)), lake_folder) as pipeline:
        for table in ("parted", "plain", "entire"):
            wait_until(lambda t=table: same(pipeline, database, t), f"{table} is followed: {pipeline.errors()}")
        pipeline.wait_state("shop_eu", "shop.past", State.ERROR)
        pipeline.wait_state("shop_eu", "shop.clash", State.ERROR)
        said = "\n".join(pipeline.errors())
        assert "tells its old rows by (u), which is not its key" in said
        assert "Iceberg takes the column tags.element for a part of the column tags" in said
        assert {one.target: one.copies for one in pipeline.app.states.snapshot()}["shop.entire"] == 0
        pipeline.tell("resync", "shop.past", "shop_eu")
        pipeline.wait_state("shop_eu", "shop.past", State.STREAMING)
        opened = [row[:3] for row in pipeline.rows("past") if row[4].year == 9999]
        assert sorted(opened) == sorted(database.execute("SELECT id, n, u FROM past"))


def test_the_application_goes_on_where_a_paused_table_loses_its_key(
    database: Database, lake_folder: LakeFolder, often: None
) -> None:
    """Its UPDATEs fail while it is published for them; what is missed then is a gap, closed when it is back."""
    for table in ("items", "others"):
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, n int)")
        database.execute(f"INSERT INTO {table} SELECT i, i FROM generate_series(1, 20) i")
    config = lake_folder.config(group({"eu": database}, {"items": None, "others": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.tell("pause", "shop.items", "shop_eu")
        database.execute("ALTER TABLE items DROP CONSTRAINT items_pkey")
        wait_until(lambda: database.takes("UPDATE items SET n = 0 WHERE id = 1"), "UPDATEs go on at the source")
        assert pipeline.app.states.get("shop.items", "shop_eu").state is State.PAUSED
        database.execute("ALTER TABLE items ADD PRIMARY KEY (id)")
        pipeline.tell("resume", "shop.items", "shop_eu")
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"))
