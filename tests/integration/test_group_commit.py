"""Tables of a group change at once: a bank whose money is the same at each moment, in two tables together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import pytest
from pyiceberg.catalog import load_catalog

from tests.support import bank
from tests.support.lake import LakeFolder, Pipeline
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.rest_catalog import JOINT, RestCatalogFolder
from tests.support.stores import PostgresCatalogFolder
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

#: Looks with other metadata than before, by each way to look.
LOOKS = 4

#: Merges all the time, beside the stream; what a slow query still reads is kept.
EAGER = {"interval": "300ms", "merge_interval": "300ms", "min_files": 3, "snapshot_age": "5m", "snapshots_kept": 5}


@dataclasses.dataclass
class Look:
    """The money that is seen in one way, looked at while transfers run."""

    name: str
    see: Callable[[], tuple[object, int]]

    def run(self) -> None:
        seen = set()
        while len(seen) < LOOKS:
            what, found = self.see()
            assert found == bank.MONEY, (self.name, what)
            seen.add(what)


def looks(lake: LakeFolder, pointers: Callable[[], Mapping[str, str]]) -> list[Look]:
    catalog = load_catalog(lake.catalog, **lake.pyiceberg)
    names = [f"shop.{table}" for table in bank.TABLES]

    def by_one_statement() -> tuple[object, int]:
        places = pointers()
        return tuple(places.items()), bank.money(bank.tables_at(places))

    def by_two_rounds() -> tuple[object, int]:
        tables = bank.load_together(catalog, names)
        return tuple(table.metadata_location for table in tables), bank.money(tables)

    def by_spark() -> tuple[object, int]:
        snapshots = [table.current_snapshot() for table in bank.load_together(catalog, names)]
        ids = [snapshot.snapshot_id for snapshot in snapshots if snapshot is not None]
        parts = [
            f"SELECT money FROM {lake.catalog}.{name} VERSION AS OF {number}"
            for name, number in zip(names, ids, strict=True)
        ]
        (row,) = lake.session.sql(f"SELECT sum(money) FROM ({' UNION ALL '.join(parts)})").collect()
        return tuple(ids), int(row[0])

    return [
        Look("one statement", by_one_statement), Look("two rounds", by_two_rounds), Look("spark", by_spark)
    ]  # fmt: skip


def watch(
    database: Database, lake: LakeFolder, pointers: Callable[[], Mapping[str, str]], **pipeline: object
) -> None:
    config = lake.config(bank.open_bank(database), EAGER, workers=3, **pipeline)
    with Pipeline(config, lake) as pipeline:
        pipeline.wait_streaming()
        with bank.Transfers(database):
            for look in looks(lake, pointers):
                look.run()
        pipeline.wait_applied(database)
        for table in bank.TABLES:
            pipeline.assert_equal(table, source_rows(database.url, table, sid="eu"))


def test_a_bank_has_the_same_money_at_each_moment(database: Database, lake_folder: LakeFolder) -> None:
    watch(database, lake_folder, lambda: bank.pointers(lake_folder.folder / "catalog.db"))


# Slow: SQLite and PostgreSQL are written to by the same statements, a REST catalog is not.
@pytest.mark.slow
def test_so_it_has_in_a_catalog_in_postgresql(database: Database, postgres_catalog: PostgresCatalogFolder) -> None:
    catalog = postgres_catalog.database
    watch(database, postgres_catalog, lambda: dict(catalog.execute(bank.POINTERS)))


def test_who_sleeps_within_a_commit_keeps_the_rows_of_the_catalog_for_seconds(
    database: Database, postgres_catalog: PostgresCatalogFolder
) -> None:
    """Whoever takes over from it waits for them, and nothing says when its server hears that it is gone."""
    catalog = postgres_catalog.database
    with Pipeline(postgres_catalog.config(bank.open_bank(database)), postgres_catalog) as pipeline:
        pipeline.wait_streaming()
        catalog.execute("CREATE TABLE patience (seen text)")
        catalog.execute(
            "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN"
            " INSERT INTO public.patience VALUES (current_setting('idle_in_transaction_session_timeout'));"
            " RETURN NULL; END $$"
        )
        catalog.execute("CREATE TRIGGER see AFTER UPDATE ON iceberg_tables FOR EACH ROW EXECUTE FUNCTION see()")
        with bank.Transfers(database):
            wait_until(lambda: len(catalog.execute("SELECT seen FROM patience")) >= LOOKS, "tables change")
        pipeline.wait_applied(database)
    assert catalog.execute("SELECT DISTINCT seen FROM patience") == [("10s",)]


def test_so_it_has_in_a_catalog_behind_rest(database: Database, rest_catalog: RestCatalogFolder) -> None:
    server = rest_catalog.server
    # So that two rounds of loads through a server fit in between.
    watch(database, rest_catalog, server.catalog.moment, commit_interval="1s")
    assert server.requests[JOINT] > LOOKS
