"""What docs/tables.md shows of each table type is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

from tests.support import oracle
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.postgres import Database

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

DOCUMENT = (Path(__file__).parents[2] / "docs" / "tables.md").read_text()
TYPES = ("clone", "append", "history", "changelog")


def shown(table_type: str) -> list[dict[str, str]]:
    """The rows of the example's table of a type, as they are written."""
    text = DOCUMENT[DOCUMENT.index("## An example") :]
    lines = text[text.index(f"`{table_type}` ") :].split("\n\n")[1].splitlines()
    names, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(names, row, strict=True)) for row in rows]


def test_the_example_and_the_queries_of_the_tables_page(database: Database, lake_folder: LakeFolder) -> None:
    example = re.search(r"## An example\n\n```sql\n(.*?)```", DOCUMENT, re.DOTALL)
    assert example is not None
    create, insert, *changes = [line.split(";")[0] for line in example[1].strip().splitlines()]
    database.execute(create)
    database.execute(insert)
    groups = []
    for table_type in TYPES:
        groups += group({None: database}, {"prices": {"type": table_type, "target": table_type}}, name=table_type)
    with Pipeline(lake_folder.config(groups), lake_folder) as pipeline:
        pipeline.wait_streaming()
        times = ["1900-01-01 00:00"]
        for change in changes:
            database.execute(change)
            pipeline.wait_applied(database)
        (began,) = {row[2] for row in pipeline.rows("history") if row[1] == 11}
        (ended,) = {row[3] for row in pipeline.rows("history") if row[4]}
        times = {began.isoformat(): "10:00", ended.isoformat(): "11:00"}
        for table_type in TYPES:
            expected = shown(table_type)
            found = oracle.lake_rows_pyiceberg(
                lake_folder.pyiceberg, f"shop.{table_type}", list(expected[0]), catalog=lake_folder.catalog
            )
            rows = [dict(zip(found.columns, map(written, row), strict=True)) for row in found.rows.elements()]
            lsns = sorted({row["_lsn"] for row in rows if "_lsn" in row})
            for row in rows:
                for name in row:
                    row[name] = times.get(row[name], row[name])
                    if name == "_lsn":
                        row[name] = str(lsns.index(row[name]))
            for row in expected:
                if "_lsn" in row:
                    row["_lsn"] = str(sorted({one["_lsn"] for one in shown(table_type)}).index(row["_lsn"]))
            assert sorted(map(str, rows)) == sorted(map(str, expected)), table_type
        query, now = re.findall(r"(SELECT id, price FROM prices\nWHERE .*?|`WHERE kvsz_end.*?)[`\n](?:``)?", DOCUMENT)
        instant = began + (ended - began) / 2
        then = f"TIMESTAMP '{instant.strftime('%Y-%m-%d %H:%M:%S.%f')}+00'"
        query = query.replace("TIMESTAMP '2026-03-01 10:30:00+00'", then)
        now = f"SELECT id, price FROM prices {now.strip('`')}"
        table = oracle.open_table(lake_folder.pyiceberg, "shop.history", catalog=lake_folder.catalog)
        with duckdb.connect() as duck:
            duck.register("prices", table.scan().to_arrow())
            for text, rows in ((query, [(1, 11), (2, 20)]), (now, [(1, 11)])):
                assert "kvsz_end" in text
                assert sorted(duck.execute(text).fetchall()) == rows
                spark = lake_folder.session.sql(text.replace("prices", f"{lake_folder.catalog}.shop.history"))
                assert sorted(tuple(row) for row in spark.collect()) == rows


def written(value: object) -> str:
    """A value as the document writes it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    text = value.isoformat() if hasattr(value, "isoformat") else str(value)
    return text.replace("T", " ").removesuffix(":00+00:00") if text.startswith(("1900", "9999")) else text
