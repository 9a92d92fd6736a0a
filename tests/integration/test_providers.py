"""What docs/providers.md has typed in at services is enough, as far as a server of one's own can show it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.model import TableName
from kuvasz.source.check import preflight
from tests.support.postgres import Database

pytestmark = pytest.mark.postgres

PAGE = (Path(__file__).parents[2] / "docs" / "providers.md").read_text("utf-8")

#: Roles are the server's, which other tests use, too.
ROLE = "providers_kuvasz"

#: What makes the role, by service. Amazon's grants a role of Amazon's own, which no other server has.
MADE = dict(re.findall(r"^\| ([^|]+) \|[^|]*\| `(CREATE ROLE [^`]*)`", PAGE, re.MULTILINE))


@pytest.fixture
def shop(database: Database) -> Iterator[Database]:
    for table in ("customers", "orders"):
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY)")
    yield database
    database.execute(f"DROP OWNED BY {ROLE} CASCADE; DROP ROLE {ROLE}")


def test_the_services_whose_roles_are_made_by_sql_are_known() -> None:
    assert MADE.keys() == {"Amazon RDS, Aurora", "Google Cloud SQL", "Azure Database, flexible server"}


@pytest.mark.parametrize("service", [name for name in MADE if "Amazon" not in name])
def test_what_is_typed_in_is_enough(service: str, shop: Database, postgres18: EmbeddedPostgres) -> None:
    (everywhere,) = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    with psycopg.connect(shop.url) as session:
        session.execute(re.sub(r"\bkuvasz\b", ROLE, f"{MADE[service]}\n{everywhere}"))
    tables = [TableName(schema="public", name=name) for name in ("customers", "orders")]
    findings = preflight.check_source(postgres18.url(shop.name, user=ROLE), "shop", "eu", tables)
    assert [one for one in findings if one.is_blocking] == []
    assert {one.table.name for one in findings if one.table} == {"customers", "orders"}
