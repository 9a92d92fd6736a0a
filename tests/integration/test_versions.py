"""What came with one version of PostgreSQL, and what another lacks: with a server that has it, or has it not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.state.tables import State
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import open_table, source_rows
from tests.support.postgres import Database, create_database, drop_database, needs
from tests.support.verify_bench import Bench
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


@pytest.fixture
def sorted_by_icu(postgres17: EmbeddedPostgres) -> Iterator[Database]:
    """A database that sorts texts as Swedes do."""
    created = create_database(
        postgres17, options="TEMPLATE template0 LOCALE 'C.UTF-8' LOCALE_PROVIDER icu ICU_LOCALE 'sv' ENCODING 'UTF8'"
    )
    yield created
    drop_database(created)


def test_keys_that_icu_sorts_and_takes_for_one_another(sorted_by_icu: Database, lake_folder: LakeFolder) -> None:
    """A copy is cut by the server's order; to the lake two keys are equal when their bytes are."""
    with sorted_by_icu.connect(autocommit=True) as session:
        assert session.execute("SELECT 'z' < 'å', 'a' < 'B', 'ä' < 'ö'").fetchall() == [(True, True, True)]
        session.execute("CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
        for table, collation in (("words", ""), ("names", "COLLATE blind")):
            session.execute(f"CREATE TABLE {table} (word text {collation} PRIMARY KEY, n int)")
            session.execute(
                f"INSERT INTO {table} SELECT (ARRAY['ä', 'Z', 'o', 'å'])[i % 4 + 1] || chr(65 + i % 26) || i, i"
                " FROM generate_series(1, 3000) i"
            )
        config = lake_folder.config(group({"se": sorted_by_icu}, {"words": None, "names": None}))
        bench = Bench(config, lake_folder)
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_streaming()
            session.execute("UPDATE names SET word = lower(word), n = -n WHERE n % 3 = 0")
            for table in ("words", "names"):
                session.execute(f"UPDATE {table} SET n = n + 1 WHERE word < 'Z'")
                session.execute(f"DELETE FROM {table} WHERE word > 'äM'")
            pipeline.wait_applied(sorted_by_icu)
            for table in ("words", "names"):
                expected = source_rows(sorted_by_icu.url, table, sid="se")
                assert 100 < len(expected) < 2900
                pipeline.assert_equal(table, expected, key=("word",))
            assert [report.differences for report in bench.verify()] == [0, 0]


def test_generated_columns_are_left_out_however_they_are_made(database: Database, lake_folder: LakeFolder) -> None:
    """From PostgreSQL 18 on they are virtual by default, and stored ones may be published: neither is in the lake."""
    needs(database.server, 18, "virtual generated columns")
    database.execute("""
        CREATE TABLE prices (id int PRIMARY KEY, early int GENERATED ALWAYS AS (n - 1), n int,
            kept int GENERATED ALWAYS AS (n * 2) STORED, label text, late text GENERATED ALWAYS AS (label || '!'));
        INSERT INTO prices (id, n, label) SELECT i, i, 'copied' FROM generate_series(1, 10) i;
        CREATE PUBLICATION kuvasz_shop_eu FOR TABLE prices
            WITH (publish_via_partition_root = true, publish_generated_columns = stored);
    """)
    with Pipeline(lake_folder.config(group({"eu": database}, {"prices": None})), lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE prices SET n = n + 100, label = 'changed' WHERE id % 2 = 0")
        database.execute("INSERT INTO prices (id, n, label) VALUES (11, 11, 'new')")
        database.execute("DELETE FROM prices WHERE id = 3")
        pipeline.wait_applied(database)
        assert set(pipeline.rows("prices")) == set(database.execute("SELECT id, n, label FROM prices"))
        database.execute(
            "ALTER TABLE prices ADD later int GENERATED ALWAYS AS (n + 7) STORED, ADD note text DEFAULT 'x'"
        )
        database.execute("UPDATE prices SET note = 'y' WHERE id = 1")
        pipeline.wait_applied(database)
        wait_until(
            lambda: set(pipeline.rows("prices")) == set(database.execute("SELECT id, n, label, note FROM prices")),
            lambda: f"the new column is there: {pipeline.errors()}",
        )


#: What sends generated columns: nothing, a publication of the user's (18+), or a list of columns in it (18+).
SENDS = ("", " (id, n, kept, label)", ", publish_generated_columns = stored")


@pytest.mark.parametrize(
    ("version", "sends"),
    [
        pytest.param(version, sends, id=f"{name}-{version}", marks=() if often == version else pytest.mark.slow)
        for (name, often), sends in zip({"own": 14, "listed": 18, "stored": 18}.items(), SENDS, strict=True)
        for version in (14, 16, 18)
    ],
)
def test_stored_generated_columns_of_each_type_are_in_neither_copy_nor_stream(
    request: pytest.FixtureRequest, lake_folder: LakeFolder, version: int, sends: str
) -> None:
    """Whether messages have them or not, values stay with their columns, also when generated ones come and go."""
    server = request.getfixturevalue(f"postgres{version}")
    if sends:
        needs(server, 18, "stored generated columns that are published")
    database = create_database(server)
    types = ("clone", "append", "history", "changelog")
    try:
        for table in types:
            database.execute(
                f"CREATE TABLE {table} (id int PRIMARY KEY, kept int GENERATED ALWAYS AS (n * 2) STORED, n int,"
                f" label text); INSERT INTO {table} (id, n, label) SELECT i, i, 'copied' FROM generate_series(1, 5) i"
            )
        if sends:
            columns, options = ("", sends) if "=" in sends else (sends, "")
            listed = ", ".join(f"{table}{columns}" for table in types)
            by_root = "publish_via_partition_root = true"
            database.execute(f"CREATE PUBLICATION kuvasz_shop_eu FOR TABLE {listed} WITH ({by_root}{options})")
        config = lake_folder.config(group({"eu": database}, {table: {"type": table} for table in types}))
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_streaming()
            past = set(database.execute("SELECT id, n, label FROM append"))  # which stays in that
            for table in types:
                database.execute(f"UPDATE {table} SET n = n + 100, label = 'changed' WHERE id < 3")
                database.execute(f"INSERT INTO {table} (id, n, label) VALUES (6, 6, 'new')")
            pipeline.wait_applied(database)
            for table in types:
                expected = set(database.execute(f"SELECT id, n, label FROM {table}"))
                assert now(pipeline, table) - (past - expected if table == "append" else set()) == expected, table
                assert not {"kept"} & set(names(pipeline, table))
            if "label" in sends:
                return  # a column of a list cannot be dropped
            database.execute("ALTER TABLE clone ALTER kept DROP EXPRESSION")
            database.execute("INSERT INTO clone (id, n, label, kept) VALUES (7, 7, 'own', 70)")
            wait_until(
                lambda: (
                    "kept" in names(pipeline, "clone")
                    and now(pipeline, "clone", "kept")
                    == set(database.execute("SELECT id, n, label, kept FROM clone"))
                ),
                lambda: f"it has become an ordinary column: {pipeline.errors()}",
            )
            # Messages show no difference where the column was sent before: that it is another one, the catalog tells.
            past |= set(database.execute("SELECT id, n, label FROM append"))
            for table in types:
                database.execute(f"ALTER TABLE {table} DROP kept, ADD kept int GENERATED ALWAYS AS (n * 3) STORED")
                database.execute(f"UPDATE {table} SET n = n + 1, label = 'again' WHERE id = 4")
            pipeline.wait_applied(database)
            for table in types:
                expected = set(database.execute(f"SELECT id, n, label FROM {table}"))
                assert now(pipeline, table) - (past - expected if table == "append" else set()) == expected, table
    finally:
        drop_database(database)


def names(pipeline: Pipeline, table: str) -> list[str]:
    """Return the columns of a lake table."""
    found = open_table(pipeline.folder.pyiceberg, f"shop.{table}", catalog=pipeline.folder.catalog)
    return [field.name for field in found.schema().fields]


def now(pipeline: Pipeline, table: str, *more: str) -> set[tuple]:
    """Return the rows that a lake table says its source has."""
    opened = open_table(pipeline.folder.pyiceberg, f"shop.{table}", catalog=pipeline.folder.catalog)
    rows = opened.scan().to_arrow().to_pylist()
    if table == "history":
        rows = [row for row in rows if not row["kvsz_deleted"] and row["kvsz_end"].year == 9999]
    if table == "changelog":
        rows = list({row["id"]: row for row in sorted(rows, key=lambda row: (row["_lsn"], row["_ordinal"]))}.values())
    return {tuple(row[column] for column in ("id", "n", "label", *more)) for row in rows}


@pytest.mark.parametrize("how", [pytest.param("STORED", marks=pytest.mark.slow), "VIRTUAL"])
def test_no_update_of_the_source_fails_for_generated_columns_that_are_not_published(
    database: Database, lake_folder: LakeFolder, how: str
) -> None:
    """From 18 on UPDATE and DELETE fail where the replica identity, FULL above all, has such a column."""
    needs(database.server, 18, "a refusal of unpublished generated columns")
    for table in ("keyed", "keyless", "added", "good"):
        key = "NOT NULL" if table == "keyless" else "PRIMARY KEY"
        database.execute(f"CREATE TABLE {table} (id int {key}, n int); INSERT INTO {table} VALUES (1, 1), (2, 2)")
    for table in ("keyed", "keyless"):
        database.execute(f"ALTER TABLE {table} ADD g int GENERATED ALWAYS AS (n * 2) {how}, REPLICA IDENTITY FULL")
    database.execute("ALTER TABLE added REPLICA IDENTITY FULL")
    tables = {"keyed": None, "keyless": {"type": "append"}, "added": None, "good": None}
    with Pipeline(lake_folder.config(group({"eu": database}, tables)), lake_folder) as pipeline:
        for table in ("keyless", "added", "good"):
            pipeline.wait_state("shop_eu", f"shop.{table}", State.STREAMING)
        pipeline.wait_state("shop_eu", "shop.keyed", State.ERROR)
        for table in tables:
            database.execute(f"UPDATE {table} SET n = n + 10 WHERE id = 1; DELETE FROM {table} WHERE id = 2")
        database.execute(f"ALTER TABLE added ADD g int GENERATED ALWAYS AS (n * 2) {how}")
        wait_until(lambda: database.takes("UPDATE added SET n = n + 100"), "it is not published for UPDATE any more")
        for table in ("keyed", "added"):
            pipeline.wait_state("shop_eu", f"shop.{table}", State.ERROR)
            database.execute(f"ALTER TABLE {table} REPLICA IDENTITY DEFAULT")
            pipeline.wait_state("shop_eu", f"shop.{table}", State.STREAMING)
            database.execute(f"INSERT INTO {table} VALUES (3, 3)")
        pipeline.wait_applied(database)
        for table in ("keyed", "added", "good"):
            assert sorted(pipeline.rows(table)) == sorted(database.execute(f"SELECT id, n FROM {table}"))


@pytest.mark.parametrize("origin", ["none", pytest.param("any", marks=pytest.mark.slow)])
def test_rows_that_the_source_has_from_another_server_arrive(
    database: Database, postgres17: EmbeddedPostgres, lake_folder: LakeFolder, origin: str
) -> None:
    """A subscription's rows are the source's own to kuvasz, whatever origins (16+) the subscription itself takes."""
    needs(database.server, 16, "the option origin of subscriptions")
    publisher = create_database(postgres17)
    for each in (publisher, database):
        each.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
    publisher.execute("INSERT INTO items SELECT i, 0 FROM generate_series(1, 5) i")
    publisher.execute("CREATE PUBLICATION theirs FOR TABLE items")
    host = f"host=127.0.0.1 port={publisher.server.port} user=postgres dbname={publisher.name}"
    with database.connect(autocommit=True) as session:
        session.execute(f"CREATE SUBSCRIPTION ours CONNECTION '{host}' PUBLICATION theirs WITH (origin = {origin})")
    try:
        config = lake_folder.config(group({"eu": database}, {"items": None}))
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_streaming()
            publisher.execute("UPDATE items SET n = 1 WHERE id < 4; DELETE FROM items WHERE id = 5")
            database.execute("INSERT INTO items VALUES (100, 100)")
            theirs = [*publisher.execute("SELECT id, n FROM items"), (100, 100)]
            wait_until(lambda: sorted(pipeline.rows("items")) == sorted(theirs), "both servers' rows are there")
            pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"))
    finally:
        with database.connect(autocommit=True) as session:
            session.execute("DROP SUBSCRIPTION ours")
        drop_database(publisher)


def test_an_old_server_publishes_whole_tables_and_kuvasz_leaves_out_what_the_map_excludes(
    postgres14: EmbeddedPostgres, lake_folder: LakeFolder
) -> None:
    """Column lists and row filters came with 15: before, excluded columns leave the server, and end in kuvasz."""
    database = create_database(postgres14)
    try:
        database.execute("CREATE TABLE people (id int PRIMARY KEY, secret text, name text)")
        database.execute("INSERT INTO people VALUES (1, 's1', 'Ada'), (2, 's2', 'Bob'), (-1, 's3', 'out')")
        tables = {"people": {"exclude": ["secret"], "filter": "id > 0"}}
        with Pipeline(lake_folder.config(group({"eu": database}, tables)), lake_folder) as pipeline:
            pipeline.wait_streaming()
            database.execute("UPDATE people SET secret = 'other', name = 'Eva' WHERE id = 2")
            database.execute("INSERT INTO people VALUES (3, 's4', 'Tim'), (-2, 's5', 'out')")
            database.execute("UPDATE people SET id = 4 WHERE id = -1")
            pipeline.wait_applied(database)
            assert sorted(pipeline.rows("people")) == [(1, "Ada"), (2, "Eva"), (3, "Tim"), (4, "out")]
    finally:
        drop_database(database)
