"""The sources of deploy/compose.yaml on a real server: what makes them is taken, and kuvasz finds all it needs."""

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

SQL = Path(__file__).parents[2] / "deploy" / "compose" / "source.sql"

#: Roles are the server's, which other tests use, too.
ROLES = {"kuvasz": "compose_kuvasz", "shop_owner": "compose_owner"}


@pytest.fixture
def shop(database: Database) -> Iterator[Database]:
    text = re.sub(rf"\b({'|'.join(ROLES)})\b", lambda found: ROLES[found[1]], SQL.read_text("utf-8"))
    with psycopg.connect(database.url) as connection:
        connection.execute(text)
    yield database
    for role in ROLES.values():
        database.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


def test_kuvasz_finds_all_that_it_needs(shop: Database, postgres18: EmbeddedPostgres) -> None:
    tables = [TableName(schema="public", name=name) for name in ("customers", "orders", "prices")]
    findings = preflight.check_source(postgres18.url(shop.name, user=ROLES["kuvasz"]), "shop", "eu", tables)
    assert [one for one in findings if one.is_blocking] == []
    assert {one.table.name for one in findings if one.table} == {"customers", "orders", "prices"}


def test_a_moment_changes_rows_and_adds_none(shop: Database) -> None:
    (before,) = shop.execute("SELECT count(*), sum(id) FROM orders")
    shop.execute("CALL a_moment()")
    (after,) = shop.execute("SELECT count(*), sum(id) FROM orders")
    assert after[0] == before[0] == 20_000
    assert after[1] > before[1]
    assert shop.execute("SELECT count(*) FROM orders WHERE state = 'sent'") == [(10_000,)]
