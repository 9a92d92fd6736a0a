from __future__ import annotations

import time

import psycopg
import pytest

from kuvasz.demo import servers, shop
from kuvasz.demo.load import Counts, Load

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with servers.sources(tmp_path_factory.mktemp("demo") / "data") as found:
        yield found


def test_every_source_is_seeded_with_rows_of_its_own(running):
    found = {sid: shop.fingerprints(server.url(shop.DATABASE)) for sid, server in running.items()}

    assert {table.name: table.rows for table in shop.TABLES} == {
        name: fingerprint.rows for name, fingerprint in found["eu"].items()
    }
    assert 90_000 < sum(one.rows for contents in found.values() for one in contents.values()) < 110_000
    assert found["eu"]["customers"].total != found["us"]["customers"].total


def test_the_role_of_kuvasz_may_publish_and_replicate_and_is_no_superuser(running):
    urls = servers.urls(running)
    assert sorted(urls) == ["AP_URL", "EU_URL", "US_URL"]
    with psycopg.connect(urls["EU_URL"], autocommit=True) as connection:
        connection.execute("CREATE PUBLICATION probe FOR TABLE customers, orders, products")
        connection.execute("SELECT pg_create_logical_replication_slot('probe', 'pgoutput')")
        [(is_superuser,)] = connection.execute(
            "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
        ).fetchall()
        connection.execute("SELECT pg_drop_replication_slot('probe')")
        connection.execute("DROP PUBLICATION probe")
    assert not is_superuser


def test_the_load_counts_what_it_committed(running):
    server = running["us"]
    load = Load(server.url(shop.DATABASE), "us", changes_per_second=100_000)
    before = shop.fingerprints(server.url(shop.DATABASE))

    load.start()
    while load.counts.key_changes < 5 and load.error is None:
        time.sleep(0.05)
    counts = load.stop()

    after = shop.fingerprints(server.url(shop.DATABASE))
    grown = sum(after[name].rows - before[name].rows for name in after)
    assert grown == counts.inserts - counts.deletes
    assert min(counts.inserts, counts.updates, counts.deletes) > 0
    assert counts.changes == counts.inserts + counts.updates + counts.deletes + counts.key_changes


def test_one_seed_makes_one_sequence_of_changes(running):
    contents = []
    for _ in range(2):
        load = Load("", "ap", seed=7)
        with psycopg.connect(running["ap"].url(shop.DATABASE)) as connection:
            # One transaction that is never committed: both turns start from the same rows.
            connection.commit = lambda: None
            connection.rollback = lambda: None
            for _ in range(20):
                load.transaction(connection)
            contents.append(load.counts)
            psycopg.Connection.rollback(connection)
    assert contents[0] == contents[1] != Counts()


def test_an_error_of_the_load_is_raised_where_it_is_stopped(running):
    load = Load(running["eu"].url("no_such_database"), "eu")
    load.start()
    with pytest.raises(psycopg.OperationalError, match="no_such_database"):
        load.stop()


def test_a_server_left_by_a_killed_demo_is_stopped_and_its_data_removed(tmp_path):
    from kuvasz.demo.postgres import EmbeddedPostgres

    left = EmbeddedPostgres(tmp_path / "data" / "eu")
    left.start()

    servers.discard(EmbeddedPostgres(tmp_path / "data" / "eu"))

    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(left.url())
    assert not left.folder.exists()
