"""A database with tables of all kinds, under names that are hard to write."""

from __future__ import annotations

from tests.support.postgres import Database

#: Statements that make it.
ODD_TABLES = (
    'CREATE SCHEMA "Bill.ing"',
    "CREATE TABLE customers (id int PRIMARY KEY, name text, born date, limits numeric)",
    "INSERT INTO customers SELECT i, 'n' || i, '2000-01-01'::date + i, i / 7.0 FROM generate_series(1, 300) i",
    'CREATE TABLE "Order Items" ("Order" int, "Line No" int, price numeric(12,2), PRIMARY KEY ("Order", "Line No"))',
    'INSERT INTO "Order Items" SELECT i / 3, i % 3, i * 1.5 FROM generate_series(0, 299) i',
    # The same name in another schema, in another case, and with a dot and quotes.
    'CREATE TABLE "Bill.ing".customers (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), tags text[], at timestamptz)',
    "INSERT INTO \"Bill.ing\".customers (tags) SELECT ARRAY['a', NULL, i::text] FROM generate_series(1, 50) i",
    'CREATE TABLE "Customers" (id int PRIMARY KEY)',
    'INSERT INTO "Customers" VALUES (1), (2)',
    """CREATE TABLE "a.b ""c"" 'd'" (id int PRIMARY KEY, v text)""",
    """INSERT INTO "a.b ""c"" 'd'" VALUES (1, 'x'), (2, NULL)""",
    'CREATE TABLE "null" ("x: y" int PRIMARY KEY)',
    'INSERT INTO "null" VALUES (7)',
    'CREATE TABLE "back\\slash/${X}\nand a line" (id int PRIMARY KEY)',
    'INSERT INTO "back\\slash/${X}\nand a line" VALUES (1)',
    # Without a key; with the whole row as one; with a unique index as one; with a column that is generated.
    "CREATE TABLE log (at timestamptz, line text)",
    "INSERT INTO log SELECT now(), 'l' || i FROM generate_series(1, 100) i",
    "CREATE TABLE whole (n int, v text)",
    "ALTER TABLE whole REPLICA IDENTITY FULL",
    "INSERT INTO whole VALUES (1, 'a'), (1, 'a'), (2, NULL)",
    "CREATE TABLE codes (code text NOT NULL CONSTRAINT codes_code UNIQUE, label text)",
    "ALTER TABLE codes REPLICA IDENTITY USING INDEX codes_code",
    "INSERT INTO codes VALUES ('a', 'A'), ('b', 'B')",
    "CREATE TABLE area (id int PRIMARY KEY, w int, h int, size int GENERATED ALWAYS AS (w * h) STORED)",
    "INSERT INTO area (id, w, h) VALUES (1, 2, 3), (2, 4, 5)",
    # Partitions of two levels.
    "CREATE TABLE events (n int, day date, PRIMARY KEY (n, day)) PARTITION BY RANGE (day)",
    "CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM ('2024-01-01') TO ('2024-02-01')",
    "CREATE TABLE events_2 PARTITION OF events DEFAULT PARTITION BY LIST (n)",
    "CREATE TABLE events_2_all PARTITION OF events_2 DEFAULT",
    "INSERT INTO events SELECT i, '2024-01-01'::date + i % 50 FROM generate_series(1, 200) i",
    # What cannot be replicated.
    "CREATE VIEW totals AS SELECT count(*) FROM customers",
    "CREATE MATERIALIZED VIEW kept AS SELECT count(*) FROM customers",
    "CREATE UNLOGGED TABLE sessions (id int PRIMARY KEY)",
    "CREATE FOREIGN DATA WRAPPER nothing",
    "CREATE SERVER elsewhere FOREIGN DATA WRAPPER nothing",
    "CREATE FOREIGN TABLE remote (id int) SERVER elsewhere",
    "CREATE TABLE bare ()",
)


def create_odd_tables(database: Database) -> None:
    """Make them."""
    for statement in ODD_TABLES:
        database.execute(statement)
    with database.connect(autocommit=True) as connection:
        connection.execute("ANALYZE customers")


__all__ = ["ODD_TABLES", "create_odd_tables"]
