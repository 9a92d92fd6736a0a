"""Every type of the manual through the whole path: copied, streamed and updated, read by three readers.

`tests.integration.test_values` holds the same for the decoder alone; here the lake's files and metadata are what is
looked at, and what becomes of values that the lake cannot hold.
"""

from __future__ import annotations

import datetime
import random
import re
import tempfile
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.state.tables import State
from tests import oracle
from tests.fix_lake import LakeFolder, Pipeline, group, wait_until
from tests.fix_postgres import Database, create_database, drop_database
from tests.strategies import NEEDS, TYPES, SqlType

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

#: What a role may prefer in output formats; kuvasz must not care.
ODD_MANNERS = (
    "datestyle = 'SQL, DMY'", "timezone = 'Asia/Kathmandu'", "intervalstyle = 'iso_8601'", "bytea_output = 'escape'",
    "extra_float_digits = 0", "client_encoding = 'LATIN1'",
)  # fmt: skip

UTC = datetime.UTC


class DebianPostgres(EmbeddedPostgres):
    """A server of the distribution's packages, which come with the contrib extensions."""

    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"))

    def command(self, name: str) -> Path:
        return self.folders[-1] / name


@pytest.fixture(scope="module")
def contrib() -> Iterator[EmbeddedPostgres]:
    if not DebianPostgres.folders:
        pytest.skip("no server with contrib extensions is installed")
    with DebianPostgres(Path(tempfile.mkdtemp(prefix="kuvasz-test-")) / "data") as server:
        yield server


@pytest.fixture(params=["postgres16", "postgres18", "contrib"])
def typed(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database with the types of the table, on each server."""
    created = create_database(request.getfixturevalue(request.param))
    created.execute(NEEDS)
    yield created
    drop_database(created)


def supported(database: Database, types: Sequence[SqlType]) -> list[SqlType]:
    """Return the types the server has, their extensions created."""
    available = {name for (name,) in database.execute("SELECT name FROM pg_available_extensions")}
    for name in {kind.extension for kind in types} & available:
        database.execute(f"CREATE EXTENSION {name}")
    try:
        database.execute("SELECT '<a/>'::xml")
    except psycopg.errors.FeatureNotSupported:
        types = [kind for kind in types if kind.sql != "xml"]
    return [kind for kind in types if kind.extension is None or kind.extension in available]


def with_odd_manners(database: Database) -> Database:
    """Return the database as a role sees it that prefers everything to be printed differently."""
    database.execute("DROP ROLE IF EXISTS odd; CREATE ROLE odd LOGIN SUPERUSER REPLICATION")
    for manner in ODD_MANNERS:
        database.execute(f"ALTER ROLE odd SET {manner}")
    seen = Database(database.server, database.name)
    seen.url = database.server.url(database.name, user="odd")
    return seen


def insert(database: Database, types: Sequence[SqlType], first_id: int) -> int:
    """Insert rows that have every value of every type, and a row of NULLs; return their number."""
    count = max(len(kind.values) for kind in types)
    rows = [
        (first_id + row, *(None if row % (len(kind.values) + 1) == len(kind.values)
                           else kind.values[row % (len(kind.values) + 1)] for kind in types))
        for row in range(count)
    ]  # fmt: skip
    rows.append((first_id + count, *(None for _ in types)))
    with database.connect() as connection, connection.cursor() as cursor:
        places = ", ".join(f"%s::{kind.sql}" for kind in types)
        cursor.executemany(f"INSERT INTO everything VALUES (%s, {places})", rows)
    return len(rows)


def huge(database: Database, row: int) -> None:
    """Insert a row of values of one megabyte, which no compression makes small."""
    content = random.Random(row).randbytes(1 << 19)
    text = content.hex()
    values = {"text": text, "bytea": content * 2, "jsonb": f'{{"a": "{text}"}}', "text_list": [text, None, ""]}
    database.execute(
        f"INSERT INTO everything (id, {', '.join(values)}) VALUES ({row}, {', '.join(['%s'] * len(values))})",
        tuple(values.values()),
    )


def test_every_type_is_copied_streamed_and_updated(typed: Database, lake_folder: LakeFolder) -> None:
    replicated = with_odd_manners(typed)
    types = supported(typed, TYPES)
    names = [kind.name for kind in types]
    columns = ", ".join(f"{kind.name} {kind.sql}" for kind in types)
    typed.execute(f"CREATE TABLE everything (id int PRIMARY KEY, {columns})")
    insert(typed, types, 0)
    huge(typed, 900)
    with Pipeline(lake_folder.config(group({None: replicated}, {"everything": None})), lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.assert_equal("everything", oracle.source_rows(typed.url, "everything"))
        insert(typed, types, 1000)
        huge(typed, 1900)
        pipeline.wait_applied(replicated)
        pipeline.assert_equal("everything", oracle.source_rows(typed.url, "everything"))
        # Every column of every row from its neighbour, and then none but one: the large ones are not sent again.
        settings = ", ".join(f"{name} = other.{name}" for name in names)
        typed.execute(f"UPDATE everything mine SET {settings} FROM everything other WHERE other.id = mine.id + 1")
        typed.execute("UPDATE everything SET bool = NOT bool")
        typed.execute("DELETE FROM everything WHERE id % 10 = 3")
        pipeline.wait_applied(replicated)
        pipeline.assert_equal("everything", oracle.source_rows(typed.url, "everything"))
        table = oracle.open_table(lake_folder.pyiceberg, "shop.everything", catalog=lake_folder.catalog)
        found = {field.name: str(field.field_type) for field in table.schema().fields}
    assert found == {"id": "int"} | {kind.name: kind.iceberg for kind in types}


def test_keys_of_every_type(typed: Database, lake_folder: LakeFolder) -> None:
    """Rows are found again by keys of every type, also by a new index, and by readers that trust a file's bounds."""
    types = supported(typed, [kind for kind in TYPES if kind.is_key])
    for kind in types:
        typed.execute(f"CREATE TABLE by_{kind.name} (k {kind.sql}, n int, PRIMARY KEY (k, n))")
        typed.execute(f"CREATE TABLE only_{kind.name} (k {kind.sql} PRIMARY KEY, v int)")
    tables = [f"{way}_{kind.name}" for kind in types for way in ("by", "only")]

    def fill(start: int, step: int) -> None:
        with typed.connect() as connection:
            for kind in types:
                for place, value in enumerate(kind.values[start::step]):
                    for name in ("by", "only"):
                        connection.execute(
                            f"INSERT INTO {name}_{kind.name} VALUES (%s::{kind.sql}, {place}) ON CONFLICT DO NOTHING",
                            (value,),
                        )

    def change() -> None:
        with typed.connect() as connection:
            for kind in types:
                connection.execute(f"UPDATE only_{kind.name} SET v = v + 1")
                connection.execute(f"UPDATE by_{kind.name} SET n = n + 1000 WHERE n % 2 = 0")
                connection.execute(f"DELETE FROM by_{kind.name} WHERE n % 3 = 1")

    def check(pipeline: Pipeline) -> None:
        pipeline.wait_applied(typed)
        for name in tables:
            pipeline.assert_equal(name, oracle.source_rows(typed.url, name), key=("k",))

    fill(0, 2)
    config = lake_folder.config(group({None: typed}, dict.fromkeys(tables)))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        fill(1, 2)
        change()
        check(pipeline)
    import shutil

    shutil.rmtree(lake_folder.folder / "state")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        change()
        check(pipeline)
