"""README, walked as it is printed: from a role and a map to rows that any engine reads, from whatever folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from tests.support.postgres import Database, create_database, drop_database

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def printed(language: str) -> list[str]:
    """README's examples in a language."""
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```", README, re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(text) for text in found]


@pytest.fixture
def shop(postgres18: EmbeddedPostgres) -> Iterator[Database]:
    database = create_database(postgres18, "shop")
    database.execute("CREATE TABLE customers (id int PRIMARY KEY, name text)")
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, total numeric(12,2))")
    database.execute("INSERT INTO customers VALUES (1, 'Ann'), (2, 'Ben')")
    yield database
    with database.connect(autocommit=True) as connection:
        connection.execute("DROP OWNED BY kuvasz; DROP ROLE kuvasz")
    drop_database(database)


@pytest.mark.timeout(900)
def test_the_first_hour(shop: Database, tmp_path: Path) -> None:
    role, _, made = printed("sql")[:3]
    folder, elsewhere = tmp_path / "mine", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    map_ = printed("yaml")[0].replace("@eu1/", f"@127.0.0.1:{shop.server.port}/")
    (folder / "map.yaml").write_text(map_)
    environment = {
        **os.environ, "KUVASZ_CONFIG": str(folder / "map.yaml"), "EU_PW": "any", "PYTHONPATH": str(ROOT),
        "KUVASZ_SERVER__ADDRESS": "127.0.0.1:0",
    }  # fmt: skip

    def run(*command: str, where: Path = elsewhere) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command], cwd=where, env=environment, capture_output=True, text=True, check=False
        )

    def kuvasz(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run("-m", "kuvasz", *arguments)

    assert kuvasz("check").returncode == 3, "there is no such role yet"
    for statements in (role, made):
        for statement in filter(str.strip, statements.split(";")):
            shop.execute(statement)
    checked = kuvasz("check", "--failed")
    assert checked.returncode == 0, checked.stdout
    planned = kuvasz("plan")
    assert (planned.returncode, "copy public.customers into shop.customers" in planned.stdout) == (4, True), planned
    started = kuvasz("--until-caught-up")
    assert started.returncode == 0, started.stderr
    assert kuvasz("plan").returncode == 0
    (read,) = printed("python")
    asked = "table = lake.load_table('shop.customers').scan().to_arrow()\nprint(sorted(table['name'].to_pylist()))"
    rows = run("-c", f"{read}\n{asked}", where=folder)
    assert rows.stdout == "['Ann', 'Ben']\n", rows.stderr
    paused = kuvasz("pause", "--table", "orders")
    assert (paused.returncode, paused.stdout.endswith("noted for its next start\n")) == (0, True), paused
    assert list(elsewhere.iterdir()) == []
    assert sorted(path.name for path in folder.iterdir()) == [".kuvasz", "lake", "map.yaml"]
    assert kuvasz("cleanup", "--yes").returncode == 1, "the publication is its owner's"
    assert shop.execute("SELECT 1 FROM pg_replication_slots WHERE database = 'shop'") == []
