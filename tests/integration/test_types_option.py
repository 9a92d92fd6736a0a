"""The map's `types`: columns that have another type in the lake than their own, in all that looks at them."""

from __future__ import annotations

import shutil

import pytest

from kuvasz.state.tables import State
from kuvasz.verbs import plan, verify
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import lake_rows_pyiceberg, open_table
from tests.support.postgres import Database

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

#: Table -> its columns, its key, rows that fit, a value that does not, and what the hint says of policies.
REFUSED = {
    "grids": ("id int PRIMARY KEY, v int[]", "(1, '{1,NULL}'), (2, NULL)", "(3, '{{1,2},{3,4}}')", ""),
    "nans": (
        "id int PRIMARY KEY, v numeric(10,2)", "(1, 1.50), (2, NULL)", "(3, 'NaN')", "`out_of_range: null` or "
    ),
    "moments": ("v timestamptz PRIMARY KEY, id int", "('2024-02-29 12:00+02', 1)", "('infinity', 3)", ""),
    "days": ("v date, id int, PRIMARY KEY (id, v)", "('2024-02-29', 1)", "('-infinity', 3)", ""),
    "dates": (
        "id int PRIMARY KEY, v date", "(1, '2024-02-29')", "(3, '10000-01-01')", "`out_of_range: null | clamp` or "
    ),
}  # fmt: skip
AS_TEXT = {"types": {"v": "string"}}


def texts(database: Database, table: str) -> list[tuple]:
    """A table's rows with v as PostgreSQL's text, as the stream has it."""
    with database.connect() as session:
        session.execute("SET timezone = 'UTC'")
        return sorted(session.execute(f"SELECT id, v::text FROM {table}").fetchall(), key=str)


def found(pipeline: Pipeline, table: str, *columns: str) -> list[tuple]:
    folder = pipeline.folder
    rows = lake_rows_pyiceberg(folder.pyiceberg, f"shop.{table}", catalog=folder.catalog)
    return sorted(rows.select(columns).rows.elements(), key=str)


def kinds(folder: LakeFolder, table: str) -> dict[str, str]:
    schema = open_table(folder.pyiceberg, f"shop.{table}", catalog=folder.catalog).schema()
    return {field.name: str(field.field_type) for field in schema.fields}


@pytest.mark.timeout(600)
def test_every_refused_value_has_a_way_out(database: Database, lake_folder: LakeFolder) -> None:
    """The hint says which, and it does what it says: nothing is lost, and the table goes on."""
    for name, (columns, rows, _, _) in REFUSED.items():
        database.execute(f"CREATE TABLE {name} ({columns})")
        order = "v, id" if columns.startswith("v") else "id, v"
        database.execute(f"INSERT INTO {name} ({order}) VALUES {rows}")
    with Pipeline(lake_folder.config(group({None: database}, dict.fromkeys(REFUSED))), lake_folder) as pipeline:
        pipeline.wait_streaming()
        before = {name: kinds(lake_folder, name)["v"] for name in REFUSED}
        for name, (_, _, row, _) in REFUSED.items():
            database.execute(f"INSERT INTO {name} VALUES {row}")
        for name, (columns, _, _, policy) in REFUSED.items():
            pipeline.wait_state("shop", f"shop.{name}", State.ERROR)
            error = next(str(t.error) for t in pipeline.app.view().tables if t.target == f"shop.{name}")
            is_key = columns.startswith("v")
            assert error.split("hint: ")[1] == (
                ("the column is part of the key, which no policy may change: " if is_key else "")
                + f"put {policy}`types: {{v: string}}` into the table's entry in the map and start again;"
                f" or mend the value at the source, and then: kuvasz resync --table public.{name}"
            )
    config = lake_folder.config(group({None: database}, dict.fromkeys(REFUSED, AS_TEXT)))
    (planned,) = plan.plans(config)
    assert {
        table.target.removeprefix("shop.")
        for table in planned.tables
        if table.columns[0].is_new or table.columns[1].is_new
    } == REFUSED.keys(), "the plan shows the columns that are exchanged"
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        for name in REFUSED:
            assert found(pipeline, name, "id", "v") == texts(database, name), name
            assert kinds(lake_folder, name)["v"] == "string"
            assert kinds(lake_folder, name)["v__old"] == before[name]
        database.execute("UPDATE grids SET v = '[0:0]={5}' WHERE id = 1")
        database.execute("UPDATE nans SET v = v + 1")
        database.execute("UPDATE moments SET v = '-infinity' WHERE v = 'infinity'")
        database.execute("UPDATE days SET id = -id")
        database.execute("DELETE FROM dates WHERE v = '10000-01-01'")
        database.execute("INSERT INTO moments VALUES ('infinity', 4)")
        pipeline.wait_applied(database)
        for name in REFUSED:
            assert found(pipeline, name, "id", "v") == texts(database, name), name
    shutil.rmtree(lake_folder.folder / "state" / "index")
    tables = dict.fromkeys(REFUSED, AS_TEXT) | {"dates": None}  # one of them goes back
    with Pipeline(lake_folder.config(group({None: database}, tables)), lake_folder) as pipeline:
        pipeline.wait_streaming()
        assert kinds(lake_folder, "dates")["v"] == "date"
        database.execute("DELETE FROM moments WHERE v = '-infinity'")
        database.execute("UPDATE days SET v = 'infinity' WHERE v = '-infinity'")
        pipeline.wait_applied(database)
        for name in REFUSED.keys() - {"dates"}:
            assert found(pipeline, name, "id", "v") == texts(database, name), name
            assert "v__old2" not in kinds(lake_folder, name), "an option that stays is no change"
        assert [(id_, str(v)) for id_, v in found(pipeline, "dates", "id", "v")] == texts(database, "dates")


@pytest.mark.timeout(600)
def test_types_go_with_every_other_option(database: Database, lake_folder: LakeFolder) -> None:
    """Expressions see them, and every table type, the plan and `verify` go by them."""
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, v timestamptz, n numeric, b bool, u uuid, j jsonb)")
    database.execute(
        "INSERT INTO orders SELECT i, timestamptz '2024-02-29 12:00+00' + i * interval '1 day', i * 1.5, i % 2 = 0,"
        " '00000000-0000-0000-0000-000000000001', '{\"a\": 1}' FROM generate_series(1, 5) i"
    )
    types = {"v": "string", "n": "decimal(20,2)", "b": "string", "u": "string"}
    entries = {
        "plain": {"types": types},
        "append": {"type": "append", "types": types},
        "history": {"type": "history", "types": types},
        "chosen": {
            "types": types,
            "set": {"id": "id", "v": "v", "amount": "n", "year": "substr(v, 1, 4)", "b": "b"},
            "filter": "v <> '-infinity'",
        },
    }
    groups = [
        one for name, entry in entries.items()
        for one in group({None: database}, {"orders": {**entry, "target": name}}, name=name)
    ]  # fmt: skip
    config = lake_folder.config(groups)
    (planned, *_) = plan.plans(config)
    assert {column.name: column.iceberg for column in planned.tables[0].columns} == {
        "id": "int", "v": "string", "n": "decimal(20, 2)", "b": "string", "u": "string", "j": "string",
    }  # fmt: skip
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE orders SET v = 'infinity', b = NULL WHERE id = 1")
        database.execute("UPDATE orders SET v = '-infinity' WHERE id = 2")
        database.execute("DELETE FROM orders WHERE id = 3")
        database.execute("INSERT INTO orders (id, v, n, b) VALUES (6, '0044-03-15 BC', 2.25, true)")
        pipeline.wait_applied(database)
        now = texts(database, "orders")
        assert found(pipeline, "plain", "id", "v") == now
        assert kinds(lake_folder, "plain") == {
            "id": "int", "v": "string", "n": "decimal(20, 2)", "b": "string", "u": "string", "j": "string",
        }  # fmt: skip
        assert {b for (b,) in found(pipeline, "plain", "b")} == {"t", "f", None}, "as it comes"
        live = [(id_, v) for id_, v, ended in found(pipeline, "history", "id", "v", "kvsz_end") if ended.year == 9999]
        assert sorted(live, key=str) == now
        assert {(1, "infinity"), (2, "-infinity")} < set(found(pipeline, "append", "id", "v"))
        kept = [(id_, v, v[:4]) for id_, v in now if v != "-infinity"]
        assert found(pipeline, "chosen", "id", "v", "year") == sorted(kept, key=str)
        assert kinds(lake_folder, "chosen")["amount"] == "decimal(20, 2)"
        (report,) = verify.reports(config, table="shop.plain", session=lake_folder.session)
        assert (report.error, report.skipped, report.differences, report.lake_rows) == ("", "", 0, 5), report
