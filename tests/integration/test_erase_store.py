"""A tenant erased from a lake in an object store, with parked changes, alone or with a coordinator.

`test_erase` has the same in a folder: here what is looked through are the store's objects and the coordinator's rows.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.lake import group
from tests.support.opened_files import holding
from tests.support.postgres import Database, create_database, drop_database
from tests.support.process import KUVASZ, Process
from tests.support.stores import S3

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

#: Stands in every row of the tenant, in its key too, and nowhere else.
PLANTED = "Quittenmus"
TABLES = {"items": None, "prices": {"type": "history"}, "log": {"type": "changelog"}}


@pytest.fixture
def others(postgres18) -> Iterator[list[Database]]:
    made = [create_database(postgres18), create_database(postgres18)]
    yield made
    for database in made:
        drop_database(database)


def objects(s3: S3, prefix: str, folder: Path, text: str) -> list[str]:
    """Return the objects of a prefix that hold a text, however it is packed."""
    for key in s3.keys(prefix):
        folder.mkdir(exist_ok=True)
        file = folder / key.replace("/", "~")  # a store has objects where a folder of a file system would be
        s3.client.download_file(s3.bucket, key, str(file))
    return holding(folder, text)


def rows_holding(coordinator: Database, text: str) -> list[str]:
    """Return the tables of a coordinator with rows that hold a text, in texts or bytes."""
    tables = coordinator.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'kuvasz'")
    hexed = text.encode().hex()
    return [
        name
        for (name,) in tables
        if coordinator.execute(
            f"SELECT 1 FROM kuvasz.{name} t WHERE t::text LIKE '%{text}%' OR t::text LIKE '%{hexed}%' LIMIT 1"
        )
    ]


@pytest.mark.slow
@pytest.mark.parametrize("is_coordinated", [False, True])
def test_nothing_is_left_of_a_tenant_in_a_store(
    database: Database,
    others: list[Database],
    s3: S3,
    new_process: Callable[..., Process],
    tmp_path: Path,
    *,
    is_coordinated: bool,
) -> None:
    fr, coordinator = others
    for one, text in ((database, PLANTED), (fr, "Mirabelle")):
        for name in TABLES:
            one.execute(f"CREATE TABLE {name} (a int, b text, n int, PRIMARY KEY (a, b))")
            one.execute(f"INSERT INTO {name} SELECT i, '{text}-' || i, 0 FROM generate_series(1, 50) i")
    prefix = f"erase-{is_coordinated}/".lower()
    cluster = {"coordinator": coordinator.url, "lease": "8s"} if is_coordinated else None
    kuvasz = new_process(
        group({"de": database, "fr": fr}, TABLES), cluster=cluster,
        lake={"warehouse": f"s3://{S3.bucket}/{prefix}wh", "properties": s3.properties, "about": "_kuvasz"},
    )  # fmt: skip
    assert kuvasz.start("--until-caught-up").wait() == 0, kuvasz.report()
    paused = kuvasz.run("pause", "--table", "items", "--sid", "de")
    assert paused.returncode == 0, paused.stderr
    kuvasz.start()
    for one in (database, fr):
        for name in TABLES:
            one.execute(f"UPDATE {name} SET n = n + 1, b = b || 'x' WHERE a % 5 = 1")
            one.execute(f"DELETE FROM {name} WHERE a = 40")
    for one in (database, fr):
        ((now,),) = one.execute("SELECT pg_current_wal_insert_lsn()::text")
        kuvasz.wait_until(
            lambda one=one, now=now: one.execute(
                "SELECT bool_and(confirmed_flush_lsn >= %s::pg_lsn) FROM pg_replication_slots"
                " WHERE database = current_database()", (now,)
            ) == [(True,)],
            "all is confirmed, or parked",
        )  # fmt: skip
    kuvasz.kill()
    folder = kuvasz.folder
    assert objects(s3, prefix, tmp_path / "before", PLANTED)
    if is_coordinated:
        assert rows_holding(coordinator, PLANTED), "changes are parked there"
    else:
        assert any("parked" in name for name in holding(folder / "state", PLANTED)), "changes are parked there"

    command = ["source", "erase", "--sid", "de", "--yes", "--json", "--config", str(kuvasz.map)]
    erased = subprocess.run([*KUVASZ, *command], capture_output=True, text=True, timeout=500, check=False)
    assert erased.returncode == 0, erased.stdout + erased.stderr
    receipt = json.loads(erased.stdout)
    assert receipt["is_clean"]
    assert all(receipt["tables"][f"shop.{name}"]["rows"] >= 49 for name in TABLES), receipt
    assert objects(s3, prefix, tmp_path / "after", PLANTED) == []
    assert holding(folder, PLANTED) == []
    assert rows_holding(coordinator, PLANTED) == [] if is_coordinated else True
    assert objects(s3, prefix, tmp_path / "after", "Mirabelle")

    fr.execute("UPDATE items SET n = 1000 WHERE a = 3")
    assert kuvasz.start("--until-caught-up").wait() == 0, kuvasz.report()
