"""A real Trino reads the lake as PostgreSQL has it, and has the answers that docs/about-the-lake.md asks for.

`make trino` fetches the server; without it the tests are skipped.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kuvasz.lake.about import about as lake_about
from kuvasz.state.tables import State
from kuvasz.verbs import asof
from tests.support import oracle
from tests.support.lake import Pipeline, group
from tests.support.observer import Observer
from tests.support.postgres import Database
from tests.support.served import ServedPipeline
from tests.support.stores import PostgresCatalogFolder
from tests.support.trino import Trino, needs_trino, trino_of

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow, needs_trino]

PAGE = (Path(__file__).parents[2] / "docs" / "about-the-lake.md").read_text("utf-8")

#: The page's own words on what Trino wants: in the place of what, and what.
DIALECT = {
    "percentile_cont(0.95) WITHIN GROUP (ORDER BY interval_seconds)": "approx_percentile(interval_seconds, 0.95)",
    "positions['shop_eu']": "element_at(positions, 'shop_eu')",
}
#: Columns that are no exact answers: sums of floats, and a percentile that is worked out or estimated.
ABOUT = {"writing", "waiting", "committing", "interval_p95"}

PLAIN = """
    id bigint PRIMARY KEY, n int, name text, price numeric(12,2), exact numeric, at timestamptz, day date, local
    timestamp, flag bool, ratio real, wide float8, code uuid
"""
PLAIN_ROWS = """
    i, i % 7, 'row ' || i, i * 1.25, i / 7.0, timestamptz '2026-11-22 10:00:00.12345+00' + i * interval '1 h',
    date '0001-01-01' + i * 3000, timestamp '9999-12-31 23:59:59.999999' - i * interval '1 year', i % 2 = 0,
    (CASE WHEN i % 5 = 0 THEN 'NaN' ELSE i * 0.1 END)::real, CASE WHEN i % 5 = 1 THEN '-Infinity' ELSE i * 0.1 END,
    md5(i::text)::uuid
"""
MORE = "body bytea, numbers int[], words text[]"
MORE_ROWS = """
    decode(md5(i::text), 'hex'),
    CASE WHEN i % 3 = 0 THEN NULL WHEN i % 3 = 1 THEN '{}' ELSE ARRAY[i, NULL] END, ARRAY['ž', NULL, 'a,b']
"""
TABLES: dict[str, dict[str, Any] | None] = {
    "items": None, "versions": {"type": "history"}, "changes": {"type": "changelog"},
}  # fmt: skip


def create(database: Database) -> None:
    for name in TABLES:
        database.execute(f"CREATE TABLE {name} ({PLAIN}{f', {MORE}' if name == 'items' else ''})")


def fill(database: Database, first: int, last: int) -> None:
    for name in TABLES:
        values = PLAIN_ROWS + (f", {MORE_ROWS}" if name == "items" else "")
        database.execute(f"INSERT INTO {name} SELECT {values} FROM generate_series({first}, {last}) i")


@pytest.fixture
def lake(postgres_catalog: PostgresCatalogFolder) -> PostgresCatalogFolder:
    """A lake of format 2: this Trino knows no deletion vectors."""
    postgres_catalog.format_version = 2
    return postgres_catalog


def change(database: Database) -> None:
    fill(database, 101, 120)
    for name in TABLES:
        database.execute(f"UPDATE {name} SET n = n + 1, name = NULL WHERE id % 3 = 0")
        database.execute(f"UPDATE {name} SET id = id + 1000 WHERE id IN (5, 105)")
        database.execute(f"DELETE FROM {name} WHERE id % 10 = 0")


def test_tables_are_read_as_the_source_has_them_also_as_of_a_snapshot_and_at_a_cut(
    database: Database, lake: PostgresCatalogFolder
) -> None:
    create(database)
    observer = Observer(database, {"versions": ("id",), "changes": ("id",)})
    fill(database, 1, 100)
    config = lake.config(group({"eu": database}, TABLES))
    with Pipeline(config, lake) as pipeline:
        pipeline.wait_streaming()
        copied = {name: position.lsn for name in TABLES
                  for position in pipeline.app.lake.positions(f"shop.{name}").values()}  # fmt: skip
        change(database)
        pipeline.wait_applied(database)
        sources = [sync.source.name for sync in pipeline.app.sources]
        pipeline.call(pipeline.app.cuts.make("cut_then", sources, 3600.0))
        then = {name: oracle.lake_rows_pyiceberg(lake.pyiceberg, f"shop.{name}", catalog=lake.catalog)
                for name in TABLES}  # fmt: skip
        ((at,),) = database.execute("SELECT pg_current_wal_insert_lsn()::text")
        database.execute("UPDATE items SET n = -1 WHERE id % 2 = 0")
        database.execute("DELETE FROM versions WHERE id < 50")
        pipeline.wait_applied(database)
    three = f"{lake.catalog}.shop.three"
    lake.session.sql(
        f"CREATE TABLE {three} (id bigint) USING iceberg"
        " TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
    )
    lake.session.sql(f"INSERT INTO {three} SELECT id FROM range(10)")
    lake.session.sql(f"DELETE FROM {three} WHERE id = 3")
    with trino_of(lake) as trino:
        with pytest.raises(AssertionError, match="PUFFIN"):  # it says so, and leaves no deletion out
            read(trino, "shop.three")
        oracle.assert_equal(oracle.source_rows(database.url, "items", sid="eu"), read(trino, "shop.items"))
        for name, kind in (("versions", "history"), ("changes", "changelog")):
            expected = observer.expected(name, kind, copied[name], sid="eu")
            oracle.assert_equal(expected, read(trino, f"shop.{name}"))
        deletes = trino.rows("""SELECT count(*) FROM lake.shop."items$files" WHERE content = 1""")
        assert deletes.rows != {(0,): 1}, "position deletes were read"
        for name in TABLES:
            oracle.assert_equal(then[name], read(trino, f"shop.{name} FOR VERSION AS OF 'cut_then'"))
        _, moments = asof.tables(config, time=None, lsns=[f"eu:{at}"])
        for one in moments:
            (name,) = [name for name in TABLES if one.target == f"shop.{name}"]
            query = one.queries["trino"].replace(f'"{lake.catalog}".', "lake.")
            shown = then[name]
            if name == "versions":
                end = shown.columns.index("kvsz_end")
                shown = oracle.Rows(
                    columns=shown.columns,
                    rows=type(shown.rows)({row: count for row, count in shown.rows.items() if row[end].year == 9999}),
                )
            oracle.assert_equal(shown, trino.rows(query))


def read(trino: Trino, what: str) -> oracle.Rows:
    return trino.rows(f"SELECT * FROM lake.{what}")


def test_the_questions_have_the_same_answers_as_in_spark(
    database: Database, lake: PostgresCatalogFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_about, "INTERVAL_S", 0.5)
    database.execute("CREATE TABLE items (id int PRIMARY KEY, n int, at timestamp)")
    database.execute("INSERT INTO items SELECT i, 1, 'today' FROM generate_series(1, 500) i")
    config = lake.config(
        group({"eu": database}, {"items": {"on_bad_value": "reject"}}), lake={"about": "_kuvasz"},
    )  # fmt: skip
    server = config.server.model_copy(update={"address": "127.0.0.1:0"})
    with ServedPipeline(config.model_copy(update={"server": server}), lake) as pipeline:
        pipeline.wait_streaming()
        token = json.loads((lake.folder / "state" / "server.json").read_text())["token"]
        database.execute("UPDATE items SET n = 2 WHERE id <= 10")
        database.execute("UPDATE items SET at = 'infinity' WHERE id <= 3")
        pipeline.wait_applied(database)
        for verb, state in (("pause", State.PAUSED), ("resume", State.STREAMING)):
            assert pipeline.get(f"/api/{verb}", {"table": "items", "by": "anna"}, token)[0] == 202
            pipeline.wait_state("shop_eu", "shop.items", state)
        database.execute("ALTER TABLE items ADD COLUMN extra text")
        database.execute("INSERT INTO items VALUES (1000, 1, NULL, 'x')")
        pipeline.wait_applied(database)
        pipeline.call(pipeline.app.cuts.make("cut_then", ["shop_eu"], 3600.0))
    lake.session.sql(f"INSERT INTO {lake.catalog}.shop.items (id, sid) VALUES (-1, 'eu')")  # somebody else writes
    with Pipeline(config, lake) as pipeline:
        pipeline.wait_streaming()
    asked = []
    with trino_of(lake) as trino:
        for question in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL):
            is_view = question.startswith("CREATE")
            ours = question.replace("_kuvasz.", f"{lake.catalog}._kuvasz.")
            for others, own in DIALECT.items():
                assert others not in question or f"`{own}` stands for" in PAGE
                question = question.replace(others, own)  # noqa: PLW2901
            theirs = question.replace("_kuvasz.", "lake._kuvasz.").replace("TEMPORARY ", "")
            if is_view:
                lake.session.sql(ours)
                trino.rows(theirs.replace("current_sources", "lake._kuvasz.current_sources"))
                ours, theirs = "SELECT * FROM current_sources", "SELECT * FROM lake._kuvasz.current_sources"
            spark = oracle.rows_of_arrow(lake.session.sql(ours).toArrow())
            told = trino.rows(theirs)
            exact = [name for name in spark.columns if name not in ABOUT]
            oracle.assert_equal(spark.select(exact), told.select(exact))
            for name in set(spark.columns) & ABOUT - {"interval_p95"}:
                ((theirs_of,), (ours_of,)) = (next(iter(one.select([name]).rows)) for one in (told, spark))
                assert theirs_of == pytest.approx(ours_of), name
            asked.append((question.partition("\n")[0], len(told)))
    assert len(asked) > 10
    assert all(count for _, count in asked[:2] + asked[3:-2]), asked
