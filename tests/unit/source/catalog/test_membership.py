from __future__ import annotations

import dataclasses

import pytest

from kuvasz.source.catalog import membership
from kuvasz.source.catalog.membership import Membership
from tests.support.postgres import Database

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


def test_a_partition_is_published_as_itself_while_nothing_above_it_is() -> None:
    partition = dataclasses.replace(member("5:700", "all"), links=frozenset({"in 8:9:703"}))
    assert partition.goes_on_from(partition)
    assert not partition.goes_on_from(member("5:700", "all")), "it was attached"
    assert not member("5:700", "all").goes_on_from(partition), "it was detached"
    below = dataclasses.replace(partition, above=frozenset({"above 5:9"}))
    for before, now in ((partition, below), (below, partition), (below, below)):
        assert not now.goes_on_from(before)


def test_a_row_that_came_after_the_copy_counts_on_its_timeline_and_once_the_position_has_passed_it() -> None:
    before, now = member("5:700", "table 6:701"), member("5:700", "table 6:701", "schema 7:702:")
    known = Membership.parse(now.beside(before, 1, 0x500).render())
    assert now.beside(known, 1, 0x600) == known
    by_schema = member("5:700", "schema 7:702:")
    for timeline, position_lsn, is_proved in ((1, 0x400, True), (2, 0x4FF, False), (2, 0x500, True)):
        found = known.proved(timeline, position_lsn)
        assert by_schema.goes_on_from(found) is is_proved
        assert now.goes_on_from(found)
    assert by_schema.beside(known, 1, 0x600).proved(2, 0x400) == member("5:700"), "still marked"


def test_what_is_rendered_is_parsed() -> None:
    of_all = Membership(
        publication="5:700",
        clauses=frozenset({"all"}),
        links=frozenset({"in 8:9:703"}),
        above=frozenset({"above 5:9"}),
    )
    for one in (of_all, member("5:700", "all"), member("5:700", "schema 7:702:9", "table 6:701")):
        assert Membership.parse(one.render()) == one


def test_a_row_filter_says_by_what_it_sends_rows() -> None:
    one = membership.marked('("n" = (5))', {7, 2})
    assert one.endswith(""" 2 7'::text IS NOT NULL AND ("n" = (5))""")
    mark = membership.mark_of(one)
    assert mark.startswith("kuvasz ")
    assert membership.columns_of(mark) == {2, 7}
    assert membership.mark_of("") == ""
    assert membership.columns_of("") == frozenset()
    for other in (membership.marked('("n" = (6))', {7, 2}), membership.marked('("n" = (5))', {8, 2})):
        assert membership.mark_of(other) != mark


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


@pytest.mark.postgres
def test_a_row_filter_publishes_nothing_for_sure(tables: Database) -> None:
    tables.execute(f"CREATE PUBLICATION {NAME} FOR TABLES IN SCHEMA public")
    by_schema = seen(tables)
    tables.execute(f"ALTER PUBLICATION {NAME} ADD TABLE items WHERE (id > 5)")
    assert seen(tables) == by_schema, "the filter is without effect beside the schema"
    tables.execute(f"ALTER PUBLICATION {NAME} DROP TABLES IN SCHEMA public")
    assert seen(tables) is None


@pytest.mark.postgres
@pytest.mark.parametrize(
    "clause", ["ALL TABLES", "TABLES IN SCHEMA elsewhere, TABLE public.items", "TABLE elsewhere.log, items"]
)
def test_what_a_partition_is_below_is_seen(tables: Database, clause: str) -> None:
    tables.execute("CREATE TABLE elsewhere.log (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    tables.execute("CREATE TABLE middle (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    tables.execute("ALTER TABLE middle ATTACH PARTITION items DEFAULT")
    tables.execute(f"CREATE PUBLICATION {NAME} FOR {clause} WITH (publish_via_partition_root = true)")
    before = seen(tables)
    tables.execute("ALTER TABLE elsewhere.log ATTACH PARTITION middle DEFAULT")
    now = seen(tables)
    assert before is not None
    assert now is not None
    assert (len(before.links), len(now.links)) == (1, 2)
    assert len(now.above) == (2 if clause == "ALL TABLES" else 1)
    tables.execute(f"ALTER PUBLICATION {NAME} SET (publish_via_partition_root = false)")
    as_itself = seen(tables)
    assert as_itself is not None
    assert not as_itself.above
