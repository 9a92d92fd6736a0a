"""The workload of the benchmarks: tables, rows and mixed changes, made inside the server, so that making is fast.

Usable on its own, to give any database something to replicate::

    python -m benchmarks.workload --url postgresql://… --rows 2000000 --changes 400000 --tables 1 --seed 1

A row has about 110 bytes as PostgreSQL prints it. Changes are 60 % updates, 25 % inserts, 15 % deletes with
uniform keys, in transactions of `--per-transaction` rows; each change goes to a table chosen at random.
"""

from __future__ import annotations

import argparse
import dataclasses
import threading
import time
from typing import TYPE_CHECKING

import psycopg

from kuvasz import lsn
from kuvasz.demo.fingerprint import Field, Form

if TYPE_CHECKING:
    from collections.abc import Callable

#: How the rows are compared.
FIELDS = (
    Field(name="id"),
    Field(name="account"),
    Field(name="label"),
    Field(name="amount"),
    Field(name="at", form=Form.INSTANT),
    Field(name="is_open"),
)

_CREATE = """
CREATE TABLE {table} (
    id bigint NOT NULL, account integer NOT NULL, label text NOT NULL, amount numeric(12,2) NOT NULL,
    at timestamptz NOT NULL, is_open boolean
)
"""

#: `label` is 40 characters long; every value follows from the number g and the seed.
_ROW = """
    {g}, ({g} * 7919 + {seed}) % 1000003, md5(({g} + {seed})::text) || lpad(({g} % 100000000)::text, 8, '0'),
    ({g} * 15485863 % 1000000000) / 100.0, timestamptz '2025-01-01 00:00:00+00' + {g} * interval '1.000007 s',
    CASE WHEN {g} % 11 <> 0 THEN {g} % 3 = 0 END
"""

_CHANGE = """
        {branch} chosen = {number} THEN
          LOOP
            key := 1 + floor(random() * tops[{index}])::bigint;
            IF kind < 0.60 THEN
              UPDATE {table} SET amount = amount + 0.01, account = (account + 1) % 1000003, at = clock_timestamp()
              WHERE id = key;
              EXIT WHEN FOUND;
            ELSIF kind < 0.85 THEN
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


def table_names(tables: int) -> list[str]:
    """Return the names of the workload's tables."""
    return [f"load_{number}" for number in range(tables)]


def create(url: str, *, rows: int, tables: int = 1, seed: int = 1) -> None:
    """Create the tables with `rows` rows in all, and their primary keys."""
    with psycopg.connect(url, autocommit=True) as connection:
        for table in table_names(tables):
            connection.execute(f"DROP TABLE IF EXISTS {table}")
            connection.execute(_CREATE.format(table=table))
            row = _ROW.format(g="g", seed=seed)
            share = rows // tables
            connection.execute(f"INSERT INTO {table} SELECT {row} FROM generate_series(1::bigint, {share}) AS g")
            connection.execute(f"ALTER TABLE {table} ADD PRIMARY KEY (id)")
            connection.execute(f"VACUUM ANALYZE {table}")
        connection.execute("CHECKPOINT")


def change(url: str, *, changes: int, tables: int = 1, per_transaction: int = 100, seed: int = 1) -> Mark:
    """Make mixed changes and return when all are flushed to the WAL; the mark is that of the last transaction."""
    names = table_names(tables)
    with psycopg.connect(url, autocommit=True) as connection:
        tops = [connection.execute(f"SELECT coalesce(max(id), 0) FROM {name}").fetchall()[0][0] for name in names]
        body = "\n".join(
            _CHANGE.format(
                branch="ELSIF" if number else "IF",
                number=number,
                index=number + 1,
                table=name,
                row=_ROW.format(g="key", seed=seed),
            )
            for number, name in enumerate(names)
        )
        connection.execute(
            _CHANGES.format(
                changes=changes,
                tops=", ".join(map(str, tops)),
                seed=(seed % 1000) / 1000,
                per_transaction=per_transaction,
                tables=tables,
                body=body,
            )
        )
    return _last_mark(url, names[0])


def _last_mark(url: str, table: str) -> Mark:
    """Make one more, synchronous transaction on a table: with it everything before it is on disk."""
    with psycopg.connect(url) as connection:
        connection.execute("SET LOCAL synchronous_commit = on")
        connection.execute(
            f"UPDATE {table} SET at = clock_timestamp() WHERE id IN (SELECT id FROM {table} ORDER BY id LIMIT 1)"
        )
        [(place,)] = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()
        connection.commit()
        return Mark(lsn=lsn.parse(place), at=time.time())


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
            marks.append(Mark(lsn=lsn.parse(place), at=time.time()))
    return marks


def main() -> None:
    """Create the tables, then make the changes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument(
        "--rows", type=int, default=2_000_000, help="in all tables together; 0: they are there already"
    )
    parser.add_argument("--changes", type=int, default=400_000)
    parser.add_argument("--per-transaction", type=int, default=100)
    parser.add_argument("--tables", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    if chosen.rows:
        began = time.monotonic()
        create(chosen.url, rows=chosen.rows, tables=chosen.tables, seed=chosen.seed)
        print(f"{chosen.rows} rows in {time.monotonic() - began:.1f} s")
    if chosen.changes:
        began = time.monotonic()
        mark = change(
            chosen.url,
            changes=chosen.changes,
            tables=chosen.tables,
            per_transaction=chosen.per_transaction,
            seed=chosen.seed,
        )
        print(f"{chosen.changes} changes in {time.monotonic() - began:.1f} s, up to {lsn.render(mark.lsn)}")


if __name__ == "__main__":
    main()
