"""Live load on one source of the demo: small transactions of inserts, updates, deletes, rarely a key change.

The choices follow from a seed; how many are made in a given time does not.
"""

from __future__ import annotations

import dataclasses
import random
import threading
import time
from typing import TYPE_CHECKING

import psycopg

from kuvasz.demo import shop

if TYPE_CHECKING:
    from collections.abc import Callable

_COUNTRIES = ("AT", "BR", "DE", "FR", "JP", "KE", "SK", "US")
_STATUSES = ("new", "packed", "sent", "returned")


@dataclasses.dataclass(slots=True)
class Counts:
    """Rows changed so far, in committed transactions."""

    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    key_changes: int = 0
    transactions: int = 0

    @property
    def changes(self) -> int:
        """All rows changed."""
        return self.inserts + self.updates + self.deletes + self.key_changes


class Load:
    """One source's load, in a thread of its own between `start` and `stop`.

    Args:
        url: The shop database at the source.
        sid: Its name; part of the seed.
        changes_per_second: What is aimed at; a slow server gets less.
        seed: Decides which rows are changed and how.
    """

    def __init__(self, url: str, sid: str, *, changes_per_second: float = 100.0, seed: int = 1) -> None:
        self.counts = Counts()
        self.error: Exception | None = None
        self._url = url
        self._random = random.Random(f"{seed}/{sid}")  # noqa: S311 (not for secrets)
        self._changes_per_second = changes_per_second
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"load-{sid}", daemon=True)
        rows = {table.name: table.rows for table in shop.TABLES}
        self._customers, self._products, self._orders = rows["customers"], rows["products"], rows["orders"]

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> Counts:
        """End after the transaction in hand, and return what was done; a second call is harmless.

        Raises:
            Exception: The one that ended the load before its time.
        """
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self.error is not None:
            raise self.error
        return self.counts

    def _run(self) -> None:
        try:
            with psycopg.connect(self._url, application_name="kuvasz demo load") as connection:
                self._work(connection)
        except Exception as error:  # noqa: BLE001 (raised again by stop)
            self.error = error

    def _work(self, connection: psycopg.Connection) -> None:
        began = time.monotonic()
        while not self._stopping.is_set():
            self.transaction(connection)
            ahead = self.counts.changes / self._changes_per_second - (time.monotonic() - began)
            if ahead > 0:
                self._stopping.wait(ahead)

    def transaction(self, connection: psycopg.Connection) -> None:
        """Make and commit one transaction of 1 to 10 changes; now and then one is rolled back."""
        made = Counts(transactions=1)
        for _ in range(self._random.randint(1, 10)):
            change, counter = self._pick()
            changed = change(connection)
            setattr(made, counter, getattr(made, counter) + changed)
        if self._random.random() < 0.02:
            connection.rollback()
            return
        connection.commit()
        for field in dataclasses.fields(Counts):
            setattr(self.counts, field.name, getattr(self.counts, field.name) + getattr(made, field.name))

    def _pick(self) -> tuple[Callable[[psycopg.Connection], int], str]:
        kinds: list[tuple[float, Callable[[psycopg.Connection], int], str]] = [
            (0.27, self._place_order, "inserts"),
            (0.30, self._move_order, "updates"),
            (0.15, self._change_customer, "updates"),
            (0.13, self._sell_product, "updates"),
            (0.10, self._delete_order, "deletes"),
            (0.03, self._add_customer, "inserts"),
            (0.02, self._renumber_product, "key_changes"),
        ]
        [(_, change, counter)] = self._random.choices(kinds, weights=[kind[0] for kind in kinds])
        return change, counter

    def _product(self) -> tuple[int, str]:
        number = self._random.randint(1, self._products)
        return 1 + number % 40, f"SKU-{number:06d}"

    def _place_order(self, connection: psycopg.Connection) -> int:
        supplier, sku = self._product()
        note = None if self._random.random() < 0.7 else f"gift for {self._random.randint(1, 99)} “friends”"
        cursor = connection.execute(
            "INSERT INTO orders (customer_id, supplier, sku, quantity, total, status, note, is_paid)"
            " VALUES (%s, %s, %s, %s, %s, 'new', %s, false) RETURNING id",
            (self._random.randint(1, self._customers), supplier, sku, self._random.randint(1, 9),
             self._random.randint(100, 9_999_999) / 100, note),
        )  # fmt: skip
        [(self._orders,)] = cursor.fetchall()
        return 1

    def _move_order(self, connection: psycopg.Connection) -> int:
        status, is_paid = self._random.choice(_STATUSES), self._random.random() < 0.5
        order = self._random.randint(1, self._orders)
        return connection.execute(
            "UPDATE orders SET status = %s, is_paid = %s WHERE id = %s", (status, is_paid, order)
        ).rowcount

    def _delete_order(self, connection: psycopg.Connection) -> int:
        return connection.execute(
            "DELETE FROM orders WHERE id = %s", (self._random.randint(1, self._orders),)
        ).rowcount

    def _add_customer(self, connection: psycopg.Connection) -> int:
        number = self._random.randint(1, 1_000_000)
        connection.execute(
            "INSERT INTO customers (name, email, country, credit_limit, profile)"
            " VALUES (%s, %s, %s, %s, jsonb_build_object('tier', %s::int))",
            (f"New customer {number}", None, self._random.choice(_COUNTRIES), number / 100, number % 4),
        )
        self._customers += 1
        return 1

    def _change_customer(self, connection: psycopg.Connection) -> int:
        return connection.execute(
            "UPDATE customers SET credit_limit = %s, is_active = %s, profile = profile || %s::jsonb WHERE id = %s",
            (self._random.randint(0, 999_999) / 100, self._random.random() < 0.9,
             f'{{"seen": {self._random.randint(1, 1000)}}}', self._random.randint(1, self._customers)),
        ).rowcount  # fmt: skip

    def _sell_product(self, connection: psycopg.Connection) -> int:
        return connection.execute(
            "UPDATE products SET stock = stock - 1, price = price + 0.01, updated_at = clock_timestamp()"
            " WHERE supplier = %s AND sku = %s",
            self._product(),
        ).rowcount

    def _renumber_product(self, connection: psycopg.Connection) -> int:
        # Away and, at a later turn, back again: both ways are changes of the key.
        supplier, sku = self._product()
        return connection.execute(
            "UPDATE products SET sku = CASE WHEN sku = %(sku)s THEN %(sku)s || 'B' ELSE %(sku)s END"
            " WHERE supplier = %(supplier)s AND sku IN (%(sku)s, %(sku)s || 'B')",
            {"supplier": supplier, "sku": sku},
        ).rowcount
