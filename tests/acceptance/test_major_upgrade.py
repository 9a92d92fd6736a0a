"""A source's server is upgraded by pg_upgrade: another cluster answers, with the same tables, and maybe the slot.

From PostgreSQL 17 on pg_upgrade takes slots along (manual, pg_upgrade, "Prepare for publisher upgrades"), and changes
the system identifier all the same. It takes two servers and four starts, so it is slow.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Iterator

import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from tests.support.lake import group
from tests.support.oracle import Rows, source_rows
from tests.support.postgres import Database, Server
from tests.support.process import Process
from tests.support.standby import new_folder, removed_after
from tests.support.upgrade import TAKES_SLOTS, upgrade

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

TABLES = {"items": None, "loose": None, "past": {"type": "history"}, "entries": {"type": "append"}}
FOREVER = 9999


@pytest.fixture(params=[16, 18])
def old(request: pytest.FixtureRequest) -> Iterator[EmbeddedPostgres]:
    """A server that will be upgraded: without slots that are taken along, and with them."""
    server = Server(new_folder(), version=request.param, settings={"fsync": "off"})
    server.start()
    with removed_after(server):
        yield server


def fill(shop: Database) -> None:
    """Tables with a column that was dropped, so that numbers of columns are no positions."""
    shop.execute("CREATE TABLE items (id int PRIMARY KEY, gone int, kind text DEFAULT 'a', n int)")
    shop.execute("INSERT INTO items (id, n) SELECT i, 0 FROM generate_series(1, 1000) i")
    shop.execute("ALTER TABLE items DROP COLUMN gone; ALTER TABLE items ADD added date DEFAULT '2026-01-02'")
    for name in ("past", "entries"):
        shop.execute(f"CREATE TABLE {name} (LIKE items INCLUDING ALL); INSERT INTO {name} SELECT * FROM items")
    shop.execute("CREATE TABLE loose (n int, t text); ALTER TABLE loose REPLICA IDENTITY FULL")
    shop.execute("INSERT INTO loose SELECT i % 10, 'x' FROM generate_series(1, 100) i")


def change(shop: Database, n: int) -> None:
    shop.execute(f"UPDATE items SET n = {n} WHERE id < 10 * {n}; DELETE FROM items WHERE id = 100 + {n}")
    shop.execute(f"UPDATE past SET n = {n} WHERE id < 10 * {n}; DELETE FROM past WHERE id = 100 + {n}")
    shop.execute(f"UPDATE loose SET t = 'y{n}' WHERE n = {n}")
    shop.execute(f"INSERT INTO entries (id, n) VALUES (2000 + {n}, {n})")


def wait_equal(process: Process, shop: Database) -> None:
    """Wait until the lake has the source's rows: of a history, as versions that did not end."""

    def is_equal(name: str) -> bool:
        expected = source_rows(shop.url, name, sid="eu")
        seen = process.rows_seen(name)
        if name != "past":
            return seen.select(expected.columns).rows == expected.rows
        end = seen.columns.index("kvsz_end")
        is_open = collections.Counter({row: count for row, count in seen.rows.items() if row[end].year == FOREVER})
        return Rows(columns=seen.columns, rows=is_open).select(expected.columns).rows == expected.rows

    for name in ("items", "loose", "past"):
        process.wait_until(lambda name=name: is_equal(name), f"{name} is equal")


def test_what_pg_upgrade_makes_is_compared_with_the_lake(old: EmbeddedPostgres) -> None:
    shop = Database(old, "postgres")
    fill(shop)
    (database,) = group({"eu": shop}, TABLES)
    process = Process([database])
    process.start()
    process.wait_event("copied", len(TABLES))
    change(shop, 1)
    process.wait_confirmed(shop)
    process.terminate()
    has_slots = old.version >= TAKES_SLOTS
    old.stop()
    new = Server(new_folder(), version=18, port=old.port)
    with removed_after(new):
        upgrade(old, new)
        shop = Database(new, "postgres")
        assert bool(shop.execute("SELECT slot_name FROM pg_replication_slots")) == has_slots
        change(shop, 2)
        process.start()
        assert process.wait() == 5, process.report()
        assert "answers, but table shop" in process.found("source_stopped")[0]["error"]
        assert process.found("upgrade_unproved")
        process.write_map([database | {"on_slot_lost": "repair"}])
        process.start()
        wait_equal(process, shop)
        assert {event["table"] for event in process.found("repaired")} == {"shop.items", "shop.loose", "shop.past"}
        assert "its changes after" in process.wait_event("table_failed", table="shop.entries")["error"]
        change(shop, 3)
        wait_equal(process, shop)
        process.terminate()
    process.remove()


@pytest.fixture
def kept() -> Iterator[EmbeddedPostgres]:
    """A server whose slots are taken along, and that does nothing by itself."""
    server = Server(new_folder(), version=18, settings={"fsync": "off", "autovacuum": "off"})
    server.start()
    with removed_after(server):
        yield server


def test_what_pg_upgrade_makes_of_a_server_at_rest_goes_on(kept: EmbeddedPostgres) -> None:
    """Nothing is copied or compared, also where a kill came in between; what is written afterwards comes once."""
    shop = Database(kept, "postgres")
    process = that_has_copied(shop)
    change(shop, 1)
    process.wait_confirmed(shop)
    wait_at_rest(process, shop)
    process.terminate()
    kept.stop()
    new = Server(new_folder(), version=18, port=kept.port)
    with removed_after(new):
        upgrade(kept, new)
        shop = Database(new, "postgres")
        with shop.connect():  # it may have written something
            process.start()
            assert process.wait() == 5, process.report()
            assert "others are connected" in process.found("upgrade_unproved")[0]["reason"]
        process.start(failpoints="source_relocated:kill:2")  # as the hint says
        process.wait_killed()
        process.start()
        assert process.wait_event("upgraded")["tables"] == len(TABLES)
        change(shop, 2)
        wait_whole(process, shop)
        process.terminate()
        told = [*process.found("copied"), *process.found("repaired"), *process.found("gap_found")]
        assert told == []
        change(shop, 3)
        process.start()
        change(shop, 4)
        wait_whole(process, shop)
        process.terminate()
    process.remove()


def test_what_was_written_since_pg_upgrade_is_no_rest(kept: EmbeddedPostgres) -> None:
    """Where rows were written before kuvasz looked nobody knows whether the slot was there before them."""
    shop = Database(kept, "postgres")
    process = that_has_copied(shop)
    wait_at_rest(process, shop)
    process.terminate()
    kept.stop()
    new = Server(new_folder(), version=18, port=kept.port)
    with removed_after(new):
        upgrade(kept, new)
        shop = Database(new, "postgres")
        shop.execute("DELETE FROM past WHERE id = 7")
        process.start()
        assert process.wait() == 5, process.report()
        assert "1 of its tables were written since" in process.found("upgrade_unproved")[0]["reason"]
    process.remove()


def that_has_copied(shop: Database) -> Process:
    """Fill a database, and return a running kuvasz that has its rows."""
    fill(shop)
    process = Process(group({"eu": shop}, TABLES))
    process.start()
    process.wait_event("copied", len(TABLES))
    return process


def wait_at_rest(process: Process, shop: Database) -> None:
    """Wait until kuvasz has noted the server at rest, as it is now."""
    ((xid,),) = shop.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
    (record,) = (process.folder / "state" / "sources").glob("*.json")
    process.wait_until(lambda: json.loads(record.read_text()).get("rest_xid") == xid, "it is seen at rest")


def wait_whole(process: Process, shop: Database) -> None:
    """Wait until the lake has the source's rows, and those that it appended each once."""
    wait_equal(process, shop)
    expected = source_rows(shop.url, "entries", sid="eu")
    process.wait_until(
        lambda: process.rows_seen("entries").select(expected.columns).rows == expected.rows, "entries is equal"
    )
