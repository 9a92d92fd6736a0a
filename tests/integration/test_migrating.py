"""What docs/migrating.md says of the slots that other tools leave at a source is so."""

from __future__ import annotations

import pytest

from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


def left(database: Database, name: str) -> None:
    """Make what kuvasz-streamer makes of a map's `db1` and `i1`: kuvasz_db1_i1 (its replicate_database.go)."""
    database.execute(f"CREATE PUBLICATION {name} FOR TABLE items")
    database.execute(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")


@pytest.fixture
def items(database: Database) -> Database:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, name text)")
    database.execute("INSERT INTO items VALUES (1, 'a'), (2, 'b')")
    return database


@pytest.mark.parametrize(
    ("name", "slots"),
    [("db1", {"kuvasz_db1_i1": True}), ("db1_lake", {"kuvasz_db1_i1": False, "kuvasz_db1_lake_i1": True})],
)
def test_a_slot_of_the_same_name_is_taken_over_and_another_left_alone(
    items: Database, lake_folder: LakeFolder, name: str, slots: dict[str, bool]
) -> None:
    left(items, "kuvasz_db1_i1")
    before = publication(items)
    items.execute("INSERT INTO items VALUES (3, 'c')")
    items.execute("DELETE FROM items WHERE id = 1")
    with Pipeline(lake_folder.config(group({"i1": items}, {"items": None}, name=name)), lake_folder) as pipeline:
        pipeline.wait_streaming()
        items.execute("INSERT INTO items VALUES (4, 'd')")
        pipeline.wait_applied(items)
        pipeline.assert_equal("items", source_rows(items.url, "items", sid="i1"))
        found = items.execute(
            "SELECT slot_name, active FROM pg_replication_slots WHERE database = current_database()"
        )
        assert dict(found) == slots
    assert (publication(items) == before) == (len(slots) > 1)


def publication(database: Database) -> list[tuple]:
    """Return what is published under kuvasz-streamer's name, and how."""
    return database.execute(
        "SELECT pubviaroot, pubtruncate, tablename FROM pg_publication JOIN pg_publication_tables USING (pubname)"
        " WHERE pubname = 'kuvasz_db1_i1'"
    )
