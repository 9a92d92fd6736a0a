"""What befalls tables that do not follow for a while, or whose schema changes: a recipe for each, by its name.

Each has tables of its own, in one database or in two that feed the same targets, and what is done to them in the
phases of a scene: while kuvasz streams, after it was killed in the stream, and after it was killed in a backlog.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from psycopg import Connection

Tables = Mapping[str, Mapping[str, object] | None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An error that a table has to tell, instead of streaming with a difference."""

    table: str  #: the target, without its namespace
    why: str  #: a part of the error
    hint: str  #: a part of the way out that it names
    run: int = 0  #: the run of kuvasz that tells it, from 0
    is_again: bool = False  #: whether the third run tells it, too, and a person does what it says
    then: str = ""  #: a part of what its hint says after that, which a person has to do as well


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a target must show in the end."""

    table: str = ""  #: at the source; by default the target's name
    columns: str = ""  #: of the target, that are compared; by default all that the source has
    query: str = ""  #: at the source, if it is not just the table
    where: str = "true"  #: of the source's rows
    open_only: bool = False  #: of a history, the versions that are valid


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mishap:
    """Scripts are statements between semicolons, each a transaction of its own unless they say BEGIN and COMMIT."""

    tables: Tables
    make: str
    live: str = ""  #: while kuvasz streams, at the first database alone
    other: str = ""  #: meanwhile at the second one
    stopped: str = ""  #: after the first run
    backlog: str = ""  #: after the second run, which was killed before it wrote anything of one table
    last: str = ""  #: while kuvasz streams again, and everything has been told
    second: Tables | None = None  #: the map's entries of the second run, if they are others
    third: Tables | None = None  #: and of the third
    views: Mapping[str, View]
    told: tuple[Told, ...] = ()
    is_seen_live: bool = True  #: whether the targets are equal before kuvasz is killed for the first time
    in_both: bool = False  #: whether two databases have the tables

    def entries(self, run: int) -> Tables:
        """Return the map's entries in a run, from 0."""
        known = [self.tables, self.second, self.third]
        return next(one for one in reversed(known[: run + 1]) if one is not None)


def run(session: Connection, script: str) -> None:
    """Run a script; the session commits by itself."""
    for statement in filter(str.strip, script.split(";")):
        session.execute(statement)


def plain(name: str, rows: int = 20) -> str:
    """Make a table of a key and a number."""
    return (
        f"CREATE TABLE {name} (id int PRIMARY KEY, n int);"
        f"INSERT INTO {name} SELECT i, i FROM generate_series(1, {rows}) i;"
    )


def change(name: str, value: int) -> str:
    """Add, change and remove rows of such a table."""
    return (
        f"INSERT INTO {name} (id, n) SELECT max(id) + 1, {value} FROM {name};"
        f"UPDATE {name} SET n = {value} WHERE id % 7 = 0;"
        f"DELETE FROM {name} WHERE id = (SELECT min(id) FROM {name});"
    )


SWAP = "BEGIN; ALTER TABLE {t} RENAME a TO x; ALTER TABLE {t} RENAME b TO a; ALTER TABLE {t} RENAME x TO b; COMMIT;"
TEXT = {"types": {"v": "string"}}
KEEPS = ("append", "changelog", "history")
LOOKS = ("looks", "looks_kept")
BIG = "repeat('x', 2200)"
PUBLICATION = "kuvasz_shop"


def out_of_the_publication(table: str, value: int) -> str:
    """Change rows that no stream carries, and then some that it does."""
    alter = f"ALTER PUBLICATION {PUBLICATION}"
    return f"{alter} DROP TABLE {table}; {change(table, value)} {alter} ADD TABLE {table}; {change(table, value + 1)}"


# Tables that do not follow

ABSENT = {
    "renamed while it streams": Mishap(
        tables={"streamed": None}, make=plain("streamed"),
        live=f"{change('streamed', 1)} ALTER TABLE streamed RENAME TO now_streamed; {change('now_streamed', 2)}",
        stopped=change("now_streamed", 3), last=change("now_streamed", 4),
        views={"streamed": View(table="now_streamed")},
    ),
    "renamed while it is paused": Mishap(  # paused in the first run, resumed in the second
        tables={"paused": None}, make=plain("paused"),
        live=f"{change('paused', 1)} ALTER TABLE paused RENAME TO things; {change('things', 2)}",
        stopped=change("things", 3), second={"things": {"target": "paused"}}, last=change("things", 4),
        views={"paused": View(table="things")}, is_seen_live=False,
    ),
    "out of the map and back": Mishap(  # of two sources: kuvasz's own publication, and one FOR ALL TABLES
        tables={"unmapped": None}, make=plain("unmapped"), live=change("unmapped", 1), other=change("unmapped", 1),
        stopped=change("unmapped", 2), second={}, backlog=change("unmapped", 3), third={"unmapped": None},
        last=change("unmapped", 4), views={"unmapped": View()}, in_both=True,
    ),
    "out of the publication and in between looks": Mishap(
        tables={"missed": None, "grown": {"type": "append"}}, make=plain("missed") + plain("grown"),
        live=out_of_the_publication("missed", 1) + out_of_the_publication("grown", 1),
        stopped=out_of_the_publication("missed", 3), last=change("missed", 5),
        views={"missed": View()},
        told=(Told(table="grown", why="are lost", hint="kuvasz retry --table shop.grown goes on with the gap"),),
    ),
    "set back in the lake": Mishap(  # one while kuvasz streams, the other behind the first kill
        tables={"rolled": None, "restored": None}, make=plain("rolled") + plain("restored"),
        live=change("rolled", 1) + change("restored", 1), stopped=change("restored", 2),
        last=change("rolled", 3) + change("restored", 3), views={"rolled": View(), "restored": View()},
        told=(
            Told(table="rolled", why="someone set the table back in the lake",
                 hint="kuvasz resync --table shop.rolled"),
            Told(table="restored", why="someone set the table back in the lake",
                 hint="kuvasz resync --table shop.restored", run=1, is_again=True),
        ),
    ),
}  # fmt: skip

# Rows whose columns must be proved

COLUMNS = {
    "a column list made by hand": Mishap(
        tables={"listed": {"exclude": ["secret"]}},
        make="CREATE TABLE listed (id int PRIMARY KEY, secret text, a text, b text);"
             "INSERT INTO listed SELECT i, 's', 'a' || i, 'b' || i FROM generate_series(1, 9) i;"
             f"CREATE PUBLICATION {PUBLICATION} FOR TABLE listed (id, a, b) WITH (publish_via_partition_root = true)",
        live="UPDATE listed SET a = 'a', b = 'b' WHERE id < 3; INSERT INTO listed VALUES (10, 's', 'a', 'b')",
        stopped="UPDATE listed SET b = 'c' WHERE id = 4", last="DELETE FROM listed WHERE id = 5",
        views={"listed": View(columns="id, a, b")},
    ),
    "names swapped behind what comes again": Mishap(
        tables={"moved": None},
        make="CREATE TABLE moved (id int PRIMARY KEY, a int, b int); INSERT INTO moved VALUES (1, 1, -1), (2, 2, -2)",
        stopped=f"UPDATE moved SET a = 20, b = -20 WHERE id = 2; {SWAP.format(t='moved')}"
                "INSERT INTO moved (id, b, a) VALUES (3, 30, -30)",
        last="UPDATE moved SET b = 11 WHERE id = 1", views={"moved": View()},
    ),
    "added, dropped and renamed over two looks": Mishap(  # a clone would be copied again where the other one stops
        tables={"looks": None, "looks_kept": {"type": "append"}},
        make="".join(f"CREATE TABLE {name} (id int PRIMARY KEY, b text);"
                     f"INSERT INTO {name} VALUES (1, 'old'), (2, 'old');" for name in LOOKS),
        stopped="".join(f"INSERT INTO {name} VALUES (10, 'ten'); UPDATE {name} SET b = 'one' WHERE id = 1;"
                        f"ALTER TABLE {name} ADD c text;" for name in LOOKS),
        backlog="".join(f"ALTER TABLE {name} DROP b; ALTER TABLE {name} RENAME c TO b;"
                        f"UPDATE {name} SET b = 'two' WHERE id = 2;" for name in LOOKS),
        last="".join(f"INSERT INTO {name} VALUES (11, 'new');" for name in LOOKS),
        views={"looks": View(), "looks_kept": View(
            columns="id, b__old, b",
            query="VALUES (1, 'old', NULL), (2, 'old', NULL), (10, 'ten', NULL), (1, 'one', NULL), (2, NULL, 'two'),"
                  " (11, NULL, 'new')",
        )},
        is_seen_live=False,
    ),
    "dropped and added again in a backlog": Mishap(
        tables={f"again_{kind}": {"type": kind} for kind in KEEPS},
        make="".join(f"CREATE TABLE again_{kind} (id int PRIMARY KEY, b text);"
                     f"INSERT INTO again_{kind} VALUES (1, 'copied');" for kind in KEEPS),
        stopped="".join(f"INSERT INTO again_{kind} VALUES (2, 'old');"
                        f"BEGIN; ALTER TABLE again_{kind} DROP b; ALTER TABLE again_{kind} ADD b text; COMMIT;"
                        f"INSERT INTO again_{kind} VALUES (3, 'new');" for kind in KEEPS),
        views={f"again_{kind}": View(
            columns="id, b__old, b", query="VALUES (1, 'copied', NULL), (2, 'old', NULL), (3, NULL, 'new')"
        ) for kind in KEEPS},
        told=tuple(Told(table=f"again_{kind}", why="which of its columns the transaction at",
                        hint=f"b is number 2): kuvasz retry --table shop.again_{kind} takes them so", run=1,
                        is_again=True, then="b is number 3)")
                   for kind in KEEPS),
        is_seen_live=False,
    ),
    "names swapped in one of two sources": Mishap(
        tables={"swapped": None},
        make="CREATE TABLE swapped (id int PRIMARY KEY, a int, b int);"
             "INSERT INTO swapped SELECT i, i, -i FROM generate_series(1, 20) i",
        live=SWAP.format(t="swapped") + "INSERT INTO swapped (id, a, b) VALUES (21, -100, 100)",
        other="UPDATE swapped SET a = a + 1, b = b - 1 WHERE id % 3 = 0",
        stopped="UPDATE swapped SET a = a - 1 WHERE id < 5", last="DELETE FROM swapped WHERE id = 6",
        views={"swapped": View()}, in_both=True,
    ),
    "a large transaction without a key, and looks at another source": Mishap(
        tables={"bag": None},
        make="CREATE TABLE bag (n int, name text, body text); ALTER TABLE bag REPLICA IDENTITY FULL;"
             "ALTER TABLE bag ALTER body SET STORAGE EXTERNAL;"
             f"INSERT INTO bag SELECT i % 5, NULL, {BIG} FROM generate_series(1, 40) i",
        live="BEGIN; DELETE FROM bag WHERE n = 1 AND name IS NULL;"
             f"INSERT INTO bag SELECT i % 3, 'p', {BIG} FROM generate_series(1, 1500) i;"
             "UPDATE bag SET n = n + 1 WHERE name = 'p'; DELETE FROM bag WHERE n = 2;"
             "INSERT INTO bag SELECT * FROM bag WHERE n = 1; COMMIT;"
             "DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag)",
        other="".join(f"ALTER TABLE bag SET (fillfactor = {50 + number});"
                      f"INSERT INTO bag (n) VALUES ({number}), (7);" for number in range(20)),
        stopped="DELETE FROM bag WHERE n = 3", last="UPDATE bag SET n = 9 WHERE n = 1",
        views={"bag": View()}, in_both=True,
    ),
}  # fmt: skip

# What a copy depends on

QUIET = {
    "rewritten without a row": Mishap(
        tables={"rewritten": None}, make=plain("rewritten"),
        live="ALTER TABLE rewritten ALTER n TYPE int USING n * 10", views={"rewritten": View()},
    ),
    "a default without a row": Mishap(
        tables={"constant": None}, make=plain("constant"), live="ALTER TABLE constant ADD d int DEFAULT 9",
        last="INSERT INTO constant VALUES (50, 1)", views={"constant": View()},
    ),
    "a default of many digits": Mishap(
        tables={"digits": None}, make=plain("digits"),
        live="ALTER TABLE digits ADD d numeric(38,20) DEFAULT 1000000000; INSERT INTO digits VALUES (50, 1)",
        views={"digits": View()},
    ),
    "a value of an enum renamed": Mishap(
        tables={"labels": None, "label_key": None, "label_bag": None},
        make="CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TABLE labels (id int PRIMARY KEY, m mood, l mood[]);"
             "INSERT INTO labels SELECT i, 'sad', '{sad,ok}' FROM generate_series(1, 9) i;"
             "CREATE TABLE label_key (m mood PRIMARY KEY, n int); INSERT INTO label_key VALUES ('sad', 1), ('ok', 2);"
             "CREATE TABLE label_bag (m mood, n int); INSERT INTO label_bag VALUES ('sad', 1), ('ok', 2);"
             "ALTER TABLE label_bag REPLICA IDENTITY FULL",
        live="ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'",
        stopped="UPDATE label_key SET n = n + 10; UPDATE label_bag SET n = n + 10",
        last="UPDATE label_key SET n = n + 1; UPDATE label_bag SET n = n + 1; INSERT INTO labels VALUES (10, 'blue')",
        views={"labels": View(), "label_key": View(), "label_bag": View()},
    ),
    "an attribute added to a composite type": Mishap(
        tables={"attributes": None},
        make="CREATE TYPE pair AS (n int, m text); CREATE TABLE attributes (id int PRIMARY KEY, p pair[]);"
             "INSERT INTO attributes SELECT i, ARRAY[(i, 'ok')::pair] FROM generate_series(1, 9) i",
        live="ALTER TYPE pair ADD ATTRIBUTE more text",
        last="INSERT INTO attributes VALUES (10, ARRAY[(1, 'a', 'b')::pair])", views={"attributes": View()},
    ),
    "a partition unlogged for a while": Mishap(
        tables={"parts": None},
        make="CREATE TABLE parts (id int PRIMARY KEY, n int) PARTITION BY RANGE (id);"
             "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (100);"
             "INSERT INTO parts SELECT i, i FROM generate_series(1, 9) i",
        live="ALTER TABLE parts_1 SET UNLOGGED; UPDATE parts SET n = -1 WHERE id < 3; ALTER TABLE parts_1 SET LOGGED",
        stopped="INSERT INTO parts VALUES (10, 10)", last=change("parts", 5), views={"parts": View()},
    ),
    "a partition that stays unlogged": Mishap(
        tables={"unlogged": None},
        make="CREATE TABLE unlogged (id int PRIMARY KEY, n int) PARTITION BY RANGE (id);"
             "CREATE TABLE unlogged_1 PARTITION OF unlogged FOR VALUES FROM (0) TO (100);"
             "INSERT INTO unlogged SELECT i, i FROM generate_series(1, 9) i",
        live="ALTER TABLE unlogged_1 SET UNLOGGED; UPDATE unlogged SET n = -1 WHERE id < 3",
        stopped="ALTER TABLE unlogged_1 SET LOGGED", last=change("unlogged", 5), views={"unlogged": View()},
        told=(Told(table="unlogged", why="its partitions public.unlogged_1 are unlogged",
                   hint="ALTER TABLE each of them SET LOGGED"),),
        is_seen_live=False,
    ),
    "a partitioned lake table's column renamed": Mishap(
        tables={"parted": {"partition_by": ["n"], "sort_by": ["n desc"]}}, make=plain("parted", 9),
        live="ALTER TABLE parted RENAME n TO m; INSERT INTO parted VALUES (10, 5)",
        stopped="INSERT INTO parted VALUES (11, 6)", last="UPDATE parted SET m = 1 WHERE id = 3",
        views={"parted": View()},
    ),
}  # fmt: skip

# Expressions

EXPRESSIONS = {
    "a filter whose columns swap their names": Mishap(
        tables={"filtered": {"filter": "a > 5"}, "told": {"type": "append", "filter": "a > 5"}},
        make="".join(f"CREATE TABLE {name} (id int PRIMARY KEY, a int, b int);"
                     f"INSERT INTO {name} SELECT i, i, 10 - i FROM generate_series(1, 9) i;"
                     for name in ("filtered", "told")),
        live=SWAP.format(t="filtered") + SWAP.format(t="told") + "UPDATE filtered SET b = b + 1;"
             "INSERT INTO told (id, a, b) VALUES (10, 0, 9), (11, 9, 0)",
        second={"filtered": {"filter": "a > 5"}, "told": {"type": "append", "filter": "b > 5"}},
        last="UPDATE filtered SET a = a + 1",
        views={"filtered": View(where="a > 5"), "told": View(where="b > 5")},
        told=(Told(table="told", why="a in the map's expressions names another column than before",
                   hint="kuvasz resync --table shop.told"),),
        is_seen_live=False,
    ),
    "an expression over a backfilled column": Mishap(
        tables={"computed": {"set": {"id": "id", "x": "a", "y": "b + 1"}}},
        make="CREATE TABLE computed (id int PRIMARY KEY, a int, b int);"
             "INSERT INTO computed SELECT i, i, 10 - i FROM generate_series(1, 9) i",
        live="BEGIN; ALTER TABLE computed ADD c int; UPDATE computed SET c = 100 - a;"
             "ALTER TABLE computed RENAME a TO before; ALTER TABLE computed RENAME c TO a; COMMIT;"
             "INSERT INTO computed (id, a, b) VALUES (10, 0, 0)",
        last="UPDATE computed SET a = 1 WHERE id = 3",
        views={"computed": View(columns="id, x, y", query="SELECT id, a, b + 1 FROM computed")},
    ),
    "expressions over deleted and endless rows": Mishap(
        tables={"shares": {
            "set": {"id": "id", "share": "CAST(100 / coalesce(n, 0) AS int)", "year": "year(day)"},
            "filter": "100 / coalesce(n, 0) >= 1", "out_of_range": "null",
        }},
        make="CREATE TABLE shares (id int PRIMARY KEY, n int NOT NULL, day date);"
             "INSERT INTO shares SELECT i, i, CASE i % 2 WHEN 0 THEN 'infinity'::date ELSE '2024-02-29' END"
             " FROM generate_series(1, 9) i",
        live="DELETE FROM shares WHERE id = 1; UPDATE shares SET id = 20 WHERE id = 2;"
             "UPDATE shares SET n = 500 WHERE id = 3; INSERT INTO shares VALUES (30, 1, '-infinity')",
        last="DELETE FROM shares WHERE id = 4",
        views={"shares": View(
            columns="id, share, year",
            query="SELECT id, 100 / n, CASE WHEN isfinite(day) THEN 2024 END FROM shares WHERE n <= 100",
        )},
    ),
    "a change log of what never passed the filter": Mishap(
        tables={"events": {"type": "changelog", "filter": "id % 2 = 0"}},
        make="CREATE TABLE events (id int PRIMARY KEY, n int)",
        live="INSERT INTO events SELECT i, 1 FROM generate_series(1, 4) i; UPDATE events SET n = 2 WHERE id < 3;"
             "DELETE FROM events",
        views={"events": View(columns="_op, id", query="VALUES ('I', 2), ('I', 4), ('U', 2), ('D', 2), ('D', 4)")},
    ),
}  # fmt: skip

# Values that a column cannot hold

VALUES = {
    f"a value that does not fit: {what}": Mishap(
        tables={name: None}, second={name: TEXT},
        make=f"CREATE TABLE {name} ({columns}); INSERT INTO {name} (id, v) VALUES {fits}",
        live=f"INSERT INTO {name} (id, v) VALUES {refused}",
        last=f"INSERT INTO {name} (id, v) VALUES {fits.replace('1', '4', 1)}" if "PRIMARY KEY, v" in columns else "",
        views={name: View(columns="id, v", query=f"SELECT id, v::text FROM {name}")},
        told=(Told(table=name, why="column v", hint="`types: {v: string}`"),), is_seen_live=False,
    )
    for what, name, columns, fits, refused in (
        ("two dimensions", "grids", "id int PRIMARY KEY, v int[]", "(1, '{5,NULL}')", "(3, '{{1,2},{3,4}}')"),
        ("NaN", "nans", "id int PRIMARY KEY, v numeric(10,2)", "(1, 5.50)", "(3, 'NaN')"),
        ("infinity in a key", "moments", "v timestamptz PRIMARY KEY, id int", "(1, '2024-02-29 12:00+02')",
         "(3, 'infinity')"),
        ("lower bounds in a key", "bounds", "v int[] PRIMARY KEY, id int", "(1, '{5}')", "(3, '[0:0]={5}')"),
    )
}  # fmt: skip

# Between two looks, in a backlog, or in the map

ODD = {
    "another replica identity for a while": Mishap(
        tables={"identity": None, "past": {"type": "history"}},
        make="".join(f"CREATE TABLE {name} (id int PRIMARY KEY, n int, u int NOT NULL UNIQUE);"
                     f"INSERT INTO {name} SELECT i, i, i FROM generate_series(1, 9) i;"
                     for name in ("identity", "past")),
        stopped="".join(f"ALTER TABLE {name} REPLICA IDENTITY USING INDEX {name}_u_key; UPDATE {name} SET n = n + 1;"
                        f"UPDATE {name} SET id = 100 WHERE id = 3; DELETE FROM {name} WHERE id = 2;"
                        f"ALTER TABLE {name} REPLICA IDENTITY DEFAULT; UPDATE {name} SET n = n + 1;"
                        for name in ("identity", "past")),
        last="UPDATE identity SET n = 0 WHERE id = 4; UPDATE past SET n = 0 WHERE id = 4",
        views={"identity": View(), "past": View(open_only=True)},
        told=(Told(table="past", why="tells its old rows by (u), which is not its key",
                   hint="kuvasz resync --table shop.past", run=1, is_again=True),),
    ),
    "a column that Iceberg takes for a part of another": Mishap(
        tables={"clash": {"exclude": ["tags.element"]}}, second={"clash": None},
        third={"clash": {"exclude": ["tags.element"]}},
        make='CREATE TABLE clash (id int PRIMARY KEY, tags text[], "tags.element" int)',
        live="INSERT INTO clash VALUES (1, '{a}', 1)", views={"clash": View(columns="id, tags")},
        told=(Told(table="clash", why="Iceberg takes the column tags.element for a part of the column tags",
                   hint="exclude", run=1),),
    ),
    "a name beyond the first plane in a JSON map": Mishap(
        tables={"😀": {"target": "smile"}}, make=plain('"😀"'), live=change('"😀"', 1), last=change('"😀"', 2),
        views={"smile": View(table='"😀"')},
    ),
    "a copy at the pace of the map": Mishap(
        tables={"paced": None}, make=plain("paced", 10_000), last=change("paced", 1), views={"paced": View()},
    ),
}  # fmt: skip

MISHAPS = ABSENT | COLUMNS | QUIET | EXPRESSIONS | VALUES | ODD
