from __future__ import annotations

import pytest

from kuvasz.source.catalog import membership
from kuvasz.source.catalog.membership import Membership
from tests.fix_postgres import Database

NAME = "of_the_shop"


def member(publication: str = "5:700", *clauses: str) -> Membership:
    return Membership(publication=publication, clauses=frozenset(clauses))


def test_one_clause_that_stayed_is_enough() -> None:
    before = member("5:700", "table 6:701", "schema 7:702:")
    assert member("5:700", "table 6:701").goes_on_from(before)
    assert member("5:700", "schema 7:702:", "table 8:900").goes_on_from(before)
    assert not member("5:700", "table 6:901").goes_on_from(before)
    assert not member("5:900", "table 6:701").goes_on_from(before), "what it sends was changed"
    assert not member("9:700", "all").goes_on_from(member("5:700", "all")), "it is another one"


def test_what_is_rendered_is_parsed() -> None:
    for one in (member("5:700", "all"), member("5:700", "schema 7:702:9", "table 6:701")):
        assert Membership.parse(one.render()) == one


@pytest.fixture
def tables(database: Database) -> Database:
    database.execute("CREATE TABLE items (id int PRIMARY KEY); CREATE TABLE others (id int PRIMARY KEY)")
    database.execute("CREATE SCHEMA elsewhere")
    return database


def seen(database: Database) -> Membership | None:
    ((oid,),) = database.execute("SELECT oid::bigint FROM pg_class WHERE relname = 'items'")
    with database.connect() as connection:
        return membership.load(connection, NAME, [oid]).get(oid)


#: How a publication is made, how a table leaves it, and how it comes back.
INTERRUPTIONS = {
    "table": ("CREATE {p} FOR TABLE items, others", "ALTER {p} DROP TABLE items", "ALTER {p} ADD TABLE items"),
    "set": ("CREATE {p} FOR TABLE items", "ALTER {p} SET TABLE others", "ALTER {p} SET TABLE items"),
    "filter": (
        "CREATE {p} FOR TABLE items",
        "ALTER {p} SET TABLE items WHERE (id > 5)",
        "ALTER {p} SET TABLE items",
    ),
    "operations": (
        "CREATE {p} FOR ALL TABLES",
        "ALTER {p} SET (publish = 'insert')",
        "ALTER {p} SET (publish = 'insert, update, delete, truncate')",
    ),
    "schema": (
        "CREATE {p} FOR TABLES IN SCHEMA public",
        "ALTER {p} DROP TABLES IN SCHEMA public",
        "ALTER {p} ADD TABLES IN SCHEMA public",
    ),
    "moved": (
        "CREATE {p} FOR TABLES IN SCHEMA public",
        "ALTER TABLE items SET SCHEMA elsewhere",
        "ALTER TABLE elsewhere.items SET SCHEMA public",
    ),
    "anew": ("CREATE {p} FOR ALL TABLES", "DROP {p}", "CREATE {p} FOR ALL TABLES"),
}


@pytest.mark.postgres
@pytest.mark.parametrize("case", INTERRUPTIONS)
def test_an_interruption_is_seen_afterwards(tables: Database, case: str) -> None:
    made, out, back = (statement.format(p=f"PUBLICATION {NAME}") for statement in INTERRUPTIONS[case])
    tables.execute(made)
    before = seen(tables)
    assert before is not None
    for harmless in ("ANALYZE items", "ALTER TABLE items ADD c int", "CREATE TABLE more (id int)"):
        tables.execute(harmless)
    again = seen(tables)
    assert again is not None
    assert again.goes_on_from(before)
    tables.execute(out)
    tables.execute(back)
    after = seen(tables)
    assert after is not None
    assert not after.goes_on_from(before)


@pytest.mark.postgres
def test_what_is_not_published_is_left_out(tables: Database) -> None:
    assert seen(tables) is None
    tables.execute(f"CREATE PUBLICATION {NAME} FOR TABLE others")
    assert seen(tables) is None
