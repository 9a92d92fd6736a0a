"""Partitioned and sorted targets: real PostgreSQL, Spark and Iceberg; read by Spark, PyIceberg and DuckDB."""

from __future__ import annotations

import urllib.parse
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, LessThan

from kuvasz.state.tables import State
from tests.support import oracle
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database, create_database, drop_database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

#: Maintenance gives way to the stream, and to whoever else has the cores.
PATIENCE_S = 300.0

EVENTS = """
CREATE TABLE events (
    id bigint PRIMARY KEY, at timestamptz, kind text, price numeric(9,2), who uuid, day date, note text, n int
);
ALTER TABLE events ALTER note SET STORAGE EXTERNAL;
"""
FILL = """
INSERT INTO events SELECT i, timestamptz '1969-12-28 12:00Z' + i * interval '1 hour', 'kind ' || i % 3,
    (i - 50) * 1.25, md5(i::text)::uuid, date '1970-01-01' + (i %% 5 - 2), repeat('n', 3000) || i, i
FROM generate_series({}, {}) i
""".replace("%%", "%")


@pytest.fixture
def folder(request: pytest.FixtureRequest, spark_session: object) -> LakeFolder:
    made = LakeFolder(spark_session, format_version=request.param)
    yield made
    made.remove()


def _table(pipeline: Pipeline, name: str = "events") -> object:
    lake = pipeline.folder
    return oracle.open_table(lake.pyiceberg, f"shop.{name}", catalog=lake.catalog)


def _files(pipeline: Pipeline, where: object = None) -> list:
    scan = _table(pipeline).scan() if where is None else _table(pipeline).scan(row_filter=where)
    return [task.file for task in scan.plan_files()]


def _read(file: object) -> object:
    return pq.read_table(urllib.parse.urlparse(file.file_path).path, partitioning=None)


def _work(database: Database) -> None:
    """Insert, update, move between partitions, delete; large values stay unsent."""
    with database.connect() as session:
        session.execute("UPDATE events SET n = n + 1 WHERE id % 3 = 0")
        session.execute("UPDATE events SET kind = 'moved', at = at + interval '40 days' WHERE id % 7 = 0")
        session.execute("UPDATE events SET kind = 'moved twice' WHERE id % 21 = 0")
    with database.connect() as session:
        session.execute("DELETE FROM events WHERE id % 10 = 1")
        session.execute(FILL.format(500, 540))
        session.execute("UPDATE events SET at = NULL, kind = NULL, price = -price WHERE id > 530")
        session.execute("UPDATE events SET id = id + 10000, day = day - 400 WHERE id % 11 = 0")


def _versions(*often: int) -> pytest.MarkDecorator:
    """Try a test in some format versions, and in the others with the slow tests."""
    marks = {version: () if version in often else (pytest.mark.slow,) for version in (3, 2)}
    params = [pytest.param(version, marks=marks[version]) for version in marks]
    return pytest.mark.parametrize("folder", params, indirect=True)


#: Name -> the format version that it is tried with always, `partition_by`, `sort_by`.
#: Ways to lay a table out, and the format version that `make test` has of each: of all that a transform makes of
#: values tests/unit/lake/format has the rest.
BY = {
    "days": (None, ["days(at)"], []),
    "identity and bucket": (2, ["kind", "bucket(4, id)"], ["n desc"]),
    "truncate and months": (None, ["truncate(1, kind)", "months(day)", "truncate(10, price)"], ["at", "id"]),
    "large value": (None, ["bucket(3, who)", "years(at)", "truncate(2, note)"], ["kind desc nulls first"]),
    "sorted alone": (3, [], ["hours(at) desc", "id"]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("folder", "partition_by", "sort_by"),
    [
        pytest.param(version, by, sort, id=f"{name}-{version}", marks=() if version == often else pytest.mark.slow)
        for name, (often, by, sort) in BY.items()
        for version in (3, 2)
    ],
    indirect=["folder"],
)
def test_rows_are_where_they_belong(
    database: Database, folder: LakeFolder, partition_by: list[str], sort_by: list[str]
) -> None:
    with database.connect() as session:
        session.execute(EVENTS)
        session.execute(FILL.format(1, 120))
    entry = {"partition_by": partition_by, "sort_by": sort_by}
    config = folder.config(group({"eu": database}, {"events": entry}))
    with Pipeline(config, folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.assert_equal("events", source_rows(database.url, "events", sid="eu"))
        for _ in range(2):
            _work(database)
            pipeline.wait_applied(database)
            pipeline.assert_equal("events", source_rows(database.url, "events", sid="eu"))
            database.execute("DELETE FROM events WHERE id >= 500")
        pipeline.wait_applied(database)
    _forget_index(folder)
    with Pipeline(config, folder) as pipeline:  # index rebuilt from partitioned files
        pipeline.wait_streaming()
        database.execute("UPDATE events SET kind = 'after', n = -1 WHERE id % 4 = 0")
        pipeline.wait_applied(database)
        pipeline.assert_equal("events", source_rows(database.url, "events", sid="eu"))
        database.execute("TRUNCATE events")
        database.execute(FILL.format(1, 20))
        pipeline.wait_applied(database)
        pipeline.assert_equal("events", source_rows(database.url, "events", sid="eu"))


def _forget_index(folder: LakeFolder) -> None:
    import shutil

    shutil.rmtree(folder.folder / "state" / "index")


@_versions(2)
def test_a_filter_on_a_partition_reads_its_files_alone(database: Database, folder: LakeFolder) -> None:
    with database.connect() as session:
        session.execute(EVENTS)
        session.execute(FILL.format(1, 120))
    entry = {"partition_by": ["days(at)", "kind"]}
    with Pipeline(folder.config(group({"eu": database}, {"events": entry})), folder) as pipeline:
        pipeline.wait_streaming()
        _work(database)
        pipeline.wait_applied(database)
        day = And(GreaterThanOrEqual("at", "1969-12-30T00:00:00+00:00"), LessThan("at", "1969-12-31T00:00:00+00:00"))
        total, some = len(_files(pipeline)), len(_files(pipeline, day))
        assert 0 < some < total / 3
        counted = database.execute("SELECT count(*) FROM events WHERE (at AT TIME ZONE 'UTC')::date = '1969-12-30'")
        assert _table(pipeline).scan(row_filter=day).to_arrow().num_rows == counted[0][0]
        kind = EqualTo("kind", "moved")
        assert {tuple(file.partition)[1] for file in _files(pipeline, kind)} == {"moved"}
        (rows,) = database.execute("SELECT count(*) FROM events WHERE kind = 'moved'")
        assert _table(pipeline).scan(row_filter=kind).to_arrow().num_rows == rows[0]
        name = f"{folder.catalog}.shop.events"
        assert folder.session.sql(f"SELECT * FROM {name} WHERE kind = 'moved'").count() == rows[0]


@_versions(3)
def test_each_file_holds_one_partition_and_is_sorted(database: Database, folder: LakeFolder) -> None:
    with database.connect() as session:
        session.execute(EVENTS)
        session.execute(FILL.format(1, 120))
    entry = {"partition_by": ["kind", "sid"], "sort_by": ["n desc", "id"]}
    with Pipeline(folder.config(group({"eu": database}, {"events": entry})), folder) as pipeline:
        pipeline.wait_streaming()
        _work(database)
        pipeline.wait_applied(database)
        pipeline.assert_equal("events", source_rows(database.url, "events", sid="eu"))
        files = _files(pipeline)
        assert len(files) > 4
        order = _table(pipeline).sort_order()
        assert [str(field.transform) for field in order.fields] == ["identity", "identity"]
        for file in files:
            rows = _read(file)
            kind, sid = tuple(file.partition)
            assert (set(rows.column("kind").to_pylist()), sid) == ({kind}, "eu")
            keys = [(-n, i) for n, i in zip(rows.column("n").to_pylist(), rows.column("id").to_pylist(), strict=True)]
            assert keys == sorted(keys)
            assert file.sort_order_id == order.order_id


@_versions(3)
def test_a_large_transaction_with_unsent_values_over_partitions(database: Database, folder: LakeFolder) -> None:
    with database.connect() as session:
        session.execute(EVENTS)
        session.execute(FILL.format(1, 400))
    entry = {"partition_by": ["bucket(3, id)", "truncate(6, kind)"], "sort_by": ["n"]}
    config = folder.config(
        group({"eu": database}, {"events": entry}), memory="4MB", transaction_spill_bytes="64kB", chunk_bytes="64kB"
    )
    with Pipeline(config, folder) as pipeline:
        pipeline.wait_streaming()
        with database.connect() as session:
            for number in range(6):
                session.execute("UPDATE events SET n = n + 1, kind = %s", (f"kind{number}",))
            session.execute("DELETE FROM events WHERE id % 5 = 0")
            session.execute("UPDATE events SET kind = 'last' WHERE id % 2 = 0")
            session.execute(FILL.format(1000, 1400))
        pipeline.wait_applied(database)
        pipeline.assert_equal("events", source_rows(database.url, "events", sid="eu"))


@_versions(2)
def test_the_map_may_change_the_layout_and_old_files_stay_as_they_are(database: Database, folder: LakeFolder) -> None:
    with database.connect() as session:
        session.execute(EVENTS)
        session.execute(FILL.format(1, 60))
    layouts = [{"partition_by": ["kind"]}, {}, {"partition_by": ["days(at)", "kind"], "sort_by": ["id desc"]},
               {"partition_by": ["bucket(2, id)"]}]  # fmt: skip
    for number, entry in enumerate(layouts):
        config = folder.config(group({"eu": database}, {"events": entry or None}))
        with Pipeline(config, folder) as pipeline:
            pipeline.wait_streaming()
            database.execute(FILL.format(1000 + number * 10, 1005 + number * 10))
            database.execute(f"UPDATE events SET n = 1000 + {number}, kind = 'k' || {number} WHERE id % 5 = {number}")
            database.execute(f"DELETE FROM events WHERE id % 9 = {number}")
            pipeline.wait_applied(database)
            pipeline.assert_equal("events", source_rows(database.url, "events", sid="eu"))
            specs = {str(field.transform) for field in _table(pipeline).spec().fields}
            assert len(_table(pipeline).spec().fields) == len(entry.get("partition_by", [])), specs
            orders = len(_table(pipeline).sort_order().fields)
            assert orders == len(entry.get("sort_by", []))


# Slow: partitions are merged in test_history.py, test_append.py and test_changelog.py as well.
@pytest.mark.slow
@_versions(3)
@pytest.mark.timeout(900)
def test_maintenance_merges_within_a_partition(database: Database, folder: LakeFolder) -> None:
    eager = {"interval": "100ms", "min_files": 2, "max_dead_percent": 10, "target_file_size": "64kB",
             "snapshot_age": "1s", "snapshots_kept": 3}  # fmt: skip
    with database.connect() as session:
        session.execute(EVENTS)
        session.execute(FILL.format(1, 60))
    entries = [{"partition_by": ["kind"]}, {"partition_by": ["bucket(2, id)"], "sort_by": ["n desc"]}]
    for entry in entries:
        config = folder.config(group({"eu": database}, {"events": entry}), eager)
        with Pipeline(config, folder) as pipeline:
            pipeline.wait_streaming()
            for number in range(4):
                database.execute(f"UPDATE events SET n = n + 1, kind = 'k' || id % 2 WHERE id % 4 = {number}")
                pipeline.wait_applied(database)
            upkeep = pipeline.app.lake.maintenance.upkeep
            wait_until(
                lambda upkeep=upkeep: (seen := upkeep().get("shop.events")) and seen.rewrites >= 2,
                "files were merged",
                PATIENCE_S,
            )
            wait_until(lambda upkeep=upkeep: upkeep()["shop.events"].files <= 12, "there are few files", PATIENCE_S)
            assert upkeep()["shop.events"].error is None
            pipeline.assert_equal("events", source_rows(database.url, "events", sid="eu"))
            current = _table(pipeline).spec().spec_id
            for file in [file for file in _files(pipeline) if file.spec_id == current]:
                rows = _read(file)
                if entry is entries[0]:
                    assert set(rows.column("kind").to_pylist()) == {next(iter(file.partition))}
                else:
                    assert rows.column("n").to_pylist() == sorted(rows.column("n").to_pylist(), reverse=True)
            assert any(file.spec_id == current for file in _files(pipeline))


@pytest.fixture
def second(postgres16) -> Database:
    created = create_database(postgres16)
    yield created
    drop_database(created)


@_versions(2)
def test_truncate_and_copy_of_one_source_leave_the_others_partitions(
    database: Database, second: Database, folder: LakeFolder
) -> None:
    for one in (database, second):
        with one.connect() as session:
            session.execute(EVENTS)
            session.execute(FILL.format(1, 50))
    entry = {"partition_by": ["kind"]}
    config = folder.config(group({"eu": database, "us": second}, {"events": entry}))
    with Pipeline(config, folder) as pipeline:
        pipeline.wait_streaming()
        second.execute("UPDATE events SET kind = 'x' WHERE id < 10")
        database.execute("TRUNCATE events")
        database.execute(FILL.format(1, 10))
        pipeline.wait_applied(database, second)
        rows = source_rows(database.url, "events", sid="eu"), source_rows(second.url, "events", sid="us")
        pipeline.assert_equal("events", *rows, key=("sid", "id"))


def test_an_expression_that_does_not_fit_is_refused(database: Database, lake_folder: LakeFolder) -> None:
    with database.connect() as session:
        session.execute(EVENTS)
        session.execute("CREATE TABLE fine (id int PRIMARY KEY)")
    tables = {"events": {"partition_by": ["days(att)"]}, "fine": None}
    with Pipeline(lake_folder.config(group({"eu": database}, tables)), lake_folder) as pipeline:
        pipeline.wait_state("shop_eu", "shop.events", State.ERROR)
        (error,) = pipeline.errors()
        assert (
            "table shop.events, partition_by 'days(att)': the table has no column 'att': did you mean 'at'?" in error
        )
    assert not list(Path(lake_folder.folder).glob("wh/shop/events/data/*"))
