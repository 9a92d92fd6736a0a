"""`initial: skip`: a table is followed from where it is taken in, and what it had before comes when a person asks.

`initial: from_lsn`: it is followed from an earlier place, as long as nothing can be missing from there on.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kuvasz import lsn
from kuvasz.source.check import slot_age
from kuvasz.state.tables import State
from tests.support import model, oracle
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.observer import Observer, as_rows
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.verify_bench import Bench
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

TYPES = ("clone", "append", "history", "changelog")
KEYS = dict.fromkeys(TYPES, ("id",))


def tables(**more: Any) -> dict[str, Any]:
    return {name: {"type": name, "initial": "skip", **more} for name in TYPES}


def change(database: Database, first: int) -> None:
    """Change rows that the lake lacks, and others, in every way."""
    for name in TYPES:
        database.execute(f"UPDATE {name} SET n = n + 1 WHERE id BETWEEN {first} AND {first + 3}")
        database.execute(f"DELETE FROM {name} WHERE id IN ({first + 1}, {first + 4})")
        database.execute(f"UPDATE {name} SET id = id + 1000 WHERE id IN ({first + 2}, {first + 5})")
        database.execute(f"INSERT INTO {name} VALUES ({first + 2000}, 7, 'new'), ({first + 2001}, 8, 'new')")
        with database.connect() as session:
            session.execute(f"INSERT INTO {name} VALUES ({first + 4}, 9, 'again')")
            session.execute(f"UPDATE {name} SET n = 10 WHERE id = {first + 4}")
            session.execute(f"DELETE FROM {name} WHERE id = {first + 2001}")


def expected(observer: Observer, name: str, at: int) -> oracle.Rows:
    """What a table has that was taken in at an LSN."""
    _, _, after = observer.split(name, at)
    columns = observer.columns[name]
    if name == "append":
        rows: Any = model.append([], after)
    elif name == "history":
        rows = model.history([], after, ("id",))
    elif name == "changelog":
        rows = model.changelog([], after, ("id",), columns=columns, copied_lsn=at)
    else:
        known: dict[int, Mapping[str, Any]] = {}
        for event in (event for one in after for event in one.events):
            if event.old is not None:
                known.pop(event.old["id"], None)
            if event.new is not None:
                known[event.new["id"]] = event.new
        rows = known.values()
    return as_rows(rows, columns, None)


def test_what_comes_is_there_and_what_was_is_not_until_a_person_asks(
    database: Database, lake_folder: LakeFolder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for name in TYPES:
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int, body text)")
    observer = Observer(database, KEYS)
    for name in TYPES:
        database.execute(f"INSERT INTO {name} SELECT i, 0, 'old' FROM generate_series(1, 100) i")
    config = lake_folder.config(group({None: database}, tables()))
    bench = Bench(config, lake_folder)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        begun = {name: pipeline.app.lake.positions(f"shop.{name}")["shop"].lsn for name in TYPES}
        assert all(not pipeline.rows(name) for name in TYPES)
        change(database, 10)
        pipeline.wait_applied(database)
        for name in TYPES:
            pipeline.assert_equal(name, expected(observer, name, begun[name]))
    assert len([one for one in caplog.records if getattr(one, "event", "") == "copy_skipped"]) == len(TYPES)
    change(database, 30)
    shutil.rmtree(lake_folder.folder / "state")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        change(database, 50)
        pipeline.wait_applied(database)
        for name in TYPES:
            pipeline.assert_equal(name, expected(observer, name, begun[name]))
        left_out = bench.verify(table="clone")
        assert [("initial: skip" in report.skipped, report.differences) for report in left_out] == [(True, 0)]
        assert pipeline.app.lake.notes.skipped("shop.clone", "shop")
        pipeline.tell("resync", "shop.clone", "shop")
        pipeline.tell("resync", "shop.history", "shop")
        wait_until(lambda: copies(pipeline, "clone", "history") == {1}, lambda: f"copied: {pipeline.errors()}")
        pipeline.wait_streaming()
        change(database, 70)
        pipeline.wait_applied(database)
        pipeline.assert_equal("clone", source_rows(database.url, "clone"))
        assert not pipeline.app.lake.notes.skipped("shop.clone", "shop")
        whole = bench.verify(table="clone") + bench.verify(table="history")
        assert [(report.skipped, report.differences) for report in whole] == [("", 0)] * 2


def copies(pipeline: Pipeline, *names: str) -> set[int]:
    return {one.copies for one in pipeline.app.states.snapshot() if one.target.removeprefix("shop.") in names}


def test_a_slot_that_is_lost_and_a_value_that_was_not_sent_have_all_of_it_copied(
    database: Database, lake_folder: LakeFolder
) -> None:
    big = "repeat('x', 3000) || i"
    for name in ("clone", "append"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int, body text)")
        database.execute(f"ALTER TABLE {name} ALTER body SET STORAGE EXTERNAL")
        database.execute(f"INSERT INTO {name} SELECT i, 0, {big} FROM generate_series(1, 50) i")
    database.execute("ALTER TABLE append REPLICA IDENTITY FULL")
    database.execute("CREATE TABLE soft (id int PRIMARY KEY, n int)")
    database.execute("INSERT INTO soft SELECT i, 0 FROM generate_series(1, 10) i")
    mapped = {name: entry for name, entry in tables().items() if name in {"clone", "append"}}
    mapped["soft"] = {"deletes": "soft", "initial": "skip"}
    document = group({None: database}, mapped)
    document[0]["on_slot_lost"] = "resync"
    config = lake_folder.config(document)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE append SET n = 1 WHERE id < 4")
        pipeline.wait_applied(database)
        rows = source_rows(database.url, "append", where="id < 4")
        pipeline.assert_equal("append", rows)
        database.execute("DELETE FROM soft WHERE id < 4")
        database.execute("UPDATE soft SET n = 1 WHERE id = 5")
        pipeline.wait_applied(database)
        assert pipeline.rows("soft") == [(5, 1, None)]
        database.execute("UPDATE clone SET n = 1 WHERE id < 4")
        pipeline.wait_state("shop", "shop.clone", State.ERROR)
        (error,) = pipeline.errors()
        assert "the lake has no earlier version of them" in error
        assert "kuvasz resync" in error
        pipeline.tell("resync", "shop.clone", "shop")
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        pipeline.assert_equal("clone", source_rows(database.url, "clone"))
    database.execute("SELECT pg_drop_replication_slot('kuvasz_shop')")
    database.execute("UPDATE clone SET n = 2 WHERE id < 10")
    with Pipeline(config, lake_folder) as pipeline:
        wait_until(lambda: copies(pipeline, "clone", "append") == {1}, lambda: f"copied: {pipeline.errors()}")
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        for name in ("clone", "append"):
            pipeline.assert_equal(name, source_rows(database.url, name))


def prepared(database: Database, *names: str, others: Callable[[], None] = lambda: None) -> None:
    """Make publication and slot before kuvasz comes, as who moves from another tool does.

    Args:
        database: Has the tables.
        names: The tables.
        others: Has other slots of the server move on.
    """
    database.execute(f"CREATE PUBLICATION kuvasz_shop FOR TABLE {', '.join(names)}"
                     " WITH (publish_via_partition_root = true)")  # fmt: skip

    def are_others_younger() -> bool:
        database.execute("CHECKPOINT")  # writes down which transactions run
        others()
        ((found,),) = database.execute(YOUNGER)
        return found is not False

    wait_until(are_others_younger, "no slot is older than the publication")
    database.execute("SELECT pg_create_logical_replication_slot('kuvasz_shop', 'pgoutput')")


#: As in docs/tables.md.
YOUNGER = (
    "SELECT bool_and(age(s.catalog_xmin) < age(p.xmin)) FROM pg_publication p, pg_replication_slots s"
    " WHERE p.pubname = 'kuvasz_shop' AND s.catalog_xmin IS NOT NULL"
)


def wal_end(database: Database) -> str:
    ((found,),) = database.execute("SELECT pg_current_wal_insert_lsn()::text")
    database.execute("SELECT pg_logical_emit_message(true, 'on', 'ward')")
    return found


def test_a_table_is_followed_from_an_earlier_lsn_that_its_slot_has(
    database: Database, lake_folder: LakeFolder
) -> None:
    for name in TYPES:
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int, body text)")
    database.execute("CREATE TABLE whole (id int PRIMARY KEY)")
    observer = Observer(database, KEYS)
    for name in TYPES:
        database.execute(f"INSERT INTO {name} SELECT i, 0, 'old' FROM generate_series(1, 100) i")
    prepared(database, *TYPES, "whole", others=observer.read)
    change(database, 10)
    begin = wal_end(database)
    change(database, 30)
    entries = {name: {"type": name, "initial": "from_lsn", "from_lsn": {"shop": begin}} for name in TYPES}
    config = lake_folder.config(group({None: database}, {**entries, "whole": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        change(database, 50)
        pipeline.wait_applied(database)
        for name in TYPES:
            pipeline.assert_equal(name, expected(observer, name, lsn.parse(begin)))
    change(database, 70)
    database.execute("INSERT INTO whole VALUES (1)")
    shutil.rmtree(lake_folder.folder / "state")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        for name in TYPES:
            pipeline.assert_equal(name, expected(observer, name, lsn.parse(begin)))
        pipeline.tell("resync", "shop.clone", "shop")
        wait_until(lambda: copies(pipeline, "clone") == {1}, lambda: f"copied: {pipeline.errors()}")
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        pipeline.assert_equal("clone", source_rows(database.url, "clone"))


def test_an_lsn_from_which_changes_may_be_missing_is_refused(database: Database, lake_folder: LakeFolder) -> None:
    for name in ("gone", "coming", "altered", "late", "fine"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)")
    early = wal_end(database)
    prepared(database, "gone", "coming", "altered", "fine")
    begin = wal_end(database)
    database.execute("ALTER TABLE altered ALTER n TYPE bigint")
    for name in ("gone", "coming", "altered", "late", "fine"):
        database.execute(f"INSERT INTO {name} VALUES (1, 1)")

    def entry(at: str) -> dict[str, Any]:
        return {"initial": "from_lsn", "from_lsn": {"shop": at}}

    mapped = {"gone": entry(early), "coming": entry("FFFFF/0"), "altered": entry(begin), "late": entry(begin),
              "fine": entry(begin)}  # fmt: skip
    config = lake_folder.config(group({None: database}, mapped))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_state("shop", "shop.fine", State.STREAMING)
        for name in ("gone", "coming", "altered", "late"):
            pipeline.wait_state("shop", f"shop.{name}", State.ERROR)
        wait_until(lambda: pipeline.rows("fine") == [(1, 1)], "what came since is there")
        told = {one.target: str(one.error) for one in pipeline.app.states.snapshot() if one.error}
        assert "slot kuvasz_shop stands at" in told["shop.gone"]
        assert "the source's WAL ends at" in told["shop.coming"]
        assert "its columns, table may have been altered" in told["shop.altered"]
        assert "its publication may have been altered" in told["shop.late"]
        assert all("`initial: skip` follows" in told[f"shop.{one}"] for one in ("gone", "altered", "late"))
    # As the hints say.
    mapped = {name: {"initial": "skip"} for name in mapped}
    with Pipeline(lake_folder.config(group({None: database}, mapped)), lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("INSERT INTO gone VALUES (2, 2)")
        pipeline.wait_applied(database)
        assert (pipeline.rows("gone"), pipeline.rows("fine")) == ([(2, 2)], [(1, 1)])


#: What makes other values of rows that a column of a type has, wherever below it.
RESTS = {
    "an enum": ("mood", "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'"),
    "an array of it": ("mood[]", "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'"),
    "a domain over it": ("mine", "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'"),
    "a composite type": ("pair", "ALTER TYPE pair ADD ATTRIBUTE c int"),
    "one with less": ("pair[]", "ALTER TYPE pair DROP ATTRIBUTE b"),
}


@pytest.mark.parametrize("kind", RESTS)
def test_what_a_type_rests_on_is_as_it_was_where_a_slot_stands(database: Database, kind: str) -> None:
    name, change_of_type = RESTS[kind]
    database.execute("CREATE TYPE mood AS ENUM ('sad', 'glad')")
    database.execute("CREATE DOMAIN mine AS mood")
    database.execute("CREATE TYPE pair AS (a int, b int)")
    database.execute(f"CREATE TABLE rests (id int PRIMARY KEY, v {name})")
    prepared(database, "rests")
    ((oid,),) = database.execute("SELECT 'rests'::regclass::oid::bigint")

    def altered() -> tuple[str, ...]:
        with database.connect() as connection:
            found = slot_age.load(connection, "kuvasz_shop", "kuvasz_shop", oid)
        assert found is not None
        return found.altered

    assert altered() == ()
    database.execute(change_of_type)
    assert altered() == ("types",)
