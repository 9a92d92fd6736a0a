"""A kuvasz whose map is in a database: begun by it, changed by commands while it runs, and begun again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from tests.support.lake import group
from tests.support.load import TABLES, create_tables, fill_tables
from tests.support.oracle import source_rows
from tests.support.postgres import Database, create_database, drop_database
from tests.support.process import Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def second(postgres16) -> Iterator[Database]:
    created = create_database(postgres16)
    yield created
    drop_database(created)


@pytest.fixture
def maps(postgres18) -> Iterator[Database]:
    created = create_database(postgres18)
    yield created
    drop_database(created)


def test_a_tenant_comes_and_goes_by_command(
    database: Database, second: Database, maps: Database, new_process: Callable[..., Process]
) -> None:
    for one in (database, second):
        create_tables(one)
        fill_tables(one)
    process = new_process(group({"eu": database}, dict.fromkeys(TABLES)), address="127.0.0.1:0")

    def run(*arguments: str) -> str:
        done = process.run(*arguments, "--map", maps.url)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "its first map: 1 sources" in run("map", "import", str(process.map))
    process.map.unlink()  # nobody needs it any more
    process.start("--config", maps.url)
    process.wait_event("reader.streaming", source="shop_eu")
    run("source", "add", "--database", "shop", "--sid", "us", "--url", second.url)
    process.wait_event("reader.streaming", source="shop_us")
    process.wait_confirmed(database, second)
    for table in TABLES:
        rows = [source_rows(one.url, table, sid=sid) for sid, one in {"eu": database, "us": second}.items()]
        process.assert_equal(table, *rows, key=("sid", "id"))
    process.kill()

    process.start("--config", maps.url)
    process.wait_event("reader.streaming", source="shop_us")
    run("source", "drop", "--sid", "us", "--drop-slot", "--yes")
    process.wait_event("source_released", source="shop_us")
    process.wait_until(
        lambda: second.execute("SELECT count(*) FROM pg_replication_slots") == [(0,)], "its slot is dropped"
    )
    assert [one["version"] for one in json.loads(run("map", "versions", "--json"))] == [3, 2, 1]
    assert '"us"' not in run("map", "export")
    process.terminate()
