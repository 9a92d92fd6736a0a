"""A writer that never rests: small random transactions over two tables, with large values and changed keys."""

from __future__ import annotations

import contextlib
import random
import threading
import time

import psycopg

from tests.support.postgres import Database

TABLES = {"items": ("id", "n", "name"), "docs": ("id", "n", "body")}

#: The one that tests pick out.
TABLE = "items"

#: Seconds between two transactions: enough to keep every stage busy on a shared machine, without a growing backlog.
_PAUSE_S = 0.01


def create_tables(database: Database) -> None:
    """Create the two tables, empty."""
    database.execute("CREATE TABLE items (id bigint PRIMARY KEY, n int, name text)")
    database.execute("CREATE TABLE docs (id bigint PRIMARY KEY, n int, body text)")
    database.execute("ALTER TABLE docs ALTER body SET STORAGE EXTERNAL")


def fill_tables(database: Database, rows: int = 3000) -> None:
    """Give the tables the rows that a copy finds."""
    database.execute(f"INSERT INTO items SELECT i, 0, 'item ' || i FROM generate_series(1, {rows}) i")
    database.execute(f"INSERT INTO docs SELECT i, 0, repeat('x', 3000) || i FROM generate_series(1, {rows // 20}) i")


class Load:
    """Use as a context manager; the body runs while the load does."""

    def __init__(self, database: Database, seed: int, pause_s: float = _PAUSE_S) -> None:
        self._database = database
        self._pause_s = pause_s
        self._random = random.Random(seed)  # noqa: S311
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.transactions = 0
        self.error: Exception | None = None

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop; may be called again."""
        self._stop.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            with self._database.connect() as session:
                while not self._stop.is_set():
                    # Another statement of the test may lock rows in another order: one of the two has to begin again.
                    with contextlib.suppress(psycopg.errors.DeadlockDetected), session.transaction():
                        for _ in range(self._random.randint(1, 8)):
                            self._step(session)
                    self.transactions += 1
                    time.sleep(self._pause_s)
        except Exception as error:  # noqa: BLE001 - handed to the test's thread
            self.error = error

    def _step(self, session: psycopg.Connection) -> None:
        n = self._random.randint(1, 3500)
        statement = self._random.choice(
            (
                "UPDATE items SET n = n + 1 WHERE id = %(n)s",
                "UPDATE items SET n = n + 1, name = NULL WHERE id %% 500 = %(n)s %% 500",
                "DELETE FROM items WHERE id = %(n)s",
                "INSERT INTO items VALUES (%(n)s, 0, 'again') ON CONFLICT (id) DO UPDATE SET n = items.n + 10",
                "UPDATE items SET id = id + 10000 WHERE id = %(n)s"
                " AND NOT EXISTS (SELECT FROM items WHERE id = %(n)s + 10000)",
                "UPDATE items SET id = id - 10000 WHERE id = %(n)s + 10000"
                " AND NOT EXISTS (SELECT FROM items WHERE id = %(n)s)",
                "UPDATE docs SET n = n + 1 WHERE id = %(n)s %% 200",
                "UPDATE docs SET body = repeat('y', 2500) || %(n)s WHERE id = %(n)s %% 200",
                "UPDATE docs SET id = id + 10000 WHERE id = %(n)s %% 200"
                " AND NOT EXISTS (SELECT FROM docs WHERE id = %(n)s %% 200 + 10000)",
                "INSERT INTO docs VALUES (%(n)s %% 200, 0, repeat('z', 2500)) ON CONFLICT DO NOTHING",
                "DELETE FROM docs WHERE id = %(n)s %% 200 + 10000",
            )
        )
        session.execute(statement, {"n": n})
