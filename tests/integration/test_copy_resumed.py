"""A copy that is cut off goes on from the parts that it has finished, and the lake is the source all the same."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import threading
from collections.abc import Callable, Iterator

import duckdb
import psycopg
import pytest

from kuvasz.config.load import load
from kuvasz.config.sources import SourceTableSpec
from kuvasz.events import Event
from kuvasz.sync.tables import copy_ledgers
from kuvasz.sync.tables.copy_hours import CopyHours
from tests.support.cut_copies import CutCopies
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import open_table, source_rows
from tests.support.postgres import Database
from tests.support.process import Process
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

#: A value that does not fit into a page, however it is compressed.
BIG = "(SELECT string_agg(md5(random()::text || i || g), '') FROM generate_series(1, 80) g)"

ROWS = 2_000


def fill(database: Database, columns: str = "id int PRIMARY KEY, n int, big text, pad text") -> None:
    database.execute(f"CREATE TABLE items ({columns})")
    database.execute("ALTER TABLE items ALTER big SET STORAGE EXTERNAL")
    database.execute("ALTER TABLE items SET (autovacuum_enabled = off)")
    database.execute(
        f"INSERT INTO items SELECT i, 1, CASE WHEN i % 10 = 0 THEN {BIG} END, repeat('x', 200)"
        f" FROM generate_series(1, {ROWS}) i"
    )


def vacuum(database: Database) -> None:
    with database.connect(autocommit=True) as session:
        session.execute("VACUUM items")


def run(
    database: Database, lake_folder: LakeFolder, cut: CutCopies, told: list[tuple[Event, dict]], **table: object
) -> list[tuple[Event, dict]]:
    """Copy through all cuts; the lake is the source then, and after another change."""
    config = lake_folder.config(group({None: database}, {"items": table or None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items"))
        database.execute("UPDATE items SET n = n + 1000 WHERE id % 3 = 0")
        database.execute("DELETE FROM items WHERE id % 7 = 0")
        pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items"))
    return told


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Event, dict]]:
    """What is told of copies that go on or begin again."""
    found: list[tuple[Event, dict]] = []

    class Log:
        def tell(self, event: Event, **facts: object) -> None:
            found.append((event, facts))

    monkeypatch.setattr(copy_ledgers, "_log", Log())
    return found


def test_rows_that_moved_between_parts(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, told: list[tuple[Event, dict]]
) -> None:
    fill(database)

    def change() -> None:
        block = "(ctid::text::point)[0]::int"
        before = dict(database.execute(f"SELECT id, {block} FROM items"))
        # Room in early pages, which late rows move to, large values unsent; and early rows go to the end.
        database.execute("DELETE FROM items WHERE id % 4 = 1")
        vacuum(database)
        database.execute("UPDATE items SET n = 2, pad = repeat('y', 200) WHERE id > 1900 AND id % 4 <> 1")
        database.execute("UPDATE items SET n = 3, pad = repeat('z', 190) WHERE id <= 200 AND id % 2 = 0")
        # Keys that change, that go and come back, and that are there but for a moment.
        database.execute("UPDATE items SET id = id + 50000 WHERE id % 100 = 0")
        database.execute("DELETE FROM items WHERE id = 50")
        database.execute("INSERT INTO items VALUES (50, 9, 'back', 'x'), (90000, 1, NULL, NULL), (90001, 1, 'b', '')")
        database.execute("DELETE FROM items WHERE id = 90001")
        after = dict(database.execute(f"SELECT id, {block} FROM items"))
        moved = {(before[key] // 8 % 2, after[key] // 8 % 2) for key in before.keys() & after.keys()}
        assert moved >= {(0, 1), (1, 0), (0, 0), (1, 1)}, "rows move both ways"

    parts = range(0, 40, 2)
    cut = CutCopies(cuts=[list(parts)], between=[change])
    cut.arm(monkeypatch, pages=8)
    run(database, lake_folder, cut, told)
    assert len(cut.read) == 2
    assert sorted(cut.read[0]) == [number for number in parts if number <= max(cut.read[0])]
    assert not set(cut.read[0]) & set(cut.read[1]), "no part is read twice"
    assert cut.again[1] == 1
    (event, facts) = told[-1]
    assert (event, facts["done"]) == (Event.COPY_RESUMED, len(cut.read[0]))


def test_keys_of_any_types(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, told: list[tuple[Event, dict]]
) -> None:
    database.execute("CREATE TYPE mood AS ENUM ('so ''so', 'well\\')")
    database.execute("CREATE DOMAIN count AS int CHECK (value <> 7)")
    database.execute(
        'CREATE TABLE items (id count, "Te""xt" text, n numeric(12, 3), at timestamptz, m mood, b bytea, c char(5),'
        ' f float8, u uuid, body text, PRIMARY KEY ("Te""xt", id, n, at, m, b, c, f, u))'
    )
    database.execute(
        "INSERT INTO items SELECT i, E'\\\\ '' \" ' || i, i / 3.0, 'epoch'::timestamptz + i * interval '1.5 s',"
        " (CASE WHEN i % 2 = 0 THEN 'so ''so' ELSE 'well\\' END)::mood, decode(md5(i::text), 'hex'), i % 3,"
        " CASE i % 4 WHEN 0 THEN 'NaN' WHEN 1 THEN '-Infinity' ELSE i / 7.0 END::float8, md5(i::text)::uuid,"
        " repeat('x', 100) FROM generate_series(8, 3000) i"
    )

    def change() -> None:
        database.execute("UPDATE items SET body = 'y' WHERE id % 5 = 0")
        database.execute("UPDATE items SET c = 'z', n = n + 1 WHERE id % 7 = 0")
        database.execute("DELETE FROM items WHERE id % 11 = 0")

    cut = CutCopies(cuts=[range(0, 30, 2)], between=[change])
    cut.arm(monkeypatch, pages=8)
    config = lake_folder.config(group({None: database}, {"items": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items"))
    assert [event for event, _ in told] == [Event.COPY_RESUMED]
    assert told[0][1]["keys"] > 1000


class Load:
    """Changes of all kinds, as chance has them."""

    def __init__(self, database: Database, seed: int) -> None:
        self._database = database
        self._random = random.Random(seed)  # noqa: S311 (what chance has)

    def change(self) -> None:
        """Some changes, each in a transaction of its own or of several."""
        pick = self._random
        some: list[Callable[[int, int], str]] = [
            lambda a, b: f"UPDATE items SET n = n + 1 WHERE id BETWEEN {a} AND {b}",
            lambda a, b: f"UPDATE items SET pad = repeat('p', {pick.randint(1, 900)}) WHERE id BETWEEN {a} AND {b}",
            lambda a, b: f"UPDATE items SET big = md5(n::text) WHERE id BETWEEN {a} AND {b}",
            lambda a, b: f"UPDATE items SET id = -id WHERE id BETWEEN {a} AND {b}",
            lambda a, b: f"DELETE FROM items WHERE id BETWEEN {a} AND {b}",
            lambda a, b: (
                f"INSERT INTO items SELECT i, 7, CASE WHEN i % 3 = 0 THEN {BIG} END, 'new' FROM"
                f" generate_series({a}, {b}) i ON CONFLICT (id) DO UPDATE SET n = items.n + 100"
            ),
        ]
        for _ in range(pick.randint(5, 20)):
            begin = pick.randint(-ROWS, ROWS + 200)
            self._database.execute(pick.choice(some)(begin, begin + pick.choice((0, 5, 80))))
            if pick.random() < 0.2:
                vacuum(self._database)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, 2, 3))])
def test_whatever_changes_between_three_attempts(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, told: list[tuple[Event, dict]],
    seed: int,
) -> None:  # fmt: skip
    lake_folder.format_version = 2 + seed % 2
    fill(database)
    pick, changes = random.Random(seed), Load(database, seed)  # noqa: S311
    cuts = [pick.sample(range(16), 5), pick.sample(range(16), 6), pick.sample(range(16), 3)]
    cut = CutCopies(cuts=cuts, between=[changes.change] * 3)
    cut.arm(monkeypatch, pages=5)
    run(database, lake_folder, cut, told)
    assert [event for event, _ in told] == [Event.COPY_RESUMED] * 3
    read = [number for attempt in cut.read for number in attempt]
    assert len(read) == len(set(read)), "no part is read twice"


@contextlib.contextmanager
def loaded(database: Database, rows: int, session: int = 0) -> Iterator[None]:
    """Have rows change all the time, in all parts of a table."""
    over, pick = threading.Event(), random.Random(session)  # noqa: S311

    def change() -> None:
        with database.connect(autocommit=True) as connection:
            while not over.is_set():
                key = pick.randint(1, rows)
                near = key, key + 50
                connection.execute("UPDATE items SET n = n + 1, pad = md5(n::text) WHERE id BETWEEN %s AND %s", near)
                connection.execute("DELETE FROM items WHERE id = %s", (key,))
                with contextlib.suppress(psycopg.errors.UniqueViolation):
                    connection.execute("UPDATE items SET id = -id WHERE id = %s", (key + 1,))
                connection.execute("INSERT INTO items VALUES (%s, 0, 'x') ON CONFLICT DO NOTHING", (key + rows,))
                over.wait(0.02)

    thread = threading.Thread(target=change, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def killed_in_the_middle(database: Database, process: Process, rows: int, *, after: int) -> dict:
    """Kill a process in the middle of a copy, with load all the time; returns what the next one tells of it."""
    with loaded(database, rows):
        process.start(failpoints=f"copy_range_done:kill:{after}")
        process.wait_killed()
        process.start()
        process.wait_event("copied")
        (resumed,) = process.found("copy_resumed")
        assert process.found("copy_begun_again") == []
    process.wait_confirmed(database)
    process.terminate()
    return resumed


# Slow: a copy is killed in test_crash.py, and cut off and gone on with above.
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_kill_repeats_the_parts_that_were_being_read(
    database: Database, new_process: Callable[..., Process]
) -> None:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, n int, pad text)")
    database.execute("INSERT INTO items SELECT i, 1, repeat(md5(i::text), 40) FROM generate_series(1, 250000) i")
    process = new_process(group({None: database}, {"items": None}))
    resumed = killed_in_the_middle(database, process, 250_000, after=3)
    process.assert_equal("items", source_rows(database.url, "items"))
    assert resumed["done"] >= 3
    assert resumed["total"] >= 5
    assert resumed["keys"] > 0
    assert list((process.folder / "state" / "copies").iterdir()) == [], "nothing is kept of a copy that is there"


def test_what_was_done_to_a_table_makes_its_copy_begin_again(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, told: list[tuple[Event, dict]]
) -> None:
    fill(database)
    of_table = "the table was altered"

    def execute(*statements: str) -> Callable[[], None]:
        def run_them() -> None:
            with database.connect(autocommit=True) as session:
                for statement in statements:
                    session.execute(statement)

        return run_them

    publication = "kuvasz_shop"
    steps = [
        (execute("VACUUM FULL items"), of_table),
        (execute("CREATE TABLE kept AS TABLE items", "TRUNCATE items", "INSERT INTO items TABLE kept"), of_table),
        (execute("ALTER TABLE items REPLICA IDENTITY FULL", "ALTER TABLE items REPLICA IDENTITY DEFAULT"), of_table),
        (execute("ALTER TABLE items ADD more int DEFAULT 7"), of_table),
        (execute("ALTER TABLE items ALTER n TYPE bigint"), of_table),
        (execute(f"ALTER PUBLICATION {publication} DROP TABLE items", "UPDATE items SET n = 5",
                 f"ALTER PUBLICATION {publication} ADD TABLE items"), "the table was not published all the time"),
    ]  # fmt: skip
    cut = CutCopies(cuts=[range(3)] * len(steps), between=[step for step, _ in steps])
    cut.arm(monkeypatch, pages=8)
    run(database, lake_folder, cut, told)
    begun = [facts["found"] for event, facts in told if event is Event.COPY_BEGUN_AGAIN]
    assert begun == [why for _, why in steps]


@pytest.mark.slow
def test_another_process_goes_on_unless_its_map_says_something_else(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, told: list[tuple[Event, dict]]
) -> None:
    fill(database)
    cut = CutCopies(cuts=[range(3)], is_away=True)
    cut.arm(monkeypatch, pages=8)

    def attempt(*, is_killed: bool, **table: object) -> tuple[Event, dict]:
        config = lake_folder.config(group({None: database}, {"items": table or None}))
        with Pipeline(config, lake_folder) as pipeline:
            wait_until(lambda: cut.ended == len(cut.cuts), "the copy is cut off")
            if is_killed:
                pipeline.die()
                pipeline.error = None
        database.execute("UPDATE items SET n = n + 1, pad = 'y' WHERE id % 5 = 0")
        return told[-1] if told else (Event.COPIED, {})

    attempt(is_killed=True)
    assert told == []
    cut.cuts.append(range(3, 5))
    event, facts = attempt(is_killed=False)
    assert (event, facts["done"]) == (Event.COPY_RESUMED, 3)
    cut.cuts.append([5, 6])
    event, facts = attempt(is_killed=False, filter="n < 5000")
    assert (event, facts["found"]) == (Event.COPY_BEGUN_AGAIN, "the map takes other rows of it")
    cut.cuts.append([0])
    event, facts = attempt(is_killed=True, filter="n < 5000")
    assert (event, facts["done"]) == (Event.COPY_RESUMED, 2)
    database.execute("SELECT pg_replication_slot_advance('kuvasz_shop', pg_current_wal_lsn())")
    cut.cuts.append([1])
    event, facts = attempt(is_killed=True, filter="n < 5000")
    assert event is Event.COPY_BEGUN_AGAIN
    assert facts["found"].startswith("the slot stands at ")
    shutil.rmtree(lake_folder.folder / "state" / "copies")
    count = len(told)
    cut.is_away = False
    run(database, lake_folder, cut, told, filter="n < 5000")
    assert len(told) == count, "without a ledger nothing is said of it"
    assert len(cut.read[-1]) == max(cut.read[-1]) + 1, "all of it is read"


def test_a_copy_whose_snapshot_gets_too_old_goes_on_under_others(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, told: list[tuple[Event, dict]]
) -> None:
    """And none of them is held for longer: what was deleted before the last one can be vacuumed."""
    fill(database)
    turn = iter(range(100))

    def change() -> None:
        at = next(turn)
        database.execute(f"UPDATE items SET n = n + 1, pad = repeat('y', 210) WHERE id % 50 = {at}")
        database.execute(f"DELETE FROM items WHERE id % 97 = {at}")

    cut = CutCopies(cuts=[], between=[change] * 20)
    cut.arm(monkeypatch, pages=12)
    check = CopyHours.check_age

    def aged(hours: CopyHours, spec: SourceTableSpec, taken_at: float, **more: bool) -> None:
        check(hours, spec, taken_at - (3600 if len(cut.read[-1]) >= 4 else 0), **more)

    monkeypatch.setattr(CopyHours, "check_age", aged)
    lake_folder.config(group({None: database}, {"items": None}))
    file = lake_folder.folder / "map.yaml"
    limits = {"max_snapshot_age": "30m", "sessions": 1}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"copy": limits}))
    with Pipeline(load(file, {}).config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items"))
    assert {event for event, _ in told} == {Event.COPY_RESUMED}
    done = [facts["done"] for _, facts in told]
    assert len(done) >= 2
    assert done == sorted(set(done)), "each attempt gets on"
    assert len(cut.read) == len(done) + 1


#: Rows in order, as texts, of a thousand buckets of keys: so many rows are compared where they are.
SUMS = (
    "SELECT (id + 100000000) {over} 100000 AS bucket, count(*), md5(string_agg(concat_ws(':', id, n, pad), ','"
    " ORDER BY id)) FROM {table} GROUP BY bucket ORDER BY bucket"
)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_kill_in_the_copy_of_20_million_rows(database: Database, new_process: Callable[..., Process]) -> None:
    rows = 20_000_000
    database.execute("CREATE TABLE items (id int PRIMARY KEY, n int, pad text)")
    database.execute(f"INSERT INTO items SELECT i, 1, md5(i::text) FROM generate_series(1, {rows}) i")
    process = new_process(group({None: database}, {"items": None}))
    resumed = killed_in_the_middle(database, process, rows, after=12)
    assert resumed["total"] >= 20
    assert resumed["done"] >= 12, "at most the part that each of two sessions was reading is read again"
    lake = open_table(process.pyiceberg, "shop.items").scan().to_arrow_batch_reader()
    with duckdb.connect() as connection:
        connection.register("lake", lake)
        found = connection.execute(SUMS.format(over="//", table="lake")).fetchall()
    assert found == database.execute(SUMS.format(over="/", table="items"))
