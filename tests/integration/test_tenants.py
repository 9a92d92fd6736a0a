"""`schemas`: a schema per tenant, whose tables are one target each, with the tenant as the sid of its rows."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from kuvasz.admin.commands import Selection
from kuvasz.config.model import Config
from kuvasz.config.sources import Source
from kuvasz.lake.copies.copy_commits import CopiedTable, CopyCommits
from kuvasz.ports import Receipt
from kuvasz.state.tables import State
from kuvasz.sync import watches
from kuvasz.sync.earlier_maps import EarlierMaps
from kuvasz.verbs import check, plan, verify
from tests.support import oracle
from tests.support.lake import LakeFolder, Pipeline
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.process import Process
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

ITEMS = "CREATE TABLE {}.items (id bigint PRIMARY KEY, kind text, n int, big text)"
SCHEMAS = "tenant_(.+)"


def run(database: Database, *statements: str) -> None:
    """In one transaction."""
    with database.connect() as session:
        for statement in statements:
            session.execute(statement)


def tenant(database: Database, schema: str, rows: range, *more: str) -> None:
    """Create a schema with its tables and some rows."""
    fill = f"""INSERT INTO {schema}.items SELECT i, 'kind ' || i % 7, i, repeat(md5(i::text), 3)
        FROM generate_series({rows.start}, {rows.stop - 1}) i"""
    run(database, f"CREATE SCHEMA {schema}", ITEMS.format(schema), fill,
        f"CREATE TABLE {schema}.people (id int PRIMARY KEY, name text)",
        f"INSERT INTO {schema}.people VALUES (1, '{schema}')", *more)  # fmt: skip


def mapped(database: Database, tables: dict[str, Any] | None = None, schemas: str = SCHEMAS) -> list[dict]:
    """The groups of a map."""
    urls = [{"url": database.url, "schemas": schemas}]
    return [{"database": "shop", "urls": urls, "tables": tables or {"items": None, "people": None}}]


def every(database: Database, table: str, sids: Iterable[str]) -> oracle.Rows:
    first, *others = (source_rows(database.url, f"tenant_{sid}.{table}", sid=sid) for sid in sids)
    for more in others:
        first = first + more
    return first


def check_equal(
    pipeline: Pipeline, database: Database, *sids: str, tables: Iterable[str] = ("items", "people")
) -> None:
    pipeline.wait_applied(database)
    for table in tables:
        pipeline.assert_equal(table, every(database, table, sids), key=("sid", "id"))


def of_sid(pipeline: Pipeline, table: str, sid: str) -> oracle.Rows:
    """The rows of one sid in the lake."""
    lake = pipeline.folder
    found = oracle.lake_rows_pyiceberg(lake.pyiceberg, f"shop.{table}", catalog=lake.catalog)
    place = found.columns.index("sid")
    mine = {row: count for row, count in found.rows.items() if row[place] == sid}
    columns = [*(name for name in found.columns if name != "sid"), "sid"]
    return oracle.Rows(columns=found.columns, rows=collections.Counter(mine)).select(columns)


def states(pipeline: Pipeline) -> dict[str, State]:
    """Name at the source -> state."""
    return {state.table: state.state for state in pipeline.app.states.snapshot()}


def tell(pipeline: Pipeline, verb: str, table: str | None, sid: str) -> list[str]:
    """Give a command as the HTTP server does; return the tables that it is for."""
    wanted = Selection(table=table, sid=sid)
    app = pipeline.app
    found = [one for one in app.states.snapshot() if wanted.has(one, app.sync(one.source).source.sid)]

    async def command() -> None:
        for one in found:
            getattr(app.sync(one.source).commands, verb)(one.key)

    pipeline.call(command())
    return [one.table for one in found]


def wait_confirmable(pipeline: Pipeline, database: Database, *sources: str) -> None:
    """Wait until nothing of what is committed now is held up."""
    ((now,),) = database.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
    of = pipeline.app.progress.confirmable
    wait_until(lambda: all(of(source) >= now for source in sources), "nothing is held up")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "_PARTITIONS_S", 0.1)


def wait_for(pipeline: Pipeline, count: int) -> None:
    wait_until(lambda: len(states(pipeline)) == count, lambda: f"{count} tables are known: {states(pipeline)}")
    pipeline.wait_streaming()


def test_tenants_are_copied_and_followed(database: Database, lake_folder: LakeFolder, quick: None) -> None:
    for sid, rows in (("acme", range(50)), ("beta", range(80)), ("77", range(20))):
        tenant(database, f"tenant_{sid}", rows)
    run(database, "CREATE TABLE public.items (id bigint PRIMARY KEY, odd xml)", "CREATE SCHEMA staging",
        ITEMS.format("staging"), "CREATE SCHEMA tenant_", ITEMS.format("tenant_"))  # fmt: skip
    config = lake_folder.config(mapped(database))
    with Pipeline(config, lake_folder) as pipeline:
        wait_for(pipeline, 6)
        check_equal(pipeline, database, "acme", "beta", "77")
        # One key in all of them, in one transaction; a row that moves; rows with a large value that is not sent.
        run(database, "UPDATE tenant_acme.items SET n = -1 WHERE id % 2 = 0",
            "DELETE FROM tenant_beta.items WHERE id = 1", "UPDATE tenant_beta.items SET n = 9 WHERE id = 2",
            "INSERT INTO tenant_77.items VALUES (1000, 'new', 1)",
            "INSERT INTO tenant_acme.items VALUES (1000, 'newer', 2)",
            "UPDATE tenant_77.people SET id = 5")  # fmt: skip
        check_equal(pipeline, database, "acme", "beta", "77")
        assert pipeline.app.lake.maintenance.run("shop.items", full=True).rewrites > 0
        check_equal(pipeline, database, "acme", "beta", "77")
        run(database, "TRUNCATE tenant_beta.items", "INSERT INTO tenant_beta.items VALUES (3, 'after', 1)",
            "UPDATE tenant_acme.items SET kind = 'k' WHERE id < 10")  # fmt: skip
        check_equal(pipeline, database, "acme", "beta", "77")
        assert database.execute("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == [
            (1,)
        ]
        assert database.execute("SELECT count(*) FROM pg_publication_tables") == [(6,)]
    # While nobody looks: changes, a newcomer, and one that goes.
    run(database, "UPDATE tenant_acme.items SET n = n + 1", "DROP SCHEMA tenant_77 CASCADE")
    tenant(database, "tenant_late", range(30))
    with Pipeline(config, lake_folder) as pipeline:
        wait_for(pipeline, 6)
        pipeline.wait_applied(database)
        left = of_sid(pipeline, "items", "77")
        assert len(left) == 21, "the rows of a schema that is gone stay"
        assert pipeline.app.sync("shop").source.tables[0].tenant == "acme"
        run(database, "UPDATE tenant_late.items SET n = 7", "DELETE FROM tenant_acme.items WHERE id = 3")
        pipeline.wait_applied(database)
        pipeline.assert_equal("items", every(database, "items", ("acme", "beta", "late")) + left, key=("sid", "id"))


def test_schemas_come_go_and_are_renamed(database: Database, lake_folder: LakeFolder, quick: None) -> None:
    tenant(database, "tenant_a", range(20))
    with Pipeline(lake_folder.config(mapped(database)), lake_folder) as pipeline:
        wait_for(pipeline, 2)
        tenant(database, "tenant_b", range(30))
        run(database, "UPDATE tenant_b.items SET n = n + 1", "UPDATE tenant_a.items SET n = 3")
        wait_for(pipeline, 4)
        run(database, "UPDATE tenant_b.items SET n = 5 WHERE id < 9", "DELETE FROM tenant_b.people")
        check_equal(pipeline, database, "a", "b")
        # Another name is another sid: the rows of the earlier one stay, as those of a schema that is dropped do.
        run(database, "ALTER SCHEMA tenant_b RENAME TO tenant_c")
        wait_until(
            lambda: "tenant_c.items" in states(pipeline) and "tenant_b.items" not in states(pipeline), "renamed"
        )
        wait_for(pipeline, 4)
        run(database, "UPDATE tenant_c.items SET n = 6 WHERE id = 1", "INSERT INTO tenant_c.people VALUES (2, 'c')")
        pipeline.wait_applied(database)
        earlier = of_sid(pipeline, "items", "b")
        assert len(earlier) == 30
        pipeline.assert_equal("items", every(database, "items", "ac") + earlier, key=("sid", "id"))
        # Dropped and created again, it is copied in the place of what it was; so is one that comes back.
        run(database, "DROP SCHEMA tenant_c CASCADE")
        tenant(database, "tenant_c", range(100, 110))
        tenant(database, "tenant_b", range(5))
        wait_for(pipeline, 6)
        run(database, "UPDATE tenant_c.items SET n = 8", "UPDATE tenant_b.items SET n = 8")
        check_equal(pipeline, database, "a", "b", "c")
        # A table that a tenant does not have yet, and one that moves to another tenant.
        run(database, "CREATE SCHEMA tenant_d", "ALTER TABLE tenant_c.people SET SCHEMA tenant_d")
        wait_until(lambda: "tenant_d.people" in states(pipeline), "moved")
        wait_for(pipeline, 6)
        run(database, "INSERT INTO tenant_d.people VALUES (3, 'd')")
        pipeline.wait_applied(database)
        found = of_sid(pipeline, "people", "d")
        assert found.rows == source_rows(database.url, "tenant_d.people", sid="d").select(found.columns).rows


def test_sids_that_collide_are_refused(database: Database, lake_folder: LakeFolder, quick: None) -> None:
    tenant(database, "tenant_a", range(20))
    tenant(database, "tenant_eu", range(7))
    run(database, ITEMS.format("public"), "INSERT INTO public.items VALUES (1, 'of the other source', 1)")
    plain = [{"database": "store", "urls": [{"url": database.url, "sid": "eu"}], "tables": {"items": None}}]
    config = lake_folder.config([*mapped(database, {"items": None}, "(?:tenant|t)_(.+)"), *plain])
    errors = (
        "source shop, table tenant_eu.items: its rows would have the sid 'eu' in shop.items, as those of source"
        " store_eu have",
        "source shop, table t_a.items: its rows would have the sid 'a' in shop.items, as those of tenant_a.items"
        " have",
    )

    def are_right(pipeline: Pipeline) -> bool:
        found = states(pipeline)
        return [found.get(name) for name in ("tenant_a.items", "tenant_eu.items", "public.items", "t_a.items")] == [
            State.STREAMING, State.ERROR, State.STREAMING, State.ERROR,
        ]  # fmt: skip

    for is_again in (False, True):
        with Pipeline(config, lake_folder) as pipeline:
            if not is_again:
                wait_until(lambda: "tenant_eu.items" in states(pipeline), "it is known")
                run(database, "CREATE SCHEMA t_a", ITEMS.format("t_a"))
            wait_until(lambda: are_right(pipeline), lambda: f"refused: {states(pipeline)} {pipeline.errors()}")
            told = "".join(pipeline.errors())
            assert all(error in told for error in errors), told
            run(database, "INSERT INTO t_a.items VALUES (1, 'no', 1) ON CONFLICT (id) DO NOTHING",
                "UPDATE tenant_a.items SET n = n + 1", "UPDATE tenant_eu.items SET n = 0",
                "UPDATE public.items SET n = n + 1")  # fmt: skip
            wait_confirmable(pipeline, database, "shop", "store_eu")
            expected = every(database, "items", "a") + source_rows(database.url, "public.items", sid="eu")
            pipeline.assert_equal("items", expected, key=("sid", "id"))
            if is_again:  # whoever was first is gone: the other one has the sid
                run(database, "DROP SCHEMA tenant_a CASCADE")
                wait_until(lambda: "tenant_a.items" not in states(pipeline), "it is gone")
                tell(pipeline, "retry", "t_a.items", "a")
                wait_until(lambda: states(pipeline)["t_a.items"] is State.STREAMING, "it is taken")
                expected = source_rows(database.url, "t_a.items", sid="a") + source_rows(
                    database.url, "public.items", sid="eu"
                )
                pipeline.assert_equal("items", expected, key=("sid", "id"))


@pytest.mark.parametrize("is_beside", [False, True], ids=["while it was unmapped", "while it was refused"])
def test_a_tenant_whose_rows_a_source_replaced_meanwhile_is_copied_again(
    database: Database, lake_folder: LakeFolder, quick: None, is_beside: bool
) -> None:
    """Its slot was there still, and its position that of rows which were gone."""
    for sid in "ab":
        tenant(database, f"tenant_{sid}", range(20))
    tenants = mapped(database, {"items": None})
    run(database, ITEMS.format("public"), "INSERT INTO public.items VALUES (1, 'of the heir', 1)")
    if is_beside:  # one of which kuvasz takes no table out, which would show later
        run(database, "CREATE PUBLICATION kuvasz_shop FOR ALL TABLES WITH (publish_via_partition_root)")
    heir = [
        {
            "database": "store",
            "urls": [{"url": database.url, "sid": "a"}],
            "tables": {"items": {"target": "shop.items"}},
        }
    ]
    with Pipeline(lake_folder.config(tenants), lake_folder) as pipeline:
        wait_for(pipeline, 2)
        check_equal(pipeline, database, "a", "b", tables=["items"])
    with Pipeline(lake_folder.config([*tenants, *heir] if is_beside else heir), lake_folder) as pipeline:
        wait_until(lambda: states(pipeline).get("public.items") is State.STREAMING, "the heir streams")
        wait_confirmable(pipeline, database, "store_a")
        assert (states(pipeline).get("tenant_a.items") is State.ERROR) is is_beside
        expected = every(database, "items", "b") + source_rows(database.url, "public.items", sid="a")
        pipeline.assert_equal("items", expected, key=("sid", "id"))
    copied = "INSERT INTO tenant_b.items VALUES (100, 'meanwhile', 1)"
    run(database, copied, copied.replace("_b", "_a"))
    with Pipeline(lake_folder.config(tenants), lake_folder) as pipeline:
        wait_for(pipeline, 2)
        check_equal(pipeline, database, "a", "b", tables=["items"])


def tenants_and_heir(database: Database) -> tuple[list[dict], list[dict]]:
    """Make two tenants, and a table whose rows have the sid of the first one; return the groups of a map of each."""
    for sid in "ab":
        tenant(database, f"tenant_{sid}", range(20))
    run(database, ITEMS.format("public"), "INSERT INTO public.items VALUES (1, 'of the heir', 1), (50, 'more', 2)")
    urls = [{"url": database.url, "sid": "a"}]
    heir = [{"database": "store", "urls": urls, "tables": {"items": {"target": "shop.items"}}}]
    return mapped(database, {"items": None}), heir


def reload(pipeline: Pipeline, config: Config) -> None:
    """Take another map over, and return when it is in use."""

    async def take_over() -> None:
        pipeline.app.take_over(pipeline.app.difference(config))

    pipeline.call(take_over())
    wait_until(lambda: not pipeline.app._sources.is_changing, "the map is in use")


def test_a_copy_of_a_tenant_that_lands_late_is_not_behind_the_source_that_has_its_sid(
    database: Database, lake_folder: LakeFolder, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its position would be there beside the other one's rows: when it comes back, nothing would be copied again."""
    tenants, heir = tenants_and_heir(database)
    is_read, has_begun, let_go, commit = threading.Event(), threading.Event(), EarlierMaps.let_go, CopyCommits.commit

    def begun(maps: EarlierMaps, sources: Sequence[Source], **options: bool) -> None:
        let_go(maps, sources, **options)
        if any(source.name == "store_a" for source in sources):
            has_begun.set()

    def late(commits: CopyCommits, copied: CopiedTable) -> Receipt:
        if copied.source.endswith("@a") and not is_read.is_set():
            is_read.set()
            has_begun.wait(5)  # it is waited for where all is well
        return commit(commits, copied)

    monkeypatch.setattr(EarlierMaps, "let_go", begun)
    monkeypatch.setattr(CopyCommits, "commit", late)
    with Pipeline(lake_folder.config(tenants), lake_folder) as pipeline:
        wait_until(is_read.is_set, "a copy is about to be committed")
        reload(pipeline, lake_folder.config(heir))
        wait_until(lambda: states(pipeline).get("public.items") is State.STREAMING, "the heir streams")
        wait_confirmable(pipeline, database, "store_a")
        assert of_sid(pipeline, "items", "a").rows == source_rows(database.url, "public.items", sid="a").rows
        reload(pipeline, lake_folder.config(tenants))
        wait_for(pipeline, 2)
        check_equal(pipeline, database, "a", "b", tables=["items"])


def test_a_tenant_whose_rows_a_source_replaced_while_nobody_could_look_at_it_is_copied_again(
    database: Database, lake_folder: LakeFolder, quick: None
) -> None:
    """Whoever replicates it has not refused it, nor has it left the map: who takes its rows says so."""
    tenants, heir = tenants_and_heir(database)
    (away,) = mapped(database, {"items": None})
    away["urls"] = [{"url": "postgresql://127.0.0.1:1/away", "schemas": SCHEMAS}]
    with Pipeline(lake_folder.config(tenants), lake_folder) as pipeline:
        wait_for(pipeline, 2)
        check_equal(pipeline, database, "a", "b", tables=["items"])
    with Pipeline(lake_folder.config([away, *heir]), lake_folder) as pipeline:
        wait_until(lambda: states(pipeline).get("public.items") is State.STREAMING, "the heir streams")
        wait_confirmable(pipeline, database, "store_a")
    with Pipeline(lake_folder.config(tenants), lake_folder) as pipeline:
        wait_for(pipeline, 2)
        check_equal(pipeline, database, "a", "b", tables=["items"])


def test_a_source_whose_rows_a_tenant_replaced_while_it_was_not_in_the_map_comes_over_that(
    database: Database, lake_folder: LakeFolder, quick: None
) -> None:
    """The tenant's source was there all the time, and begins nothing when another one leaves the map."""
    tenants, heir = tenants_and_heir(database)
    with Pipeline(lake_folder.config([*tenants, *heir]), lake_folder) as pipeline:
        wait_until(lambda: states(pipeline).get("public.items") is State.STREAMING, "the source of the sid streams")
        wait_until(lambda: states(pipeline).get("tenant_a.items") is State.ERROR, "the tenant is refused")
        reload(pipeline, lake_folder.config(tenants))
        tell(pipeline, "retry", "tenant_a.items", "a")
        wait_for(pipeline, 2)
        check_equal(pipeline, database, "a", "b", tables=["items"])
        run(database, "ALTER SCHEMA tenant_a RENAME TO other")
        wait_until(lambda: "tenant_a.items" not in states(pipeline), "the tenant is gone")
        reload(pipeline, lake_folder.config([*tenants, *heir]))
        wait_for(pipeline, 2)
        pipeline.wait_applied(database)
        expected = every(database, "items", "b") + source_rows(database.url, "public.items", sid="a")
        pipeline.assert_equal("items", expected, key=("sid", "id"))


def test_a_tenant_that_streams_keeps_its_sid_from_a_source_that_comes(
    database: Database, lake_folder: LakeFolder, quick: None
) -> None:
    """The source waits until the sid is free, and nothing of the tenant is forgotten meanwhile."""
    tenants, heir = tenants_and_heir(database)
    with Pipeline(lake_folder.config(tenants), lake_folder) as pipeline:
        wait_for(pipeline, 2)
        check_equal(pipeline, database, "a", "b", tables=["items"])
        before = dict(pipeline.app.lake.positions("shop.items"))
        reload(pipeline, lake_folder.config([*tenants, *heir]))
        wait_until(lambda: states(pipeline).get("public.items") is State.ERROR, "the source is refused")
        assert pipeline.app.lake.positions("shop.items").keys() == before.keys()
        assert states(pipeline)["tenant_a.items"] is State.STREAMING
        run(database, "UPDATE tenant_a.items SET n = 7 WHERE id < 5", "DROP SCHEMA tenant_b CASCADE",
            "ALTER SCHEMA tenant_a RENAME TO tenant_c")  # fmt: skip
        wait_until(lambda: "tenant_a.items" not in states(pipeline), "the tenant is gone")
        tell(pipeline, "retry", "public.items", "a")
        wait_until(lambda: states(pipeline)["public.items"] is State.STREAMING, "the source has the sid")
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        for sid, table in (("a", "public.items"), ("c", "tenant_c.items")):
            assert of_sid(pipeline, "items", sid).rows == source_rows(database.url, table, sid=sid).rows


def test_commands_and_verbs_by_sid(database: Database, lake_folder: LakeFolder, quick: None) -> None:
    for sid in "abc":
        tenant(database, f"tenant_{sid}", range(30))
    config = lake_folder.config(mapped(database))
    (planned,) = plan.plans(config)
    assert [(one.table, one.action) for one in planned.tables] == [
        (f"tenant_{sid}.{table}", "copy") for table in ("items", "people") for sid in "abc"
    ]
    assert not [one for one in check.findings(config) if not one.ok and one.is_blocking and one.check != "tried"]
    with Pipeline(config, lake_folder) as pipeline:
        wait_for(pipeline, 6)
        assert tell(pipeline, "pause", "items", "b") == ["tenant_b.items"]
        run(
            database,
            *(f"UPDATE tenant_{sid}.{table} SET id = id + 1000" for sid in "abc" for table in ("items", "people")),
        )
        wait_until(
            lambda: (
                of_sid(pipeline, "people", "b").rows == source_rows(database.url, "tenant_b.people", sid="b").rows
            ),
            "its other table goes on",
        )
        wait_until(lambda: min(row[0] for row in of_sid(pipeline, "items", "c").rows) == 1000, "so do the others")
        assert {row[0] for row in of_sid(pipeline, "items", "b").rows} == set(range(30))
        assert tell(pipeline, "resume", "items", "b") == ["tenant_b.items"]
        pipeline.wait_streaming()
        check_equal(pipeline, database, "a", "b", "c")
        # Rows that someone takes away are found, and mended, with the tenant they are of.
        lake_folder.session.sql(f"DELETE FROM {lake_folder.catalog}.shop.items WHERE id = 1001 AND sid = 'c'")
        lake_folder.session.sql(f"DELETE FROM {lake_folder.catalog}.shop.items WHERE id = 1002 AND sid = 'a'")
        found = verify.reports(config, session=lake_folder.session, sid="c", is_fixing=True)
        assert [(one.table, one.missing, one.mended, one.error) for one in found] == [
            ("tenant_c.items", 1, 1, ""), ("tenant_c.people", 0, 0, "")
        ]  # fmt: skip
        assert sorted(tell(pipeline, "resync", None, "a")) == ["tenant_a.items", "tenant_a.people"]
        wait_until(
            lambda: all(one.copies == 2 for one in pipeline.app.states.snapshot() if "tenant_a" in one.table), "a"
        )
        pipeline.wait_streaming()
        check_equal(pipeline, database, "a", "b", "c")
        found = verify.reports(config, session=lake_folder.session)
        assert [(one.table, one.differences, one.error) for one in found] == [
            (f"tenant_{sid}.{table}", 0, "") for table in ("items", "people") for sid in "abc"
        ]
    (planned,) = plan.plans(config)
    assert {one.action for one in planned.tables} == {"follow"}
    assert not planned.is_due


# Slow: test_members.py has every type of as many tables that lie in one.
@pytest.mark.slow
def test_every_type_and_another_start(database: Database, lake_folder: LakeFolder, quick: None) -> None:
    types = ("append", "changelog", "history")
    for sid in "abc":
        tables = (f"CREATE TABLE tenant_{sid}.{name} (id int PRIMARY KEY, n int, big text)" for name in types)
        rows = (f"INSERT INTO tenant_{sid}.{name} SELECT i, i, 'b' FROM generate_series(1, 9) i" for name in types)
        tenant(database, f"tenant_{sid}", range(3), *tables, *rows)
    config = lake_folder.config(mapped(database, {name: {"type": name} for name in types}))

    def current(table: str) -> list[tuple]:
        where = "kvsz_end > TIMESTAMP '9000-01-01 00:00:00'" if table == "history" else "true"
        newest = {"append": "max(n)", "changelog": "max_by(n, struct(_lsn, _ordinal))", "history": "max(n)"}[table]
        text = f"SELECT sid, id, {newest} FROM {lake_folder.catalog}.shop.{table} WHERE {where} GROUP BY sid, id"
        lake_folder.session.sql(f"REFRESH TABLE {lake_folder.catalog}.shop.{table}")
        return sorted(tuple(row) for row in lake_folder.session.sql(text).collect())

    def expected(table: str) -> list[tuple]:
        return sorted(
            (sid, *row) for sid in "abc" for row in database.execute(f"SELECT id, n FROM tenant_{sid}.{table}")
        )

    for is_again in (False, True):
        with Pipeline(config, lake_folder) as pipeline:
            wait_for(pipeline, 9)
            change = [
                f"UPDATE tenant_{sid}.{name} SET n = n + id WHERE id < {ord(sid) - 93}"
                for sid in "abc"
                for name in types
            ]
            run(database, *change)
            run(database, *change)
            pipeline.wait_applied(database)
            assert [current(name) for name in types] == [expected(name) for name in types]
            if is_again:
                run(database, "TRUNCATE tenant_b.history")
                run(database, "INSERT INTO tenant_b.history VALUES (1, 5)", "UPDATE tenant_a.history SET n = 0")
                pipeline.wait_applied(database)
                assert current("history") == expected("history")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_in_the_copies(database: Database, new_process: Callable[..., Process]) -> None:
    for sid in "abcd":
        tenant(database, f"tenant_{sid}", range(50))
    process = new_process(mapped(database))
    process.start(failpoints="copy_range_done:kill:4")
    process.wait_killed()
    run(database, *(f"UPDATE tenant_{sid}.items SET n = -1 WHERE id % 3 = 0" for sid in "abcd"),
        "DELETE FROM tenant_b.items WHERE id = 7")  # fmt: skip
    process.start(failpoints="after_commit:kill:2")
    process.wait_event("copied")
    tenant(database, "tenant_e", range(9), "UPDATE tenant_c.items SET n = -2 WHERE id < 9")
    run(database, "UPDATE tenant_e.items SET n = 4", "UPDATE tenant_a.people SET name = 'x'")
    process.wait_killed()
    process.start("--until-caught-up")
    assert process.wait() == 0, process.report()
    process.assert_equal("items", every(database, "items", "abcde"))
    process.assert_equal("people", every(database, "people", "abcde"))
