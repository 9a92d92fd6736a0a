from __future__ import annotations

import datetime
import decimal

import duckdb
import pyarrow as pa
import pytest

from kuvasz.demo.fingerprint import Form, RowField, RowFingerprint, duckdb_query, postgres_query

FIELDS = (RowField(name="id"), RowField(name="price"), RowField(name="note"), RowField(name="ok"),
          RowField(name="at", form=Form.INSTANT))  # fmt: skip
AT = datetime.datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=datetime.UTC)
ROWS = [(1, decimal.Decimal("1.50"), "Žltý\n|", True, AT), (2, None, None, None, None)]
SCHEMA = pa.schema([("id", pa.int64()), ("price", pa.decimal128(12, 2)), ("note", pa.string()), ("ok", pa.bool_()),
                    ("at", pa.timestamp("us", "UTC"))])  # fmt: skip


def in_duckdb(rows, sids=None):
    table = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)
    table = table.append_column("sid", pa.array(sids or ["eu"] * len(rows)))
    with duckdb.connect() as connection:
        connection.register("t", table)
        [(count, total)] = connection.execute(duckdb_query("t", FIELDS, sid="eu")).fetchall()
    return RowFingerprint(rows=count, total=total)


@pytest.mark.postgres
def test_postgres_and_duckdb_agree_on_equal_rows_in_any_order(database):
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (id bigint, price numeric(12,2), note text, ok bool, at timestamptz)")
        connection.cursor().executemany("INSERT INTO t VALUES (%s, %s, %s, %s, %s)", ROWS)
        [(rows, total)] = connection.execute(postgres_query("t", FIELDS)).fetchall()

    assert rows == 2
    assert RowFingerprint(rows=rows, total=int(total)) == in_duckdb(ROWS) == in_duckdb(ROWS[::-1])


@pytest.mark.parametrize(
    "changed",
    [
        [ROWS[0], ROWS[0]],
        [ROWS[0], (2, None, "", None, None)],
        [(1, decimal.Decimal("1.51"), *ROWS[0][2:]), ROWS[1]],
        [(*ROWS[0][:4], AT.replace(microsecond=999998)), ROWS[1]],
        [(*ROWS[0][:3], False, AT), ROWS[1]],
    ],
)
def test_any_changed_value_changes_the_fingerprint(changed):
    assert in_duckdb(changed).rows == 2
    assert in_duckdb(changed) != in_duckdb(ROWS)


def test_rows_of_other_sources_do_not_count():
    assert in_duckdb(ROWS, sids=["eu", "us"]) == in_duckdb(ROWS[:1])


def test_no_rows_have_a_fingerprint_too():
    assert in_duckdb([]) == RowFingerprint(rows=0, total=0)
