"""Schema changes of a source table that streams: real PostgreSQL, Spark and Iceberg; PostgreSQL is the oracle."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.state.tables import State
from tests.support.evolving import ITEMS, ROWS, assert_same, change, fields, start
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.postgres import Database, create_database, drop_database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


# (statements, fields the lake must have, whether rows are copied again; None: it depends on when the catalog is read)
CHANGES = {
    "add": (["ALTER TABLE items ADD note text"], {"note": "string"}, False),
    "add and fill": (
        ["ALTER TABLE items ADD note text", "UPDATE items SET note = 'x' || id WHERE id % 3 = 0"],
        {"note": "string"}, False,
    ),
    "add and set a default": (
        ["ALTER TABLE items ADD note text", "INSERT INTO items (id) VALUES (1000)",
         "ALTER TABLE items ALTER note SET DEFAULT 'later'"],
        {"note": "string"}, False,
    ),
    "drop": (["ALTER TABLE items DROP name"], {"name": "string"}, False),
    "rename": (["ALTER TABLE items RENAME name TO label"], {"label": "string"}, False),
    "rename the key": (["ALTER TABLE items RENAME id TO number", "ALTER TABLE items RENAME number TO id"], {}, False),
    "swap": (
        ["ALTER TABLE items RENAME n TO x; ALTER TABLE items RENAME ratio TO n; ALTER TABLE items RENAME x TO ratio",
         "ALTER TABLE items ADD more date"],
        {"n": "float", "ratio": "int", "more": "date"}, False,
    ),
    "more digits": (["ALTER TABLE items ALTER price TYPE numeric(12,2)"], {"price": "decimal(12, 2)"}, False),
    "int to bigint": (["ALTER TABLE items ALTER n TYPE bigint"], {"n": "long"}, True),
    "the key to bigint": (["ALTER TABLE items ALTER id TYPE bigint"], {"id": "long"}, True),
    "real to double": (["ALTER TABLE items ALTER ratio TYPE double precision"], {"ratio": "double"}, True),
    "int to text": (["ALTER TABLE items ALTER n TYPE text USING 'n' || n", "UPDATE items SET n = 'm'"
                     " WHERE id % 2 = 0"], {"n": "string", "n__old": "int"}, True),
    "text to int": (["ALTER TABLE items ALTER name TYPE int USING length(name)"],
                    {"name": "int", "name__old": "string"}, True),
    "same type, other values": (["ALTER TABLE items ALTER price TYPE numeric(8,2) USING price * 2"], {}, True),
    "add with a default": (["ALTER TABLE items ADD c int NOT NULL DEFAULT 5"], {"c": "int"}, False),
    "add with a default and change it": (
        ["ALTER TABLE items ADD c numeric(8,2) DEFAULT 12.5, ADD d text DEFAULT 'it''s \"d\"', ADD e timestamptz"
         " DEFAULT '2024-02-29 01:02:03.456+05', ADD f bool NOT NULL DEFAULT false, ADD g jsonb DEFAULT '{}'",
         "UPDATE items SET c = NULL, d = NULL WHERE id % 3 = 0", "ALTER TABLE items RENAME d TO h",
         "ALTER TABLE items ALTER c TYPE numeric(12,2), ALTER c SET DEFAULT 7"],
        {"c": "decimal(12, 2)", "h": "string", "f": "boolean"}, False,
    ),
    "add with a default and drop it": (
        ["ALTER TABLE items ADD c int DEFAULT 5", "UPDATE items SET c = 6 WHERE id < 50",
         "ALTER TABLE items DROP c"],
        {}, False,
    ),
    "a default that is widened": (
        ["ALTER TABLE items ADD c int DEFAULT 5", "UPDATE items SET c = 6 WHERE id % 3 = 0",
         "ALTER TABLE items ALTER c TYPE bigint"], {"c": "long"}, True,
    ),
    "a default of an array": (["ALTER TABLE items ADD c int[] DEFAULT '{1,2}'"], {}, True),
    "add with a volatile default": (["ALTER TABLE items ADD c float DEFAULT random()"], {"c": "double"}, True),
    "identity": (["ALTER TABLE items ADD c int GENERATED ALWAYS AS IDENTITY"], {"c": "int"}, True),
    # At once: a look between the two would know that the new column has no value from before.
    "add after drop": (["ALTER TABLE items DROP name; ALTER TABLE items ADD name text"],
                       {"name": "string", "name__old": "string"}, True),
    "another type after drop": (["ALTER TABLE items DROP name", "INSERT INTO items (id) VALUES (1000)",
                                 "ALTER TABLE items ADD name int"], {"name": "int", "name__old": "string"}, None),
    "default that is gone": (["ALTER TABLE items ADD c int DEFAULT 5", "ALTER TABLE items ALTER c DROP DEFAULT"],
                             {"c": "int"}, False),
    "not null and not": (["ALTER TABLE items ALTER n SET NOT NULL", "ALTER TABLE items ALTER n DROP NOT NULL"],
                         {"n": "int"}, False),
    "another key": (["ALTER TABLE items DROP CONSTRAINT items_pkey; ALTER TABLE items ADD PRIMARY KEY (id, n)"],
                    {}, True),
    "the key made again": (
        ["ALTER TABLE items REPLICA IDENTITY FULL; ALTER TABLE items DROP CONSTRAINT items_pkey; UPDATE items SET"
         " id = id + 1; ALTER TABLE items ADD PRIMARY KEY (id); ALTER TABLE items REPLICA IDENTITY DEFAULT"],
        {}, True,
    ),
    "the key made again under FULL": (
        ["ALTER TABLE items REPLICA IDENTITY FULL", "ALTER TABLE items DROP CONSTRAINT items_pkey; UPDATE items SET"
         " id = id + 1; ALTER TABLE items ADD PRIMARY KEY (id)"], {}, True,
    ),
    "the key built again": (["REINDEX TABLE items", "CLUSTER items USING items_pkey"], {}, False),
}  # fmt: skip


class Cases:
    """One database that streams, with a table for each case, in a schema of its own."""

    def __init__(self, server: EmbeddedPostgres, lake_folder: LakeFolder) -> None:
        self.database = create_database(server)
        self.left_behind: str | None = None  #: the case that did not come to its end
        tables: dict[str, dict | None] = {}
        for case in CHANGES:
            self.database.execute(f"CREATE SCHEMA {self.schema(case)}")
            self.of(case).execute(ITEMS)
            self.of(case).execute(ROWS.format(1, 200))
            tables[f"{self.schema(case)}.items"] = {"target": self.target(case)}
        self.pipeline = Pipeline(lake_folder.config(group({"eu": self.database}, tables, "cases")), lake_folder)

    def schema(self, case: str) -> str:
        return f"case_{[*CHANGES].index(case)}"

    def target(self, case: str) -> str:
        return f"items_{self.schema(case)}"

    def of(self, case: str) -> Database:
        """Return the database as it is seen from a case's schema."""
        seen = Database(self.database.server, self.database.name)
        seen.url += f"?options=-csearch_path%3D{self.schema(case)}"
        return seen

    @contextlib.contextmanager
    def trying(self, case: str) -> Iterator[Database]:
        """Have a case by itself: what one leaves behind that fails is no other one's."""
        assert self.left_behind is None, f"see {self.left_behind}, which failed before"
        self.left_behind = case
        yield self.of(case)
        self.left_behind = None


@pytest.fixture(scope="module")
def cases(postgres18: EmbeddedPostgres, spark_session: SparkSession) -> Iterator[Cases]:
    """All cases share one kuvasz: to start one, and to copy a table, takes longer than a change."""
    folder = LakeFolder(spark_session)
    made = Cases(postgres18, folder)
    with made.pipeline as pipeline:
        pipeline.wait_streaming()
        yield made
    folder.remove()
    drop_database(made.database)


@pytest.mark.parametrize("case", CHANGES)
def test_a_change_of_a_table_that_streams(cases: Cases, copied: list[str], case: str) -> None:
    statements, expected, is_copied = CHANGES[case]
    pipeline, table, target = cases.pipeline, f"{cases.schema(case)}.items", cases.target(case)
    with cases.trying(case) as database:
        if case == "another key":
            database.execute("UPDATE items SET n = 0 WHERE n IS NULL")
            statements = [*statements, "ALTER TABLE items ALTER n SET DEFAULT 1"]
        change(database, *statements)
        pipeline.wait_applied(cases.database)
        assert_same(pipeline, database, table=table, target=target)
        change(database)
        pipeline.wait_applied(cases.database)
        assert_same(pipeline, database, table=table, target=target)
        assert expected.items() <= fields(pipeline, target).items()
        assert is_copied is None or (copied != []) == is_copied
        assert set(copied) <= {f"shop.{target}"}, "no other one's table is copied"


def test_rolled_back_changes_change_nothing(database: Database, lake_folder: LakeFolder) -> None:
    with start(database, lake_folder) as pipeline:
        pipeline.wait_streaming()
        with database.connect() as session:
            session.execute("SAVEPOINT s")
            session.execute("ALTER TABLE items RENAME name TO label")
            session.execute("UPDATE items SET label = 'no'")
            session.execute("ROLLBACK TO s")
            session.execute("UPDATE items SET name = 'yes' WHERE id = 3")
        with database.connect() as session:
            session.execute("ALTER TABLE items ADD c int")
            session.rollback()
        change(database)
        pipeline.wait_applied(database)
        assert_same(pipeline, database)
        assert list(fields(pipeline)) == ["sid", "id", "n", "name", "price", "ratio"]


def test_changes_between_the_rows_of_one_transaction(
    database: Database, lake_folder: LakeFolder, copied: list[str]
) -> None:
    with start(database, lake_folder) as pipeline:
        pipeline.wait_streaming()
        with database.connect() as session:
            session.execute("UPDATE items SET name = 'a' WHERE id < 20")
            session.execute("ALTER TABLE items RENAME name TO label")
            session.execute("UPDATE items SET label = 'b' WHERE id < 15")
            session.execute("ALTER TABLE items ADD more int")
            session.execute("UPDATE items SET more = 1, label = 'c' WHERE id < 10")
            session.execute("ALTER TABLE items DROP price")
            session.execute("INSERT INTO items (id, label) VALUES (999, 'd')")
        pipeline.wait_applied(database)
        assert_same(pipeline, database)
        assert len(copied) == 1


def test_a_backlog_with_many_changes(database: Database, lake_folder: LakeFolder, copied: list[str]) -> None:
    with start(database, lake_folder) as pipeline:
        pipeline.wait_streaming()
    for number in range(4):
        change(database, f"ALTER TABLE items ADD c{number} int", f"UPDATE items SET c{number} = id WHERE id % 4 = 1")
    change(database, "ALTER TABLE items RENAME name TO label", "ALTER TABLE items DROP price")
    change(database, "ALTER TABLE items RENAME label TO title")
    with Pipeline(pipeline.config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        assert_same(pipeline, database)
        change(database, "ALTER TABLE items RENAME title TO label")
        pipeline.wait_applied(database)
        assert_same(pipeline, database)
        assert len(copied) == 1


# Slow: test_accounted_for.py has it in one scene with other mishaps.
@pytest.mark.slow
def test_a_backlog_in_which_a_column_came_and_went_is_copied_again(
    database: Database, lake_folder: LakeFolder, copied: list[str]
) -> None:
    with start(database, lake_folder) as pipeline:
        pipeline.wait_streaming()
    change(database, "ALTER TABLE items ADD c int", "UPDATE items SET c = id")
    change(database, "ALTER TABLE items DROP c", "ALTER TABLE items ADD c int")
    change(database, "UPDATE items SET c = 1 WHERE id % 3 = 0")
    with Pipeline(pipeline.config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        change(database, "UPDATE items SET c = 2 WHERE id % 3 = 1")
        pipeline.wait_applied(database)
        assert_same(pipeline, database)
        assert len(copied) == 2


def test_hold_waits_for_a_person(database: Database, lake_folder: LakeFolder) -> None:
    with start(database, lake_folder, on_schema_change="hold") as pipeline:
        pipeline.wait_streaming()
        change(database, "ALTER TABLE items RENAME name TO label")
        pipeline.wait_state("shop_eu", "shop.items", State.PAUSED)
        (error,) = pipeline.errors()
        assert "column name was renamed to label" in error
        assert "hint: the map says `on_schema_change: hold`" in error
        assert "name" in fields(pipeline)
        change(database)
        pipeline.tell("retry", "shop.items", "shop_eu")
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        assert_same(pipeline, database)
        change(database, "ALTER TABLE items ADD more int")
        pipeline.wait_state("shop_eu", "shop.items", State.PAUSED)
    with Pipeline(pipeline.config, lake_folder) as pipeline:
        pipeline.wait_state("shop_eu", "shop.items", State.PAUSED)
        pipeline.tell("retry", "shop.items", "shop_eu")
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        assert_same(pipeline, database)


def test_stop_stops(database: Database, lake_folder: LakeFolder) -> None:
    with start(database, lake_folder, on_schema_change="stop") as pipeline:
        pipeline.wait_streaming()
        change(database, "ALTER TABLE items ADD more int")
        pipeline.wait_state("shop_eu", "shop.items", State.ERROR)
        assert "column more was added" in pipeline.errors()[0]
        database.execute("ALTER TABLE items DROP more")
        change(database)
        pipeline.tell("retry", "shop.items", "shop_eu")
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        assert_same(pipeline, database)


def test_the_other_tables_stream_on_while_one_is_copied_again(database: Database, lake_folder: LakeFolder) -> None:
    database.execute("CREATE TABLE others (id int PRIMARY KEY, n int)")
    database.execute(ITEMS)
    database.execute(ROWS.format(1, 200))
    config = lake_folder.config(group({"eu": database}, {"items": None, "others": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        for number in range(20):
            if number == 5:
                database.execute("ALTER TABLE items ALTER n TYPE text")
            database.execute("INSERT INTO others VALUES (%s, 1)", (number + 100,))
            database.execute("INSERT INTO items (id, n) VALUES (%s, 1)", (number + 1000,))
        pipeline.wait_applied(database)
        assert_same(pipeline, database)
        assert_same(pipeline, database, table="others")


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the catalog often."""
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 0.3)


@pytest.mark.parametrize(
    ("statements", "told"),
    [
        (["DROP TABLE items", ITEMS, "INSERT INTO items (id) VALUES (901)"], "dropped and created again"),
        (["DROP TABLE items"], "there is no such table"),
    ],
)
def test_what_cannot_be_followed_stops_the_table(
    database: Database, lake_folder: LakeFolder, often: None, statements: list[str], told: str
) -> None:
    with start(database, lake_folder) as pipeline:
        pipeline.wait_streaming()
        for statement in statements:
            database.execute(statement)
        pipeline.wait_state("shop_eu", "shop.items", State.ERROR)
        assert told in pipeline.errors()[0], pipeline.errors()


def test_a_table_without_its_key_leaves_the_publication_and_comes_back(
    database: Database, lake_folder: LakeFolder, often: None
) -> None:
    with start(database, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("ALTER TABLE items DROP CONSTRAINT items_pkey")
        pipeline.wait_state("shop_eu", "shop.items", State.ERROR)
        published = "SELECT tablename FROM pg_publication_tables"
        wait_until(lambda: database.execute(published) == [], "it is not published")
        database.execute("UPDATE items SET n = 0 WHERE id = 3")
        database.execute("ALTER TABLE items ADD PRIMARY KEY (id)")
        pipeline.wait_streaming()
        change(database)
        pipeline.wait_applied(database)
        assert_same(pipeline, database)
