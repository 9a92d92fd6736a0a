"""The rights that docs/security.md calls the least are enough, and give nothing more."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from kuvasz.config.load import load
from kuvasz.demo.postgres import EmbeddedPostgres
from tests.support.lake import MemoryPipeline
from tests.support.postgres import create_database, drop_database
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgres

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text("utf-8")


@pytest.mark.parametrize("has_role", [False, True], ids=["one role", "a role for slots alone"])
def test_the_least_rights_of_the_page_are_enough(
    tmp_path: Path, postgres16: EmbeddedPostgres, has_role: bool
) -> None:
    """The tables are copied and streamed, with a publication that the owner made; another table cannot be read."""
    least, of_owner, roles = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)[:3]
    assert "GRANT shop_owner" in of_owner
    if has_role:
        _, grants = least.split(";\n", 1)  # all but the role, which has REPLICATION there
        least = roles + grants
    database = create_database(postgres16, "shop")
    try:
        for table in ("customers", "orders", "secrets"):
            database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY)")
            database.execute(f"INSERT INTO {table} VALUES (1)")
        database.execute("REVOKE CONNECT ON DATABASE shop FROM PUBLIC")
        database.execute(least)
        url = database.url.replace("postgres@", "kuvasz@")
        role = {"replication_url": "postgresql://kuvasz_slots@"} if has_role else {}
        document = {
            "lake": {"warehouse": str(tmp_path), "namespace": "shop"},
            "pipeline": {"state": str(tmp_path / "state"), "commit_interval": "20ms"},
            "server": {"address": None},
            "databases": [
                {
                    "database": "shop",
                    "urls": [{"url": url, "sid": "eu"} | role],
                    "tables": {"customers": None, "orders": None},
                }
            ],
        }
        (tmp_path / "map.yaml").write_text(json.dumps(document))
        with MemoryPipeline(load(tmp_path / "map.yaml", {}).config, SimpleNamespace()) as pipeline:
            pipeline.wait_streaming()
            database.execute("INSERT INTO orders VALUES (2)")
            wait_until(lambda: len(pipeline.rows("orders")) == 2, lambda: f"it follows: {pipeline.errors()}")
            assert len(pipeline.rows("customers")) == 1
        refused = [(url, "SELECT FROM secrets"), (url, "DELETE FROM orders")]
        if has_role:
            slots = url.replace("kuvasz@", "kuvasz_slots@")
            refused += [(url, "SELECT pg_drop_replication_slot('kuvasz_shop_eu')"), (slots, "SELECT FROM orders")]
        for asked, statement in refused:
            with psycopg.connect(asked) as session, pytest.raises(psycopg.errors.InsufficientPrivilege):
                session.execute(statement)
    finally:
        drop_database(database)
        with psycopg.connect(postgres16.url(), autocommit=True) as session:
            session.execute("DROP ROLE IF EXISTS kuvasz, kuvasz_slots")
