"""The oracle must see what differs and nothing else: it is what the other tests lean on."""

from __future__ import annotations

import datetime
import decimal

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.types import LongType

from tests.support import oracle

pytestmark = pytest.mark.postgres

_VALUES = """
CREATE TYPE mood AS ENUM ('ok', 'Žltý');
CREATE DOMAIN money2 AS numeric(8,2);
CREATE TABLE "Every Thing" (
    id bigint PRIMARY KEY, flag bool, small int2, real4 float4, real8 float8, price numeric(12,2), free numeric,
    capped money2, body text, padded char(5),
    raw bytea, day date, at timestamp, seen timestamptz, uid uuid,
    doc jsonb, span interval, clock time, feeling mood, numbers int4[], words text[], moods mood[], grid int4[][],
    twice bigint GENERATED ALWAYS AS (id * 2) STORED
);
INSERT INTO "Every Thing" VALUES
 (1, true, -7, 0.1, 0.1, 1.50, 1.500, 3.1, E'tab\\t''', 'ab', '\\x00ff',
  '2024-02-29', '2024-02-29 23:59:59.999999',
  '2024-06-01 12:00:00+02',
  'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', '{"b": 1, "a": [null]}', '1 day 02:03:04',
  '12:34:56.5', 'Žltý', '{1,NULL,3}', '{}', '{ok,NULL}', '{{1,2},{3,4}}'),
 (2, NULL, NULL, 'NaN', '-0', NULL, 'NaN', NULL, '', '', '', '0001-12-31 BC', 'infinity',
  '10000-01-01 00:00:00+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
"""


def test_source_rows_brings_every_type_to_its_canonical_form(database):
    database.execute(_VALUES)

    rows = oracle.source_rows(database.url, '"Every Thing"', sid="eu")

    assert rows.columns[0] == "id"
    assert rows.columns[-1] == "sid"
    assert "twice" not in rows.columns
    one, two = sorted(rows.rows)
    utc = datetime.UTC
    assert one == (
        1, True, -7, 0.10000000149011612, 0.1, decimal.Decimal("1.50"), "1.500", decimal.Decimal("3.10"), "tab\t'",
        "ab   ", b"\x00\xff", datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 23, 59, 59, 999999),  # noqa: DTZ001
        datetime.datetime(2024, 6, 1, 10, tzinfo=utc), "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        '{"a": [null], "b": 1}', "1 day 02:03:04", "12:34:56.5", "Žltý", (1, None, 3), (), ("ok", None),
        "{{1,2},{3,4}}", "eu",
    )  # fmt: skip
    assert two[3:5] == ("NaN", "-0.0")
    assert two[6] == "NaN"
    assert two[9:14] == ("     ", b"", "0000-12-31", "infinity", "10000-01-01T00:00:00.000000")


def test_a_lake_table_reads_alike_through_pyiceberg_and_duckdb_and_equals_its_source(database, tmp_path):
    database.execute(
        "CREATE TABLE t (id bigint PRIMARY KEY, price numeric(12,2), at timestamptz, raw bytea, tags text[]);"
        "INSERT INTO t SELECT g, g / 8.0, timestamptz '2024-01-01 00:00:00+00' + g * interval '1.000001 s',"
        " decode(lpad(to_hex(g), 4, '0'), 'hex'), CASE WHEN g % 3 = 0 THEN ARRAY['a', NULL, g::text] END"
        " FROM generate_series(1, 500) g"
    )
    properties = _lake(tmp_path)
    catalog = load_catalog("kuvasz", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    schema = pa.schema([
        ("id", pa.int64()), ("price", pa.decimal128(12, 2)), ("at", pa.timestamp("us", "UTC")),
        ("raw", pa.binary()), ("tags", pa.list_(pa.string())), ("sid", pa.string()),
    ])  # fmt: skip
    source = oracle.source_rows(database.url, "t", sid="eu")
    rows = [dict(zip(source.columns, row, strict=True)) for row in sorted(source.rows, key=repr)]
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.t", schema=schema)
    table.append(pa.Table.from_pylist(rows[:200], schema=schema))
    table.append(pa.Table.from_pylist(rows[200:], schema=schema))

    through_pyiceberg = oracle.lake_rows_pyiceberg(properties, "shop.t")
    through_duckdb = oracle.lake_rows_duckdb(properties, "shop.t")

    oracle.assert_equal(source, through_pyiceberg, key=["id"])
    oracle.assert_equal(source, through_duckdb, key=["id"])
    table.delete("id = 77")
    with pytest.raises(AssertionError, match="500 rows at the source, 499 in the lake; 1 missing in the lake"):
        oracle.assert_equal(source, oracle.lake_rows_pyiceberg(properties, "shop.t"), key=["id"])


def test_duckdb_follows_a_renamed_column_by_its_field_id(tmp_path):
    catalog = load_catalog("kuvasz", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.t", schema=pa.schema([("id", pa.int64()), ("old", pa.string())]))
    table.append(pa.table({"id": [1], "old": ["x"]}))
    with table.update_schema() as update:
        update.rename_column("old", "new")
    with table.update_schema() as update:
        update.add_column("old", LongType())

    rows = oracle.lake_rows_duckdb(_lake(tmp_path), "shop.t")

    assert rows == oracle.Rows(columns=("id", "new", "old"), rows=oracle.collections.Counter([(1, "x", None)]))
    oracle.assert_equal(rows, oracle.lake_rows_pyiceberg(_lake(tmp_path), "shop.t"))


def _lake(folder):
    return {"uri": f"jdbc:sqlite:{folder}/c.db", "warehouse": f"file://{folder}/w"}
