"""Each thing that is to be backed up is lost: what comes back by itself, and by what else, as docs/howto.md says."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
from pyiceberg.catalog import load_catalog

from tests.support.backup import backed_up, put_back
from tests.support.catalogs import in_a_file
from tests.support.lake import group
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.process import Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


class Shop:
    """A source, and a kuvasz that is stopped."""

    def __init__(self, database: Database, process: Process) -> None:
        self.database, self.process = database, process
        self.catalog, self.warehouse, self.state = (process.folder / name for name in ("catalog.db", "wh", "state"))
        for name in ("items", "others"):
            database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)")
            database.execute(f"INSERT INTO {name} SELECT i, 0 FROM generate_series(1, 100) i")
        self.go_on(2)

    def change(self) -> None:
        for name in ("items", "others"):
            self.database.execute(f"UPDATE {name} SET n = n + 1 WHERE id % 2 = 0")
            self.database.execute(f"DELETE FROM {name} WHERE id = (SELECT min(id) FROM {name})")

    def go_on(self, copies: int) -> None:
        """It runs for a while, copies so many tables, and has all that the source has."""
        self.change()
        self.process.start()
        self.process.wait_event("reader.streaming")
        if copies:
            self.process.wait_event("copied", copies)
        self.change()
        self.process.wait_confirmed(self.database)
        self.process.terminate()
        assert len(self.process.found("copied")) == copies
        for name in ("items", "others"):
            self.process.assert_equal(name, source_rows(self.database.url, name))


@in_a_file
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_whatever_is_lost_comes_back(database: Database, new_process: Callable[..., Process]) -> None:
    databases = group({None: database}, {"items": None, "others": None})
    process = new_process(databases)
    shop = Shop(database, process)
    backup = process.folder / "backup"
    backed_up([shop.catalog, shop.state], backup)
    shutil.rmtree(shop.state)
    shop.go_on(0)
    # Catalog and state of before, as one goes back to an earlier version.
    put_back([shop.catalog, shop.state], backup)
    process.start()
    assert process.wait() == 5
    assert "`on_slot_lost: repair`" in process.found("source_stopped")[0]["error"]
    process.write_map([{**one, "on_slot_lost": "repair"} for one in databases])
    shop.go_on(0)
    assert len(process.found("repaired")) == 2
    process.write_map(databases)
    shop.catalog.unlink()
    shop.go_on(2)
    # Files of one table: it waits until the catalog does not name them any more, and the other one goes on.
    shutil.rmtree(shop.warehouse / "shop" / "items")
    process.start()
    assert "metadata.json does not exist" in process.wait_event("table_failed", table="shop.items")["error"]
    process.wait_event("reader.streaming")
    process.terminate()
    load_catalog("kuvasz", **process.pyiceberg).drop_table("shop.items")
    shop.go_on(1)
