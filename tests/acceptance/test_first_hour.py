"""README, walked as it is printed: from a role and a map to rows that any engine reads, from whatever folder.

Each walk says how long it took, and has the time that a new user is promised for it.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.lake.java import jars, versions
from tests.support.postgres import Database, create_database, drop_database
from tests.support.stores import S3

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"

#: What a new user is promised, in seconds, for what kuvasz does of it: reading and typing not counted.
WITH_SQLITE_S, WITH_S3_S = 300, 600


def printed(language: str, page: Path = README) -> list[str]:
    """Return a page's examples in a language."""
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(text) for text in found]


class Walk:
    """A new user's folder, another one from which kuvasz is called as well, and what it took.

    Args:
        folder: For both.
        map_: What is written into the map.
        environment: What is exported besides.
    """

    def __init__(self, folder: Path, map_: str, **environment: str) -> None:
        self.folder, self.elsewhere = folder / "mine", folder / "elsewhere"
        self.folder.mkdir()
        self.elsewhere.mkdir()
        (self.folder / "map.yaml").write_text(map_)
        self._environment = {
            **os.environ, "KUVASZ_CONFIG": str(self.folder / "map.yaml"), "PYTHONPATH": str(ROOT),
            "KUVASZ_SERVER__ADDRESS": "127.0.0.1:0", **environment,
        }  # fmt: skip
        self._begun = time.monotonic()

    def run(self, *command: str, where: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run Python."""
        return subprocess.run(
            [sys.executable, *command], cwd=where or self.elsewhere, env=self._environment, capture_output=True,
            text=True, check=False,
        )  # fmt: skip

    def kuvasz(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run kuvasz from another folder than its map's."""
        return self.run("-m", "kuvasz", *arguments)

    def assert_in_time(self, promised_s: float, record: Callable[[str, object], None]) -> None:
        """Say how long it took until now; more than was promised is a fault."""
        took = time.monotonic() - self._begun
        record("seconds", round(took, 1))
        print(f"from an empty folder to rows in the lake: {took:.0f} s")
        assert took < promised_s


def carry_out(statements: str, database: Database) -> None:
    """Carry out what is printed, each by itself."""
    with database.connect(autocommit=True) as connection:  # as psql does: CREATE DATABASE stands in no transaction
        for statement in filter(str.strip, statements.split(";")):
            connection.execute(statement)


@contextlib.contextmanager
def database_of(server: EmbeddedPostgres) -> Iterator[Database]:
    """Make a new user's own database, and take away what kuvasz has of it afterwards."""
    database = create_database(server, "shop")
    database.execute("CREATE TABLE customers (id int PRIMARY KEY, name text)")
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, total numeric(12,2))")
    database.execute("INSERT INTO customers VALUES (1, 'Ann'), (2, 'Ben')")
    yield database
    with database.connect(autocommit=True) as connection:
        connection.execute("DROP OWNED BY kuvasz; DROP ROLE kuvasz")
    drop_database(database)


@pytest.fixture
def shop(postgres18: EmbeddedPostgres) -> Iterator[Database]:
    with database_of(postgres18) as database:
        yield database


@pytest.fixture
def us(postgres16: EmbeddedPostgres) -> Iterator[Database]:
    with database_of(postgres16) as database:
        yield database


def begun(shop: Database, folder: Path) -> Walk:
    """Begin as README does, with the first of its maps."""
    return Walk(folder, printed("yaml")[0].replace("@eu1/", f"@127.0.0.1:{shop.server.port}/"), EU_PW="any")


@pytest.mark.timeout(900)
def test_the_first_hour(shop: Database, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    role, _, made = printed("sql")[:3]
    walk = begun(shop, tmp_path)
    assert walk.kuvasz("check").returncode == 3, "there is no such role yet"
    for statements in (role, made):
        carry_out(statements, shop)
    checked = walk.kuvasz("check", "--failed")
    assert checked.returncode == 0, checked.stdout
    planned = walk.kuvasz("plan")
    assert (planned.returncode, "copy public.customers into shop.customers" in planned.stdout) == (4, True), planned
    started = walk.kuvasz("--until-caught-up")
    assert started.returncode == 0, started.stderr
    assert walk.kuvasz("plan").returncode == 0
    (read,) = printed("python")
    asked = "table = lake.load_table('shop.customers').scan().to_arrow()\nprint(sorted(table['name'].to_pylist()))"
    rows = walk.run("-c", f"{read}\n{asked}", where=walk.folder)
    assert rows.stdout == "['Ann', 'Ben']\n", rows.stderr
    walk.assert_in_time(WITH_SQLITE_S, record_property)
    read_as_printed(walk)
    paused = walk.kuvasz("pause", "--table", "orders")
    assert (paused.returncode, paused.stdout.endswith("noted for its next start\n")) == (0, True), paused
    assert list(walk.elsewhere.iterdir()) == []
    assert sorted(path.name for path in walk.folder.iterdir()) == [".kuvasz", "lake", "map.yaml"]
    assert walk.kuvasz("cleanup", "--yes").returncode == 1, "the publication is its owner's"
    assert shop.execute("SELECT 1 FROM pg_replication_slots WHERE database = 'shop'") == []


def read_as_printed(walk: Walk) -> None:
    """Read the lake as docs/reading.md does: by PyIceberg, and all tables together."""
    by_pyiceberg, _, together = printed("python", ROOT / "docs" / "reading.md")
    asked = "print([one.scan().count() for one in load_together(lake, ['shop.customers', 'shop.orders'])])"
    rows = walk.run("-c", f"{by_pyiceberg}\n{together}\n{asked}", where=walk.folder)
    assert rows.stdout == "[2, 0]\n", rows.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_spark_of_ones_own_reads_the_lake_as_printed(shop: Database, tmp_path: Path) -> None:
    role, _, made = printed("sql")[:3]
    walk = begun(shop, tmp_path)
    for statements in (role, made):
        carry_out(statements, shop)
    started = walk.kuvasz("--until-caught-up")
    assert started.returncode == 0, started.stderr
    _, by_spark, _ = printed("python", ROOT / "docs" / "reading.md")
    packages = re.search(r'"spark\.jars\.packages",\s*"([^"]*)"', by_spark)
    assert packages is not None
    assert tuple(packages[1].split(",")) == versions.CORE
    # From where kuvasz has fetched them: Ivy asks Maven Central, which is not everywhere.
    here = f'"spark.driver.extraClassPath", "{jars.class_path(versions.CORE)}"'
    shown = walk.run("-c", by_spark.replace(packages[0], here), where=walk.folder)
    assert re.findall(r"\|\s*(Ann|Ben)\|", shown.stdout) == ["Ann", "Ben"], shown.stderr
    walk.kuvasz("cleanup", "--yes")


#: README's map names these, which are not here: servers, an object store, and certificates of the servers.
_STORE = """\
    s3.endpoint: {endpoint}
    s3.path-style-access: "true"
    s3.access-key-id: {key}
    s3.secret-access-key: {secret}
"""


@pytest.fixture
def catalog(shop: Database) -> Iterator[Database]:
    """The catalog's database, made as docs/lakes.md prints it."""
    server = shop.server
    (made,) = (text for text in printed("sql", ROOT / "docs" / "lakes.md") if "CREATE DATABASE iceberg" in text)
    carry_out(made, shop)
    yield Database(server, "iceberg")
    drop_database(Database(server, "iceberg"))
    shop.execute("DROP ROLE iceberg")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_map_of_an_object_store_and_a_catalogs_database(
    shop: Database, us: Database, catalog: Database, s3: S3, tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:  # fmt: skip
    role, _, made = printed("sql")[:3]
    map_ = (
        printed("yaml")[1].replace("?sslmode=verify-full", "").replace("s3://lake/", f"s3://{S3.bucket}/first_hour/")
    )
    for name, database in {"eu1": shop, "us1": us, "catalog.internal": catalog}.items():
        map_ = re.sub(rf"(?<=[@/]){name}(?=/)", f"127.0.0.1:{database.server.port}", map_)
    store = _STORE.format(
        endpoint=s3.endpoint, key=s3.properties["s3.access-key-id"], secret=s3.properties["s3.secret-access-key"]
    )
    map_, places = re.subn(r" *# s3\.endpoint, .*\n", store, map_)
    assert places == 1
    walk = Walk(tmp_path, map_, EU_PW="any", US_PW="any", CATALOG_PW="any")
    for database, publication in ((shop, made), (us, made.replace("kuvasz_shop_eu", "kuvasz_shop_us"))):
        carry_out(role, database)
        carry_out(publication, database)
    checked = walk.kuvasz("check", "--failed")
    assert checked.returncode == 0, checked.stdout
    planned = walk.kuvasz("plan")
    assert (planned.returncode, "copy public.orders into shop.fact_orders" in planned.stdout) == (4, True), planned
    started = walk.kuvasz("--until-caught-up")
    assert started.returncode == 0, started.stderr
    properties = {
        "uri": f"postgresql+psycopg://iceberg:any@127.0.0.1:{catalog.server.port}/iceberg",
        "warehouse": f"s3://{S3.bucket}/first_hour/warehouse", **s3.properties,
    }  # fmt: skip
    rows = walk.run("-c", _READ.format(properties=properties))
    assert rows.stdout == "[('eu', 'Ann'), ('eu', 'Ben'), ('us', 'Ann'), ('us', 'Ben')]\n", rows.stderr
    walk.assert_in_time(WITH_S3_S, record_property)


#: As docs/reading.md has it for another catalog than SQLite.
_READ = """
from pyiceberg.catalog.sql import SqlCatalog
lake = SqlCatalog("kuvasz", **{properties!r})
table = lake.load_table("shop.customers").scan().to_arrow()
print(sorted(zip(table["sid"].to_pylist(), table["name"].to_pylist())))
"""
