"""Tables by patterns: found at a start, taken in while kuvasz runs and rows keep coming, kept while it is away."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Mapping

import pytest

from kuvasz.admin.live_map import LiveMap
from kuvasz.config.load import Loaded, load
from kuvasz.config.sources import resolve
from kuvasz.source.check.finding import Severity
from kuvasz.sync import watches
from kuvasz.verbs import check, plan
from kuvasz.verbs.maps import patterns
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database, create_database, drop_database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

TABLES = {"audit": {"type": "append", "target": "log"}, "*.*": {"except": ["tmp_*"], "target": "{table}"}}


@pytest.fixture
def second(postgres16) -> Iterator[Database]:
    created = create_database(postgres16)
    yield created
    drop_database(created)


@contextlib.contextmanager
def growing(*tables: tuple[Database, str]) -> Iterator[None]:
    """Have rows come, change and go in tables, of which some may not be there yet."""
    stop = threading.Event()
    errors: list[Exception] = []

    def write(database: Database, table: str, step: int) -> None:
        statement = (
            f"INSERT INTO {table} SELECT max(id) + 1, {step} FROM {table};"
            f" UPDATE {table} SET n = {step} WHERE id % 3 = {step % 3};"
            f" DELETE FROM {table} WHERE id = {step}"
        )
        ((is_there,),) = database.execute("SELECT to_regclass(%s) IS NOT NULL", (table,))
        if is_there:
            database.execute(statement)

    def run() -> None:
        step = 0
        try:
            while not stop.wait(0.02):
                step += 1
                for database, table in tables:
                    write(database, table, step)
        except Exception as error:  # noqa: BLE001 (it is the test's)
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not errors


def create(database: Database, table: str, rows: int = 50) -> None:
    """Create a table with rows, of which all or none are seen."""
    database.execute(
        f"CREATE TABLE {table} (id bigint PRIMARY KEY, n int);"
        f" INSERT INTO {table} SELECT i, 0 FROM generate_series(1, {rows}) i"
    )


@contextlib.contextmanager
def running(loaded: Loaded, folder: LakeFolder) -> Iterator[Pipeline]:
    """Have kuvasz run as the command does, which looks at all sources before."""
    loaded = patterns.kept(loaded)
    with Pipeline(loaded.config, folder) as pipeline:

        async def live() -> asyncio.Task[None]:
            return asyncio.create_task(LiveMap(pipeline.app, loaded).run())

        living = pipeline.call(live())
        pipeline.wait_streaming()
        yield pipeline

        async def end() -> None:
            living.cancel()

        pipeline.call(end())


def followed(pipeline: Pipeline) -> set[tuple[str, str]]:
    return {(source, target) for source, target in pipeline.states()}


def targets(loaded: Loaded, name: str) -> set[str]:
    (source,) = (one for one in resolve(loaded.config) if one.name == name)
    return {spec.identifier for spec in source.tables}


def assert_equal(pipeline: Pipeline, databases: Mapping[str, Database], target: str, table: str) -> None:
    pipeline.wait_streaming()
    pipeline.wait_applied(*databases.values())
    rows = [source_rows(one.url, table, sid=sid) for sid, one in databases.items()]
    pipeline.assert_equal(target, *rows, key=("sid", "id"))


def test_tables_like_a_pattern_are_taken_in_when_they_come(
    database: Database, second: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "PATROL_S", 0.2)
    for one in (database, second):
        create(one, "items")
        create(one, "audit")
    create(second, "others")
    create(database, "tmp_items")
    database.execute("CREATE TABLE bare (n int)")
    both = {"eu": database, "us": second}
    lake_folder.config(group(both, TABLES))
    loaded = load(lake_folder.folder / "map.yaml", {})

    found = patterns.asked(loaded)
    assert {one.target for made in plan.plans(found.config) for one in made.tables} == {
        "shop.items", "shop.others", "shop.log"
    }  # fmt: skip
    left = [one for one in check.findings(found.config) if one.check == "pattern"]
    assert [(one.source, str(one.table), one.severity) for one in left] == [
        ("kuvasz_shop_eu", "public.bare", Severity.ADVICE)
    ]

    with running(loaded, lake_folder) as pipeline:
        assert followed(pipeline) == {
            ("shop_eu", "shop.items"), ("shop_eu", "shop.log"),
            ("shop_us", "shop.items"), ("shop_us", "shop.log"), ("shop_us", "shop.others"),
        }  # fmt: skip
        with growing((database, "items"), (second, "items"), (second, "late"), (database, "shop2.more")):
            reader = pipeline.app.sync("shop_eu").reader
            create(second, "late")
            wait_until(lambda: ("shop_us", "shop.late") in followed(pipeline), "a new table is taken in")
            pipeline.wait_streaming()
            assert pipeline.app.sync("shop_eu").reader is reader, "the source without it streams on"
            database.execute("CREATE SCHEMA shop2")
            create(database, "shop2.more")
            wait_until(lambda: ("shop_eu", "shop.more") in followed(pipeline), "so is one of a new schema")
            database.execute("ALTER TABLE bare ADD COLUMN id bigint PRIMARY KEY")
            wait_until(lambda: ("shop_eu", "shop.bare") in followed(pipeline), "and one that has got a key")
        assert_equal(pipeline, both, "items", "items")
        assert_equal(pipeline, {"us": second}, "late", "late")
        assert_equal(pipeline, {"eu": database}, "more", "shop2.more")
        assert_equal(pipeline, {"us": second}, "others", "others")
        second.execute("DROP TABLE others")
        wait_until(lambda: ("shop_us", "shop.others") not in followed(pipeline), "one that is dropped is let go of")

    # What was seen is kept for whoever asks nobody; what changes meanwhile is in the lake after the next start.
    assert targets(patterns.known(loaded), "shop_eu") == {"shop.items", "shop.log", "shop.more", "shop.bare"}
    database.execute("UPDATE shop2.more SET n = -1")
    create(second, "night")
    with running(loaded, lake_folder) as pipeline:
        assert_equal(pipeline, {"us": second}, "night", "night")
        assert_equal(pipeline, {"eu": database}, "more", "shop2.more")
        assert_equal(pipeline, both, "items", "items")
