"""A map that `kuvasz init` made of a database with every kind of table, under names that are hard to write."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from kuvasz.config import load
from kuvasz.config import sources as config_sources
from kuvasz.config.sources import Source
from kuvasz.source import sql
from tests.support import oracle
from tests.support.odd_tables import create_odd_tables
from tests.support.postgres import Database
from tests.support.process import Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

PASSWORD = "pass word:@/%"  # of a server that asks for none

LEFT_OUT = ("bare", "kept", "remote", "sessions", "totals")

#: After the copy, so that the stream has to bring them.
CHANGES = (
    "INSERT INTO customers VALUES (1001, 'new', '2024-02-29', 1.50)",
    "UPDATE customers SET name = 'other' WHERE id < 10",
    'DELETE FROM "Order Items" WHERE "Order" = 1',
    """UPDATE "a.b ""c"" 'd'" SET v = 'y'""",
    """UPDATE "Bill.ing".customers SET tags = '{}'""",
    'INSERT INTO "back\\slash/${X}\nand a line" VALUES (2)',
    'INSERT INTO "Customers" VALUES (3)',
    "INSERT INTO log VALUES (now(), 'streamed')",
    "DELETE FROM whole WHERE ctid = (SELECT min(ctid) FROM whole)",
    "UPDATE codes SET code = 'c' WHERE code = 'a'",
    "UPDATE area SET w = 9",
    "INSERT INTO events VALUES (1001, '2024-02-10')",
    "DELETE FROM events WHERE day = '2024-01-05'",
)


def made_map(database: Database, process: Process) -> str:
    """Have the command write the process's map, and return that."""
    process.map.unlink()
    url = database.url.replace("postgres@", "postgres:pass%20word%3A%40%2F%25@")
    command = [sys.executable, "-m", "kuvasz", "init", "--url", url, "--sid", "eu", "--database", "shop"]
    done = subprocess.run(
        [*command, "--output", str(process.map)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout == (
        f"written: {process.map}: 12 tables, {len(LEFT_OUT)} left out\n"
        f"next: export EU_PW=…; kuvasz --config {process.map} check\n"
    )
    again = subprocess.run([*command, "-o", str(process.map)], capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert again.stderr.startswith(f"error: {str(process.map)!r} is there already, and is not written over\n")
    return process.map.read_text("utf-8")


def assert_equal(process: Process, database: Database, source: Source) -> None:
    """All targets hold the rows of their tables."""
    lake = {
        "type": "sql", "uri": f"sqlite:///{process.folder}/lake/catalog.db",
        "warehouse": f"file://{process.folder}/lake/warehouse",
    }  # fmt: skip
    for spec in source.tables:
        expected = oracle.source_rows(database.url, sql.qualified(spec.table), sid="eu")
        oracle.assert_equal(expected, oracle.lake_rows_pyiceberg(lake, spec.identifier))
        assert len(expected) > 0, spec.table


@pytest.mark.timeout(900)
def test_all_rows_of_a_map_that_was_made_arrive(
    database: Database, new_process: Callable[..., Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    create_odd_tables(database)
    process = new_process([])
    text = made_map(database, process)
    assert "pass" not in text.replace("# the password of", "").replace("password of", "")
    for name in LEFT_OUT:
        assert f"    # {name}:  # left out: it " in text
    for name, value in {
        "EU_PW": PASSWORD, "KUVASZ_SERVER__ADDRESS": "127.0.0.1:0", "KUVASZ_SPARK__MASTER": "local[2]",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    loaded = load.load(process.map)
    (source,) = config_sources.resolve(loaded.config)
    assert source.url.get() == database.url.replace("postgres@", "postgres:pass%20word%3A%40%2F%25@")
    assert len(source.tables) == 12
    checked = process.run("check")
    assert checked.returncode == 0, checked.stdout
    process.start()
    process.wait_event("copied", 12)
    for statement in CHANGES:
        database.execute(statement)
    process.wait_confirmed(database)
    process.terminate()
    assert not process.found("table_failed"), process.report()
    assert_equal(process, database, source)
