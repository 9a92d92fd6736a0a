"""verify beside the lake of a pipeline, and sources that change all the time meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from kuvasz.config.model import Config
from kuvasz.sync.context import alignment
from kuvasz.verbs import verify
from kuvasz.verify.report import Report
from tests.support.lake import LakeFolder, group
from tests.support.postgres import Database

ITEMS = "CREATE TABLE items (id bigint PRIMARY KEY, n int, name text)"
FILL = "INSERT INTO items SELECT i, 0, 'item ' || i FROM generate_series(1, 3000) i"


@pytest.fixture
def soon_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a slot that nobody reads taken for that of a stopped kuvasz soon."""
    monkeypatch.setattr(alignment, "_STOPPED_S", 0.5)


class Bench:
    """A pipeline's lake, and verify beside it."""

    def __init__(self, config: Config, folder: LakeFolder) -> None:
        self.config = config
        self.folder = folder

    def verify(self, **options: Any) -> list[Report]:
        found = verify.reports(self.config, session=self.folder.session, **options)
        assert not [report.error for report in found if report.error]
        return found

    def sql(self, statement: str) -> None:
        self.folder.session.sql(statement.replace("LAKE", f"{self.folder.catalog}.shop"))

    def damage(self) -> None:
        """One key of each kind, of the rows with sid eu."""
        self.sql("DELETE FROM LAKE.items WHERE sid = 'eu' AND id = 11")
        self.sql("UPDATE LAKE.items SET name = 'other' WHERE sid = 'eu' AND id = 12")
        self.sql("INSERT INTO LAKE.items SELECT sid, 999999, n, name FROM LAKE.items WHERE sid = 'eu' AND id = 13")
        self.sql("INSERT INTO LAKE.items SELECT * FROM LAKE.items WHERE sid = 'eu' AND id = 14")
        self.sql("UPDATE LAKE.items SET n = NULL WHERE sid = 'eu' AND id = 15")


def filled(database: Database, folder: LakeFolder, **pipeline: Any) -> Bench:
    """Fill the source's table, and return what verifies it beside a lake that has nothing yet."""
    database.execute(ITEMS)
    database.execute(FILL)
    return Bench(folder.config(group({None: database}, {"items": None}), **pipeline), folder)


def under_load(
    database: Database, statements: Callable[[int], list[str]]
) -> tuple[threading.Event, threading.Thread]:
    stop = threading.Event()

    def run() -> None:
        number = 0
        with database.connect(autocommit=True) as connection:
            while not stop.wait(0.002):
                number += 1
                for statement in statements(number):
                    connection.execute(statement)

    thread = threading.Thread(target=run)
    thread.start()
    return stop, thread
