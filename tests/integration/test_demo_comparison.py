"""Spark's side of the demo's comparison and of the oracle, on a lake written by Spark alone."""

from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest

from kuvasz.config.load import load
from kuvasz.demo import comparison, shop
from kuvasz.lake.jvm import spark
from tests.support import oracle
from tests.support.postgres import Server

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

_MAP = """
lake: {{uri: "jdbc:sqlite:{folder}/catalog.db", warehouse: "{folder}/warehouse", namespace: shop}}
spark: {{master: "local[1]"}}
databases:
- database: shop
  urls: [{{url: "postgresql://localhost/shop", sid: eu}}]
  tables: {{customers: }}
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("source") / "data") as server:
        shop.create(server.url(), "eu")
        yield server.url(shop.DATABASE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def session(spark_session, folder):
    """The suite's Spark, with this module's lake as another catalog: there is one Spark in a process."""
    (folder / "map.yaml").write_text(_MAP.format(folder=folder))
    for name, value in spark.settings(load(folder / "map.yaml").config).items():
        if name.startswith("spark.sql.catalog."):
            spark_session.conf.set(name, value)
    return spark_session


@pytest.fixture(scope="module")
def lake(session, source):
    """The shop's tables as they stand at the source, in two files each."""
    session.sql("CREATE NAMESPACE IF NOT EXISTS kuvasz.shop")
    for table in shop.TABLES:
        rows = oracle.source_rows(source, table.name, sid="eu")
        frame = session.createDataFrame(pa.Table.from_pylist(
            [dict(zip(rows.columns, row, strict=True)) for row in rows.rows.elements()], schema=_schema(rows)
        ))  # fmt: skip
        merge_on_read = {"format-version": "3", "write.delete.mode": "merge-on-read"}
        writer = frame.repartition(2).writeTo(f"kuvasz.shop.{table.name}").using("iceberg")
        for name, value in merge_on_read.items():
            writer = writer.tableProperty(name, value)
        writer.create()


def test_compare_finds_equal_what_is_equal(session, source, lake):
    lines = comparison.compare(session, "kuvasz.shop", {"eu": shop.fingerprints(source)})

    assert [(line.table, line.is_equal) for line in lines] == [
        ("customers", True), ("products", True), ("orders", True),
    ]  # fmt: skip
    ages = comparison.ages(session, "kuvasz.shop")
    assert sorted(ages) == ["customers", "orders", "products"]
    assert all(0 < age < 600 for age in ages.values())


def test_compare_sees_one_changed_value_of_one_source(session, source, lake):
    contents = shop.fingerprints(source)
    changed = {**contents, "orders": dataclasses.replace(contents["orders"], total=contents["orders"].total + 1)}

    lines = comparison.compare(session, "kuvasz.shop", {"eu": changed, "us": contents})

    assert {(line.table, line.sid) for line in lines if line.is_equal} == {("customers", "eu"), ("products", "eu")}
    assert all(line.lake.rows == 0 for line in lines if line.sid == "us")


def test_compare_reports_a_target_that_does_not_exist(session, source):
    [*_, line] = comparison.compare(session, "kuvasz.nowhere", {"eu": shop.fingerprints(source)})

    assert (line.lake, line.is_equal) == (None, False)
    assert comparison.ages(session, "kuvasz.nowhere") == {}


def test_three_readers_see_the_same_rows_below_deletion_vectors(session, source, folder, lake):
    properties = {"uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    # A table of its own: the others are compared as they are.
    session.sql(
        "CREATE TABLE kuvasz.shop.clients USING iceberg TBLPROPERTIES ('format-version' = '3',"
        " 'write.delete.mode' = 'merge-on-read') AS SELECT * FROM kuvasz.shop.customers"
    )
    session.sql("DELETE FROM kuvasz.shop.clients WHERE id % 7 = 3")
    wanted = oracle.source_rows(source, "customers", sid="eu", where="id % 7 <> 3")
    tasks = list(oracle.open_table(properties, "shop.clients").scan().plan_files())
    assert all(delete.file_path.endswith(".puffin") for task in tasks for delete in task.delete_files)
    assert any(task.delete_files for task in tasks)

    oracle.assert_equal(wanted, oracle.lake_rows_spark(session, "kuvasz.shop.clients"), key=["id"])
    oracle.assert_equal(wanted, oracle.lake_rows_pyiceberg(properties, "shop.clients"), key=["id"])
    oracle.assert_equal(wanted, oracle.lake_rows_duckdb(properties, "shop.clients"), key=["id"])


def _schema(rows):
    kinds = {"id": pa.int64(), "customer_id": pa.int64(), "supplier": pa.int32(), "stock": pa.int32(),
             "quantity": pa.int32(), "credit_limit": pa.decimal128(12, 2), "price": pa.decimal128(12, 2),
             "total": pa.decimal128(12, 2), "is_active": pa.bool_(), "is_paid": pa.bool_()}  # fmt: skip
    return pa.schema([
        (name, pa.timestamp("us", "UTC") if name.endswith("_at") else kinds.get(name, pa.string()))
        for name in rows.columns
    ])  # fmt: skip
