"""Tables of every type of one shape, and differences of every kind planted in them in the lake."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.postgres import Database
from tests.support.verify_bench import Bench

ROWS = "SELECT i, i % 5, CASE WHEN i % 7 = 0 THEN '' ELSE 'item ' || i END FROM generate_series({}, {}) i"
KEYED = "(id bigint PRIMARY KEY, n int, name text)"
BARE = "(id bigint, n int, name text)"

#: Table -> how the map has it; all of them are of one shape at the source.
TABLES: Mapping[str, dict | None] = {
    "shaped": {"filter": "n <> 4", "set": {"id": "id", "n": "n * 10", "name": "upper(name)", "token": "name"},
               "mask": {"token": "hmac"}},
    "bare": None,
    "bare_shaped": {"filter": "n <> 4", "set": {"n": "n", "name": "upper(name)"}},
    "parts": {"partitions_regex": "parts_[0-9]+"},
    "past": {"type": "history"},
    "past_shaped": {"type": "history", "filter": "n <> 4", "set": {"id": "id", "n": "n + 1", "name": "lower(name)"}},
    "grown": {"type": "append"},
    "grown_sorted": {"type": "append", "sort_by": ["n"]},
    "grown_bare": {"type": "append"},
    "grown_inserts": {"type": "append"},
    "logged": {"type": "changelog"},
    "logged_bare": {"type": "changelog"},
}  # fmt: skip
INSERTS_ONLY = "grown_inserts"


def tables_at_source() -> list[str]:
    return [name for name in TABLES if name != "parts"] + ["parts_1", "parts_2"]


def make(database: Database) -> None:
    for name in tables_at_source():
        database.execute(f"CREATE TABLE {name} {BARE if 'bare' in name or name == INSERTS_ONLY else KEYED}")
        if "bare" in name:
            database.execute(f"ALTER TABLE {name} REPLICA IDENTITY FULL")
        database.execute(f"INSERT INTO {name} {ROWS.format(1, 60)}")
        if "bare" in name:
            database.execute(f"INSERT INTO {name} {ROWS.format(1, 10)}")


def churn(database: Database, start: int = 100) -> None:
    """Change all tables in all the ways they allow."""
    for name in tables_at_source():
        database.execute(f"INSERT INTO {name} {ROWS.format(start, start + 30)}")
        if name == INSERTS_ONLY:
            continue
        with database.connect() as session:
            session.execute(f"UPDATE {name} SET n = n + 1 WHERE id % 3 = 0")
            session.execute(f"DELETE FROM {name} WHERE id IN ({start + 1}, 2)")
            session.execute(f"UPDATE {name} SET id = -id WHERE id = {start + 2}")
            session.execute(f"INSERT INTO {name} VALUES ({start + 1}, 3, NULL)")
        database.execute(f"UPDATE {name} SET name = NULL WHERE id = {start + 3}")


#: Keys that are left after `--fix`.
LEFT = {
    "shaped": 0, "bare": 0, "bare_shaped": 0, "parts_1": 0, "parts_2": 0, "past": 3, "past_shaped": 0,
    "grown": 3, "grown_sorted": 2, "grown_bare": 2, "grown_inserts": 11, "logged": 6, "logged_bare": 1,
}  # fmt: skip

PLANTED = {
    "shaped": {"missing": 1, "changed": 3, "extra": 1, "doubled": 1},
    "bare": {"missing": 2, "extra": 2, "doubled": 1},
    "bare_shaped": {"missing": 1},
    "parts_1": {"missing": 1},
    "parts_2": {"missing": 1},
    "past": {"missing": 1, "changed": 2, "extra": 1, "doubled": 1, "faults": 2},
    "past_shaped": {"missing": 1},
    "grown": {"missing": 1, "changed": 2},
    "grown_sorted": {"missing": 1, "changed": 1},
    "grown_bare": {"missing": 2},
    "grown_inserts": {"missing": 11},
    "logged": {"missing": 2, "changed": 1, "extra": 2, "doubled": 1},
    "logged_bare": {"extra": 1},
}


def plant(bench: Bench) -> None:
    """Plant differences of every kind with Spark; key 14, which has an empty name, is left for NULL."""
    at = "sid = 'eu' AND id"
    bench.sql(f"DELETE FROM LAKE.shaped WHERE {at} = 11")
    bench.sql(f"UPDATE LAKE.shaped SET name = 'other' WHERE {at} = 12")
    bench.sql(f"UPDATE LAKE.shaped SET token = 'another' WHERE {at} = 13")
    bench.sql(f"UPDATE LAKE.shaped SET name = NULL WHERE {at} = 21")
    bench.sql(f"INSERT INTO LAKE.shaped SELECT sid, 999999, n, name, token FROM LAKE.shaped WHERE {at} = 10")
    bench.sql(f"INSERT INTO LAKE.shaped SELECT * FROM LAKE.shaped WHERE {at} = 15")

    bench.sql(f"DELETE FROM LAKE.bare WHERE {at} = 11")  # missing
    bench.sql(f"UPDATE LAKE.bare SET name = NULL WHERE {at} = 14")  # one missing, one extra
    bench.sql(f"INSERT INTO LAKE.bare SELECT sid, 999999, n, name FROM LAKE.bare WHERE {at} = 16")  # extra
    bench.sql(f"INSERT INTO LAKE.bare SELECT * FROM LAKE.bare WHERE {at} = 17")  # doubled
    bench.sql("DELETE FROM LAKE.bare_shaped WHERE sid = 'eu' AND name = 'ITEM 20'")
    bench.sql(f"DELETE FROM LAKE.parts WHERE {at} = 11")  # of both members

    open_ = "kvsz_end = timestamp'9999-01-01 00:00:00Z'"
    bench.sql(f"DELETE FROM LAKE.past WHERE {at} = 11")  # missing
    bench.sql(f"UPDATE LAKE.past SET name = 'other' WHERE {at} = 13 AND {open_}")  # changed
    bench.sql(f"UPDATE LAKE.past SET name = NULL WHERE {at} = 14 AND {open_}")  # changed
    # Not closed when its row was deleted.
    bench.sql(f"UPDATE LAKE.past SET kvsz_end = timestamp'9999-01-01 00:00:00Z', kvsz_deleted = false WHERE {at} = 2")
    bench.sql(f"INSERT INTO LAKE.past SELECT * FROM LAKE.past WHERE {at} = 15 AND {open_}")  # doubled, and overlaps
    bench.sql(f"UPDATE LAKE.past SET kvsz_start = kvsz_start + interval 1 second WHERE {at} = 18 AND {open_}")  # gap
    bench.sql(f"DELETE FROM LAKE.past_shaped WHERE {at} = 11")

    bench.sql(f"DELETE FROM LAKE.grown WHERE {at} = 11")  # missing
    bench.sql(f"DELETE FROM LAKE.grown WHERE {at} = 12 AND n = 3")  # the newer one of two
    bench.sql(f"UPDATE LAKE.grown SET name = NULL WHERE {at} = 14")
    bench.sql(f"DELETE FROM LAKE.grown_sorted WHERE {at} = 11")
    bench.sql(f"UPDATE LAKE.grown_sorted SET name = NULL WHERE {at} = 14")
    bench.sql(f"DELETE FROM LAKE.grown_bare WHERE {at} = 11")
    bench.sql(f"UPDATE LAKE.grown_bare SET name = NULL WHERE {at} = 14")
    bench.sql(f"DELETE FROM LAKE.grown_inserts WHERE {at} BETWEEN 11 AND 21")

    bench.sql(f"DELETE FROM LAKE.logged WHERE {at} = 11")  # missing
    bench.sql(f"UPDATE LAKE.logged SET name = NULL WHERE {at} = 14")  # changed
    bench.sql(f"DELETE FROM LAKE.logged WHERE {at} = 2 AND _op = 'D'")  # not ended
    bench.sql(f"UPDATE LAKE.logged SET id = 999999 WHERE {at} = -102 OR id = 999999")  # a key nobody has
    bench.sql(f"INSERT INTO LAKE.logged SELECT * FROM LAKE.logged WHERE {at} = 16")  # an event twice
    bench.sql(f"INSERT INTO LAKE.logged_bare SELECT * FROM LAKE.logged_bare WHERE {at} = 16")  # one too many
