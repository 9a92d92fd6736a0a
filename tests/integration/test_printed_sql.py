"""Statements, and maps made of a database, as pages print them: typed in at a real server, they do what is said."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from kuvasz.config.load import load
from kuvasz.demo.postgres import EmbeddedPostgres
from tests.support.lake import LakeFolder, MemoryPipeline, Pipeline, group
from tests.support.postgres import Database, create_database, drop_database
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgres

ROOT = Path(__file__).parents[2]
PAGES = {page.name: page.read_text("utf-8") for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))}


def printed(page: str, language: str, first: str) -> str:
    """Return the example of a page that begins so."""
    (found,) = re.findall(rf"```{language}\n( *{re.escape(first)}.*?)```", PAGES[page], re.DOTALL)
    return str(found)


def typed(database: Database, statements: str) -> list[tuple]:
    """Carry out what is printed, each by itself; return what the last query tells."""
    found = list[tuple]()
    with database.connect(autocommit=True) as connection:
        for statement in filter(str.strip, re.sub(r"--.*", "", statements).split(";")):
            told = connection.execute(statement)
            found = told.fetchall() if told.description else found
    return found


@pytest.fixture
def shop(postgres17: EmbeddedPostgres) -> Iterator[Database]:
    """A database of the name that pages use, whose tables are its owner's, and kuvasz's role as README makes it."""
    database = create_database(postgres17, "shop")
    database.execute("CREATE ROLE shop_owner")
    database.execute("GRANT ALL ON SCHEMA public TO shop_owner")
    for table in ("customers", "orders"):
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY)")
        database.execute(f"ALTER TABLE {table} OWNER TO shop_owner")
    typed(database, printed("README.md", "sql", "CREATE ROLE kuvasz"))
    yield database
    for role in ("kuvasz", "shop_owner"):
        database.execute(f"DROP OWNED BY {role} CASCADE")
    drop_database(database)
    with psycopg.connect(postgres17.url(), autocommit=True) as session:
        session.execute("DROP ROLE kuvasz; DROP ROLE shop_owner")


def map_of(database: Database, folder: Path, tables: dict[str, object]) -> Path:
    document = {
        "lake": {"warehouse": str(folder), "namespace": "shop"},
        "pipeline": {"state": str(folder / "state"), "commit_interval": "20ms"}, "server": {"address": None},
        "databases": [{
            "database": "shop", "tables": tables,
            "urls": [{"url": database.url.replace("postgres@", "kuvasz@"), "sid": "eu"}],
        }],
    }  # fmt: skip
    (folder / "map.yaml").write_text(json.dumps(document))
    return folder / "map.yaml"


@pytest.mark.parametrize("page", ["README.md", "howto.md", "security.md"])
def test_a_member_of_the_owners_role_makes_the_publication(page: str, shop: Database, tmp_path: Path) -> None:
    typed(shop, printed(page, "sql", "GRANT shop_owner TO kuvasz;"))
    config = load(map_of(shop, tmp_path, {"customers": None, "orders": None}), {}).config
    with MemoryPipeline(config, SimpleNamespace()) as pipeline:
        pipeline.wait_streaming()
        shop.execute("INSERT INTO orders VALUES (2)")
        wait_until(lambda: len(pipeline.rows("orders")) == 1, lambda: f"it follows: {pipeline.errors()}")
    assert shop.execute("SELECT pubname FROM pg_publication") == [("kuvasz_shop_eu",)]
    typed(shop, printed("operating.md", "sql", "SELECT pg_drop_replication_slot('kuvasz_shop_eu')"))
    assert left(shop) == (0, 0)


def left(database: Database) -> tuple[int, ...]:
    """How many slots and publications a database has."""
    return database.execute(
        "SELECT (SELECT count(*) FROM pg_replication_slots WHERE database = current_database()),"
        " (SELECT count(*) FROM pg_publication)"
    )[0]


def test_what_other_tools_have_left_goes(database: Database) -> None:
    blocks = re.findall(r"```sql\n( *SELECT slot_name, active.*?)```", PAGES["migrating.md"], re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        (slot,), (made,) = re.findall(r"slot\('(\w+)'\)", block), re.findall(r"DROP PUBLICATION (\w+)", block)
        database.execute(f"CREATE PUBLICATION {made}")
        database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
        typed(database, block)
        assert left(database) == (0, 0)


def test_a_second_publication_of_a_dba_is_enough_for_a_table_without_a_key(shop: Database, tmp_path: Path) -> None:
    shop.execute("CREATE TABLE logs (line text)")
    shop.execute("ALTER TABLE logs OWNER TO shop_owner")
    typed(shop, printed("README.md", "sql", "CREATE PUBLICATION kuvasz_shop_eu"))
    typed(shop, printed("tables.md", "sql", "CREATE PUBLICATION kuvasz_shop_eu_ins"))
    shop.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO kuvasz")
    tables: dict[str, object] = {"customers": None, "orders": None, "logs": {"type": "append"}}
    with MemoryPipeline(load(map_of(shop, tmp_path, tables), {}).config, SimpleNamespace()) as pipeline:
        pipeline.wait_streaming()
        shop.execute("INSERT INTO logs VALUES ('a line')")
        wait_until(lambda: len(pipeline.rows("logs")) == 1, lambda: f"it follows: {pipeline.errors()}")
    shop.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = 'shop'")


def test_publication_and_slot_are_made_before_another_tool_copies(database: Database) -> None:
    database.execute("CREATE TABLE items (id int PRIMARY KEY)")
    publication, wait, slot = re.split(
        r"\n\n", printed("tables.md", "sql", "CREATE PUBLICATION kuvasz_shop_eu FOR TABLE items")
    )
    typed(database, publication)
    database.execute("INSERT INTO items VALUES (1)")  # so that transactions go on
    wait_until(lambda: typed(database, wait)[0][0] is not False, "it may be made")
    ((lsn,),) = typed(database, slot)
    assert database.execute("SELECT %s::pg_lsn >= restart_lsn FROM pg_replication_slots", (lsn,)) == [(True,)]
    database.execute("SELECT pg_drop_replication_slot('kuvasz_shop_eu')")


@pytest.mark.parametrize(
    ("page", "first"), [("howto.md", "export EU_PW=…\nkuvasz init"), ("migrating.md", "kuvasz init")]
)
def test_a_map_is_made_of_a_database(page: str, first: str, database: Database, tmp_path: Path) -> None:
    database.execute("CREATE SCHEMA billing")
    for table in ("customers", "tmp_load", "billing.invoices"):
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY)")
    script = printed(page, "sh", first).partition("kuvasz --config")[0]
    here = database.url.replace("postgres@", "postgres:${EU_PW}@")
    kuvasz = f'kuvasz() {{ "{sys.executable}" -m kuvasz "$@"; }}\nexport EU_PW=any\n'
    done = subprocess.run(
        ["bash", "-ec", kuvasz + script.replace("postgresql://kuvasz:${EU_PW}@eu1/shop", here)], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    config = load(tmp_path / "map.yaml", {"EU_PW": "any"}).config
    (group,) = config.databases
    wanted = {"customers", "billing.invoices"} if page == "howto.md" else {"customers", "tmp_load"}
    assert (set(group.tables), group.urls[0].sid) == (wanted, "eu")


@pytest.mark.spark
def test_such_a_table_goes_on_over_restarts_and_what_is_missing_is_told(
    shop: Database, lake_folder: LakeFolder
) -> None:
    """Nobody may note anything at a publication that is the DBA's: the slot says whether it is past that."""
    shop.execute("CREATE TABLE logs (line text)")
    shop.execute("ALTER TABLE logs OWNER TO shop_owner")
    typed(shop, printed("README.md", "sql", "CREATE PUBLICATION kuvasz_shop_eu"))
    typed(shop, printed("tables.md", "sql", "CREATE PUBLICATION kuvasz_shop_eu_ins"))
    shop.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO kuvasz")
    (source,) = group({"eu": shop}, {"customers": None, "orders": None, "logs": {"type": "append"}})
    source["urls"][0]["url"] = shop.url.replace("postgres@", "kuvasz@")
    config = lake_folder.config([source])

    def lines() -> set[str]:
        query = f"SELECT line FROM {lake_folder.catalog}.shop.logs"
        return {row[0] for row in lake_folder.session.sql(query).collect()}

    wanted: set[str] = set()
    for line in ("first", "second"):
        shop.execute(f"INSERT INTO logs VALUES ('{line} before')")
        wanted.update((f"{line} before", f"{line} after"))
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_streaming()
            shop.execute(f"INSERT INTO logs VALUES ('{line} after')")
            wait_until(lambda: lines() == wanted, lambda: f"they come: {pipeline.errors()}")
    shop.execute("ALTER PUBLICATION kuvasz_shop_eu_ins SET (publish = 'insert')")
    shop.execute("INSERT INTO logs VALUES ('third')")
    with Pipeline(config, lake_folder) as pipeline:
        wait_until(
            lambda: "third" in lines() or bool(pipeline.errors()), lambda: f"it comes, or it is told: {lines()}"
        )
    typed(shop, "SELECT pg_drop_replication_slot('kuvasz_shop_eu')")
