"""The workload of the benchmarks: tables, rows and changes, made inside the server, so that making is fast.

Usable on its own, to give any database, and any other program, the same to replicate::

    python -m benchmarks.workload --url postgresql://… --rows 2000000 --changes 400000 --tables 1 --seed 1

By default a row has 110 bytes as PostgreSQL prints it, and the changes are 60 % updates, 25 % inserts and 15 %
deletes with uniform keys, in transactions of `--per-transaction` rows; each change goes to a table chosen at random.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg

from benchmarks.shapes import NARROW, SHAPES, Shape
from kuvasz import lsn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kuvasz.demo.fingerprint import RowField

#: A change of kind `kind` in the table with this number. A key that is gone is drawn again.
_CHANGE = """
        {branch} chosen = {number} THEN
          LOOP
            key := 1 + floor(random() * tops[{index}] * CASE WHEN random() < {hot} THEN 0.2 ELSE 1 END)::bigint;
            IF kind < {updates} THEN
              UPDATE {table} SET {update} WHERE id = key;
              EXIT WHEN FOUND;
            ELSIF kind < {updates} + {inserts} THEN
              tops[{index}] := tops[{index}] + 1;
              key := tops[{index}];
              INSERT INTO {table} VALUES ({row});
              EXIT;
            ELSE
              DELETE FROM {table} WHERE id = key;
              EXIT WHEN FOUND;
            END IF;
          END LOOP;"""

_CHANGES = """
DO $workload$
DECLARE
  kind float8; chosen int; key bigint; left_over bigint := {changes}; tops bigint[] := ARRAY[{tops}];
BEGIN
  PERFORM setseed({seed});
  WHILE left_over > 0 LOOP
    FOR step IN 1 .. least({per_transaction}, left_over) LOOP
      kind := random();
      chosen := floor(random() * {tables})::int;
      {body}
      END IF;
    END LOOP;
    left_over := left_over - {per_transaction};
    COMMIT;
  END LOOP;
END
$workload$
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A place in the WAL before a commit record: a target whose position is *above* it has that transaction."""

    lsn: int
    at: float  #: epoch seconds at which the commit had returned
    rows: int = 0  #: row changes up to it, its own included


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """How changes are drawn."""

    updates: float = 0.60
    inserts: float = 0.25  #: what is left are deletes
    hot: float = 0.0  #: share of the changes that goes to the first fifth of the keys; the rest is uniform
    per_transaction: int = 100


MIXED = Mix()
INSERTS = Mix(updates=0.0, inserts=1.0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Tables with rows, and changes of them; the same for the same values."""

    rows: int = 2_000_000  #: in all tables together
    changes: int = 400_000
    tables: int = 1
    seed: int = 1
    mix: Mix = MIXED
    shape: Shape = NARROW

    @property
    def fields(self) -> Mapping[str, tuple[RowField, ...]]:
        """The tables with what is compared of each."""
        return dict.fromkeys(table_names(self.tables), self.shape.fields)

    def create(self, url: str) -> None:
        """Create the tables with their rows and primary keys."""
        with psycopg.connect(url, autocommit=True) as connection:
            for table in self.fields:
                connection.execute(f"DROP TABLE IF EXISTS {table}")
                connection.execute(self.shape.create(table))
                connection.execute(self.fill(table, 1, self.rows // self.tables))
                connection.execute(f"ALTER TABLE {table} ADD PRIMARY KEY (id)")
                connection.execute(f"VACUUM ANALYZE {table}")
            connection.execute("CHECKPOINT")

    def fill(self, table: str, first: int, last: int) -> str:
        """Return the INSERT of the rows `first` to `last`."""
        row = self.shape.values("g", self.seed)
        return f"INSERT INTO {table} SELECT {row} FROM generate_series({first}::bigint, {last}) AS g"

    def change(self, url: str) -> Mark:
        """Make the changes and return when all are flushed to the WAL; the mark is that of the last transaction."""
        with psycopg.connect(url, autocommit=True) as connection:
            tops = [
                int(connection.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchall()[0][0])
                for table in self.fields
            ]
            connection.execute(self._changes(tops))
        return last_mark(url, dict.fromkeys(self.fields, "id"), self.changes)

    def _changes(self, tops: list[int]) -> str:
        body = "\n".join(
            _CHANGE.format(
                branch="ELSIF" if number else "IF",
                number=number,
                index=number + 1,
                table=table,
                row=self.shape.values("key", self.seed),
                update=self.shape.update,
                **{name: getattr(self.mix, name) for name in ("hot", "updates", "inserts")},
            )
            for number, table in enumerate(self.fields)
        )
        return _CHANGES.format(
            changes=self.changes,
            tops=", ".join(map(str, tops)),
            seed=(self.seed % 1000) / 1000,
            per_transaction=self.mix.per_transaction,
            tables=self.tables,
            body=body,
        )


def table_names(tables: int) -> list[str]:
    """Return the names of the workload's tables."""
    return [f"load_{number}" for number in range(tables)]


def last_mark(url: str, tables: Mapping[str, str], changes: int) -> Mark:
    """Make one more, synchronous transaction that changes a row of every table: then all before it is on disk.

    Args:
        url: The database.
        tables: Each with its key; none of them empty.
        changes: Row changes made before.
    """
    with psycopg.connect(url) as connection:
        connection.execute("SET LOCAL synchronous_commit = on")
        for table, key in tables.items():
            one = f"(SELECT {key} FROM {table} ORDER BY {key} LIMIT 1)"
            connection.execute(f"UPDATE {table} SET {key} = {key} WHERE {key} IN {one}")
        [(place,)] = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()
        connection.commit()
        return Mark(lsn=lsn.parse(place), at=time.time(), rows=changes + len(tables))


def steady(
    url: str,
    *,
    changes_per_second: float,
    seconds: float,
    per_transaction: int = 10,
    keys: int,
    stop: threading.Event | None = None,
    table: str = "load_0",
    clock: Callable[[], float] = time.monotonic,
) -> list[Mark]:
    """Make updates at an even rate and return a mark per transaction.

    Args:
        url: The database.
        changes_per_second: Rows changed in a second, over all.
        seconds: How long.
        per_transaction: Rows of one transaction.
        keys: Ids 1 to `keys` are changed in turn, far apart.
        stop: Ends the load early.
        table: Where.
        clock: Seconds, monotonic.
    """
    marks: list[Mark] = []
    ended = stop or threading.Event()
    total = round(seconds * changes_per_second / per_transaction)
    statement = f"UPDATE {table} SET amount = amount + 0.01, at = clock_timestamp() WHERE id = ANY (%s)"
    with psycopg.connect(url) as connection:
        # A walsender sends what is flushed: asynchronous commits would add the WAL writer's naps to every lag.
        connection.execute("SET synchronous_commit = on")
        connection.commit()
        began = clock()
        for number in range(total):
            ahead = number * per_transaction / changes_per_second - (clock() - began)
            if ahead > 0 and ended.wait(ahead):
                break
            first = number * per_transaction
            # 7919 is prime: consecutive changes fall onto rows, pages and files that lie apart.
            connection.execute(statement, ([1 + (first + step) * 7919 % keys for step in range(per_transaction)],))
            [(place,)] = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()
            connection.commit()
            marks.append(Mark(lsn=lsn.parse(place), at=time.time(), rows=per_transaction))
    return marks


def in_turn(
    urls: Sequence[str],
    *,
    tables: Sequence[str],
    changes_per_second: float,
    seconds: float,
    keys: int,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, list[Mark]]:
    """Make updates at an even rate in one database after the other and return the marks of each.

    Args:
        urls: The databases.
        tables: Each transaction changes a row of every one.
        changes_per_second: Rows changed in a second, over all.
        seconds: How long.
        keys: Ids 1 to `keys` are changed in turn.
        clock: Seconds, monotonic.
    """
    marks: dict[str, list[Mark]] = {url: [] for url in urls}
    total = max(len(urls), round(seconds * changes_per_second / len(tables)))
    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(psycopg.connect(url)) for url in urls]
        began = clock()
        for number in range(total):
            ahead = number * len(tables) / changes_per_second - (clock() - began)
            if ahead > 0:
                time.sleep(ahead)
            place = number % len(urls)
            key = 1 + number // len(urls) * 7919 % keys
            marks[urls[place]].append(_changed(sessions[place], tables, key))
    return marks


def _changed(connection: psycopg.Connection[Any], tables: Sequence[str], key: int) -> Mark:
    for table in tables:
        connection.execute(f"UPDATE {table} SET amount = amount + 0.01, at = clock_timestamp() WHERE id = %s", [key])
    [(place,)] = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()
    connection.commit()
    return Mark(lsn=lsn.parse(place), at=time.time(), rows=len(tables))


def main() -> None:
    """Create the tables, then make the changes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument(
        "--rows", type=int, default=2_000_000, help="in all tables together; 0: they are there already"
    )
    parser.add_argument("--changes", type=int, default=400_000)
    parser.add_argument("--per-transaction", type=int, default=MIXED.per_transaction)
    parser.add_argument("--updates", type=float, default=MIXED.updates, help="share of the changes")
    parser.add_argument("--inserts", type=float, default=MIXED.inserts, help="share; the rest are deletes")
    parser.add_argument("--hot", type=float, default=0.0, help="share of the changes to the first fifth of the keys")
    parser.add_argument("--tables", type=int, default=1)
    parser.add_argument("--shape", choices=sorted(SHAPES), default=NARROW.name)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    mix = Mix(updates=chosen.updates, inserts=chosen.inserts, hot=chosen.hot, per_transaction=chosen.per_transaction)
    workload = Workload(
        rows=chosen.rows,
        changes=chosen.changes,
        tables=chosen.tables,
        seed=chosen.seed,
        mix=mix,
        shape=SHAPES[chosen.shape],
    )
    if chosen.rows:
        began = time.monotonic()
        workload.create(chosen.url)
        print(f"{chosen.rows} rows in {time.monotonic() - began:.1f} s")
    if chosen.changes:
        began = time.monotonic()
        mark = workload.change(chosen.url)
        print(f"{mark.rows} changes in {time.monotonic() - began:.1f} s, up to {lsn.render(mark.lsn)}")


if __name__ == "__main__":
    main()
