"""Schema changes under every table type: the lake holds what the plain model says, whenever the change came."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kuvasz.lake.format import source_positions
from kuvasz.state.tables import State
from tests.support import model, oracle
from tests.support.items import BIG, copied_lsn
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.observer import Observer
from tests.support.postgres import Database, create_database, drop_database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

# Table -> (its columns, what changes it for the n-th time, what fills the changed column).
CASES: dict[str, tuple[str, str, str]] = {
    "added": ("", "ADD a{n} text", "a{n} = 'a'"),
    "filled": ("", "ADD f{n} int NOT NULL DEFAULT 5", "f{n} = 6"),
    "dropped": ("d0 text, d1 text, d2 text", "DROP d{n}", "n = 7"),
    "renamed": ("q0 text, q1 text, q2 text", "RENAME q{n} TO q{n}_new", "q{n}_new = 'r'"),
    "key_renamed": ("", "RENAME k_{n} TO k_{m}", "n = 7"),
    "digits": (
        "p0 numeric(8,2) DEFAULT 1.5, p1 numeric(8,2) DEFAULT -2, p2 numeric(8,2)", "ALTER p{n} TYPE numeric(12,2)",
        "p{n} = 1234567890.12",
    ),
    "widened": ("w0 int DEFAULT 1, w1 real DEFAULT 0.1, w2 int", "ALTER w{n} TYPE {wide}", "w{n} = 1e10"),
    "retyped": (
        "x0 int DEFAULT 4, x1 int DEFAULT 5, x2 int DEFAULT 6",
        "ALTER x{n} TYPE text USING 'v' || x{n}",
        "x{n} = 'x'",
    ),
    "again": ("g0 text DEFAULT 'old', g1 text, g2 text", "DROP g{n}, ADD g{n} text", "g{n} = 'new'"),
    "enums": ("m mood DEFAULT 'fine'", "ADD VALUE 'm{n}'", "m = 'm{n}'"),
    "not_null": ("", "ALTER n {set} NOT NULL", "n = 7"),
    "identity": ("", "REPLICA IDENTITY {identity}", "n = 7"),
}  # fmt: skip
REWRITTEN = {"widened", "retyped", "again"}
#: Names that mean another column than they did, since a change of the n-th time.
REUSED = {"retyped": "x{n}", "again": "g{n}"}


class Tables:
    """The cases' tables in one database, their keys named k_0 at first."""

    def __init__(self, database: Database, names: list[str], *, has_key: bool = True, big: str = BIG) -> None:
        self.database = database
        self.names = names
        self.reused: set[str] = set()
        self._big = big
        database.execute("CREATE TYPE mood AS ENUM ('fine')")
        for name in names:
            more = CASES[name][0]
            key = "int PRIMARY KEY" if has_key else "int"
            database.execute(f"CREATE TABLE {name} (k_0 {key}, n int, c1 text{', ' + more if more else ''})")
            database.execute(f"ALTER TABLE {name} ALTER c1 SET STORAGE EXTERNAL")
            if not has_key:
                database.execute(f"ALTER TABLE {name} REPLICA IDENTITY FULL")

    def fill(self) -> None:
        for name in self.names:
            self.database.execute(f"INSERT INTO {name} SELECT i, 0, {self._big} || i FROM generate_series(1, 9) i")

    def churn(self, name: str, number: int, run: Callable[[str], Any]) -> None:
        """Change rows in every way, most without their large values; the key is called `k_{number}`."""
        key = f"k_{number if name == 'key_renamed' else 0}"
        run(f"UPDATE {name} SET n = n + 1 WHERE {key} % 3 = 0")
        run(f"DELETE FROM {name} WHERE {key} = (SELECT min({key}) FROM {name})")
        run(f"INSERT INTO {name} ({key}, n, c1) SELECT max({key}) + 1, 0, {self._big} || 'new' FROM {name}")
        if name not in ("key_renamed", "identity"):  # of these the old key is told in other words
            run(f"UPDATE {name} SET {key} = {key} + 100 WHERE {key} = (SELECT min({key}) FROM {name})")

    def change(self, name: str, number: int, run: Callable[[str], Any]) -> None:
        """Change the table for the n-th time."""
        if name in REUSED:
            self.reused.add(REUSED[name].format(n=number))
        facts = {
            "n": number, "m": number + 1, "wide": ("bigint", "double precision", "bigint")[number],
            "set": "DROP" if number % 2 else "SET", "identity": ("FULL", "DEFAULT", "FULL")[number],
        }  # fmt: skip
        run(f"ALTER {'TYPE mood' if name == 'enums' else f'TABLE {name}'} {CASES[name][1].format(**facts)}")

    def fill_changed(self, name: str, number: int) -> None:
        key = f"k_{number + 1 if name == 'key_renamed' else 0}"
        self.database.execute(f"UPDATE {name} SET {CASES[name][2].format(n=number)} WHERE {key} % 2 = 0")

    def identify(self, name: str) -> str:
        """Return what a column of source or lake is known by."""
        base = name.removesuffix("__old")
        if base in self.reused and base == name:
            return f"{name}, the second"
        return re.sub(r"^k_\d$", "k", base.removesuffix("_new"))


def through_all_times(
    tables: Tables, pipeline: Pipeline, check: Callable[[Pipeline], None], before: Callable
) -> None:
    """Change every table while it streams, between the rows of a transaction, and while kuvasz is down."""
    database = tables.database
    with pipeline:
        pipeline.wait_streaming()
        check(pipeline)  # so that it is known where the copies stand
        for name in tables.names:
            tables.churn(name, 0, database.execute)
        before()
        for name in tables.names:
            tables.change(name, 0, database.execute)
            tables.churn(name, 1, database.execute)
            tables.fill_changed(name, 0)
        pipeline.wait_applied(database)
        check(pipeline)
        before()
        for name in tables.names:
            with database.connect() as session:
                if name not in REUSED:
                    tables.churn(name, 1, session.execute)
                tables.change(name, 1, session.execute)
                tables.churn(name, 2, session.execute)
            tables.fill_changed(name, 1)
        pipeline.wait_applied(database)
        check(pipeline)
    for name in tables.names:
        tables.churn(name, 2, database.execute)
    before()
    for name in tables.names:
        tables.change(name, 2, database.execute)
        tables.churn(name, 3, database.execute)
        tables.fill_changed(name, 2)
    with Pipeline(pipeline.config, pipeline.folder) as again:
        again.wait_streaming()
        for name in tables.names:
            tables.churn(name, 3, database.execute)
        again.wait_applied(database)
        check(again)


FACTS = {"kvsz_start", "kvsz_end", "kvsz_deleted", "_op", "_lsn", "_ordinal", "_xid", "_commit_ts", "_old_key", "sid"}


def readings(pipeline: Pipeline, table: str) -> dict[str, oracle.Rows]:
    lake = pipeline.folder
    return {
        "pyiceberg": oracle.lake_rows_pyiceberg(lake.pyiceberg, f"shop.{table}", catalog=lake.catalog),
        "spark": oracle.lake_rows_spark(lake.session, f"{lake.catalog}.shop.`{table}`"),
    }


@pytest.mark.parametrize(
    "table_type", ["changelog", *(pytest.param(one, marks=pytest.mark.slow) for one in ("append", "history"))]
)
def test_what_was_stays_and_what_comes_is_right(database: Database, lake_folder: LakeFolder, table_type: str) -> None:
    names = [name for name in CASES if table_type != "history" or name not in REWRITTEN]
    tables = Tables(database, names)
    observer = Observer(
        database, dict.fromkeys(names, ("k",)), identify=tables.identify, shows_defaults=True
    )  # fmt: skip
    observer.defaults = {"f0": 5, "f1": 5, "f2": 5}
    tables.fill()
    copied: dict[str, int] = {}

    def check(pipeline: Pipeline) -> None:
        for name in names:
            if name not in copied:
                copied[name] = copied_lsn(pipeline, target=name)
            before, _, after = observer.split(name, copied[name])
            rows = {
                "append": lambda before=before, after=after: model.append(before, after),
                "history": lambda before=before, after=after: model.history(before, after, ["k"]),
                "changelog": lambda before=before, after=after, name=name: model.changelog(
                    before, after, ["k"], columns=(), copied_lsn=copied[name], is_full=name == "identity"
                ),
            }[table_type]()
            for reader, found in readings(pipeline, name).items():
                columns = [column if column in FACTS else tables.identify(column) for column in found.columns]
                assert len(set(columns)) == len(columns), columns
                assert set(observer.columns.get(name, ())) <= set(columns), columns
                lake = [dict(zip(columns, row, strict=True)) for row in found.rows.elements()]
                expected = [{column: row.get(column) for column in columns} | {"sid": "eu"} for row in rows]
                try:
                    oracle.assert_equal(as_rows(columns, expected), as_rows(columns, lake), key=("k",))
                except AssertionError as error:
                    error.add_note(f"{name} as {reader} reads it")
                    raise

    def as_rows(columns: list[str], rows: list[dict]) -> oracle.Rows:
        for row in rows:
            if isinstance(row.get("_old_key"), dict):
                row["_old_key"] = tuple(("k", value) for value in row["_old_key"].values())
            elif row.get("_old_key"):
                row["_old_key"] = tuple(("k", value) for _, value in row["_old_key"])
            for (
                column
            ) in row:  # what a row of an event has but facts and key is not promised, a default in it neither
                if row.get("_op") == "D" and column not in FACTS | {"k"}:
                    row[column] = None
        return oracle.Rows(columns=tuple(columns), rows=Counter(tuple(row[one] for one in columns) for row in rows))

    config = lake_folder.config(group({"eu": database}, {name: {"type": table_type} for name in names}))
    through_all_times(tables, Pipeline(config, lake_folder), check, observer.read)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the catalog often."""
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 0.3)


STOPS = {
    "renamed": (
        "ALTER TABLE {t} RENAME TO {t}_new; CREATE TABLE {t} (id int PRIMARY KEY)",
        "was renamed to public.{t}_new, and another table has its name",
    ),
    "recreated": ("DROP TABLE {t}; CREATE TABLE {t} (id int PRIMARY KEY)", "was dropped and created again"),
    "rekeyed": ("ALTER TABLE {t} DROP CONSTRAINT {t}_pkey, ADD PRIMARY KEY (id, n)", "is not copied again"),
    "unkeyed": ("ALTER TABLE {t} DROP CONSTRAINT {t}_pkey", "key"),
}


def told_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Why tables were stopped."""
    return [record.error for record in caplog.records if getattr(record, "event", "") == "table_failed"]


def test_what_would_lose_the_past_stops_the_table(
    database: Database, lake_folder: LakeFolder, often: None, caplog: pytest.LogCaptureFixture
) -> None:
    types = ("append", "changelog", "history")
    groups = []
    for table_type in types:
        tables = {f"{case}_{table_type}": {"type": table_type} for case in STOPS}
        groups += group({"eu": database}, tables, name=table_type)
        for table in tables:
            database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, n int NOT NULL DEFAULT 1)")
            database.execute(f"INSERT INTO {table} VALUES (1), (2)")
    with Pipeline(lake_folder.config(groups), lake_folder) as pipeline:
        pipeline.wait_streaming()
        for case, (statement, _) in STOPS.items():
            for table_type in types:
                table = f"{case}_{table_type}"
                database.execute(f"UPDATE {table} SET n = 5 WHERE id = 1")
                database.execute(statement.format(t=table))
                if case == "rekeyed":
                    database.execute(f"INSERT INTO {table} VALUES (3)")
        for case, (_, told) in STOPS.items():
            for table_type in types:
                table, source = f"{case}_{table_type}", f"{table_type}_eu"
                pipeline.wait_state(source, f"shop.{table}", State.ERROR)
                said = told.format(t=table)
                # The next look may have found another reason since.
                wait_until(lambda t=table, s=said: any(s in one and t in one for one in told_of(caplog)), said)
        for table_type in types:
            published = (
                f"SELECT 1 FROM pg_publication_tables WHERE pubname = 'kuvasz_{table_type}_eu' AND tablename = %s"
            )
            table = f"unkeyed_{table_type}"
            wait_until(lambda t=table, p=published: not database.execute(p, (t,)), "its updates are not published")
            database.execute(f"UPDATE {table} SET n = 9")
        # What was before is still there.
        for case in STOPS:
            for table_type in types:
                for found in readings(pipeline, f"{case}_{table_type}").values():
                    assert {row[found.columns.index("id")] for row in found.rows} >= {1, 2}, (case, table_type)


# Slow: test_evolve_sources.py has it of clones, test_accounted_for.py of two sources.
@pytest.mark.slow
def test_one_source_of_three_changes_before_the_others(
    database: Database, postgres18: object, lake_folder: LakeFolder
) -> None:
    others = [create_database(postgres18) for _ in range(2)]
    sources = dict(zip(("eu", "us", "as"), (database, *others), strict=True))
    try:
        observers = {}
        for sid, one in sources.items():
            one.execute("CREATE TABLE items (k int PRIMARY KEY, n int, c1 text, d text, p numeric(8,2))")
            one.execute("ALTER TABLE items ALTER c1 SET STORAGE EXTERNAL")
            observers[sid] = Observer(one, {"items": ("k",)}, identify=lambda name: name.removesuffix("_new"))
            one.execute(f"INSERT INTO items SELECT i, 0, {BIG} || i, 'd', 1.5 FROM generate_series(1, 5) i")
        follow = {"on_schema_change": "evolve"}
        groups = [
            one | {"tables": {"items": follow | {"type": kind, "target": f"items_{kind}"}}, "database": kind}
            for kind in ("append", "history")
            for one in group(sources, {})
        ]
        with Pipeline(lake_folder.config(groups), lake_folder) as pipeline:
            pipeline.wait_streaming()
            at = {
                (table_type, sid): pipeline.app.lake.positions(f"shop.items_{table_type}")[f"{table_type}_{sid}"].lsn
                for table_type in ("append", "history") for sid in sources
            }  # fmt: skip
            for sid, one in sources.items():
                one.execute("ALTER TABLE items RENAME d TO d_new")
                one.execute("ALTER TABLE items ADD a int, ALTER p TYPE numeric(12,2), DROP n")
                for every in sources.values():
                    every.execute("UPDATE items SET k = k + 10 WHERE k % 2 = 0")
                one.execute("UPDATE items SET a = 1, d_new = 'new', p = 1234567890 WHERE k % 3 = 0")
                one.execute("INSERT INTO items (k) VALUES (1000)")
                pipeline.wait_applied(*sources.values())
                if sid == "eu":
                    assert_models(pipeline, observers, at)
            assert_models(pipeline, observers, at)
    finally:
        for one in others:
            drop_database(one)


def assert_models(pipeline: Pipeline, observers: dict[str, Observer], at: dict[tuple[str, str], int]) -> None:
    for table_type in ("append", "history"):
        rows: list[dict] = []
        for sid, observer in observers.items():
            copied, _, after = observer.split("items", at[table_type, sid])
            made = model.append(copied, after) if table_type == "append" else model.history(copied, after, ["k"])
            rows += [dict(row) | {"sid": sid} for row in made]
        for found in readings(pipeline, f"items_{table_type}").values():
            names = [name.removesuffix("_new") for name in found.columns]
            expected = Counter(tuple(row.get(name) for name in names) for row in rows)
            lake = oracle.Rows(columns=tuple(names), rows=found.rows)
            oracle.assert_equal(oracle.Rows(columns=tuple(names), rows=expected), lake, key=("sid", "k"))


@pytest.mark.slow
def test_a_clone_without_a_key_follows_every_change(database: Database, lake_folder: LakeFolder) -> None:
    names = [name for name in CASES if name != "identity"]
    tables = Tables(database, names, has_key=False)
    tables.fill()
    tables.fill()

    def check(pipeline: Pipeline) -> None:
        for name in names:
            expected = oracle.source_rows(database.url, name, sid="eu")
            for found in readings(pipeline, name).values():
                oracle.assert_equal(expected, found.select(list(expected.columns)), key=expected.columns[:1])

    config = lake_folder.config(group({"eu": database}, dict.fromkeys(names)))
    through_all_times(tables, Pipeline(config, lake_folder), check, lambda: None)


def first_lsn(pipeline: Pipeline, target: str) -> int:
    """Where the copy of a table stood, also when it has moved on."""
    table = oracle.open_table(pipeline.folder.pyiceberg, f"shop.{target}", catalog=pipeline.folder.catalog)
    for snapshot in sorted(table.metadata.snapshots, key=lambda one: one.sequence_number or 0):
        for position in source_positions.parse(snapshot.summary.additional_properties, target).values():
            return position.lsn
    raise AssertionError(f"no snapshot of {target} tells a position")


# Slow: append tables write as changelogs do, without a kind.
@pytest.mark.parametrize(
    "table_type", ["changelog", *(pytest.param(one, marks=pytest.mark.slow) for one in ("append", "history"))]
)
def test_changes_during_the_first_copy(database: Database, lake_folder: LakeFolder, table_type: str) -> None:
    def identify(name: str) -> str:
        return "name" if name == "label" else name

    database.execute("CREATE TABLE items (k int PRIMARY KEY, n int, name text)")
    observer = Observer(database, {"items": ("k",)}, identify=identify, shows_defaults=True)
    observer.defaults = {"note": None}
    database.execute("INSERT INTO items SELECT i, 0, 'item ' || i FROM generate_series(1, 60000) i")
    config = lake_folder.config(group({"eu": database}, {"items": {"type": table_type}}))
    with Pipeline(config, lake_folder) as pipeline:
        wait_until(lambda: State.COPYING in pipeline.states().values(), "the copy begins")
        for statement in (
            "ALTER TABLE items ADD note text",
            "UPDATE items SET note = 'x', n = 1 WHERE k % 6000 = 0",
            "ALTER TABLE items RENAME name TO label",
            "UPDATE items SET label = 'other' WHERE k % 9000 = 0",
            "DELETE FROM items WHERE k % 20000 = 1",
            "INSERT INTO items VALUES (60001, 0, 'new', 'y')",
        ):
            database.execute(statement)
        pipeline.wait_streaming()
        database.execute("UPDATE items SET n = 2, note = 'z' WHERE k % 9000 = 1")
        pipeline.wait_applied(database)
        expected = observer.expected("items", table_type, first_lsn(pipeline, "items"), sid="eu")
        for found in readings(pipeline, "items").values():
            columns = tuple(identify(column) for column in found.columns)
            oracle.assert_equal(expected, oracle.Rows(columns=columns, rows=found.rows), key=("k",))
