"""Rows that do not fit their table are left out of it and written down, and all others go on."""

from __future__ import annotations

import collections
import json
from typing import Any

import pytest

from kuvasz.config.model import Config
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.state.tables import State
from kuvasz.verbs import verify
from kuvasz.verbs.lake import rejects as verb
from tests.support import oracle
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.postgres import Database, create_database, drop_database
from tests.support.rejected import rejects
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

TYPES: dict[str, dict[str, Any]] = {
    "items": {"mask": {"body": "redact"}, "exclude": ["hidden"]},
    "versions": {"type": "history"},
    "added": {"type": "append"},
    "changes": {"type": "changelog"},
    "bag": {},
}


def ids(pipeline: Pipeline, table: str, column: int = 0) -> list[int]:
    return sorted(row[column] for row in pipeline.rows(table))


def test_what_does_not_fit_is_written_down_and_all_else_goes_on(database: Database, lake_folder: LakeFolder) -> None:
    for name in TYPES:
        key = "" if name == "bag" else "PRIMARY KEY"
        database.execute(f"CREATE TABLE {name} (id int {key}, at timestamp, body text, hidden text)")
        database.execute(f"INSERT INTO {name} VALUES (1, 'today', 'x', 'h'), (2, 'infinity', 'y', 'h')")
    database.execute("ALTER TABLE bag REPLICA IDENTITY FULL")
    tables = {name: options | {"on_bad_value": "reject"} for name, options in TYPES.items()}
    config = lake_folder.config(group({"eu": database}, tables), lake={"about": "_kuvasz"})
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        for name in TYPES:
            database.execute(f"INSERT INTO {name} VALUES (3, 'today', 'z', 'h'), (4, '-infinity', 'z', 'h')")
            database.execute(f"UPDATE {name} SET at = 'infinity' WHERE id = 1")
            database.execute(f"UPDATE {name} SET at = 'today' WHERE id = 2")
        pipeline.wait_applied(database)  # what is replaced before that is written down for no clone
        for name in TYPES:
            database.execute(f"DELETE FROM {name} WHERE id = 4")
        pipeline.wait_applied(database)
        assert set(pipeline.states().values()) == {State.STREAMING}
        counted = {one.target: one.rejected for one in pipeline.app.states.snapshot()}
    assert ids(pipeline, "items") == ids(pipeline, "bag") == [2, 3]
    assert ids(pipeline, "added") == [1, 2, 3]
    assert ids(pipeline, "changes") == [1, 2, 3, 4]
    assert ids(pipeline, "versions") == [1, 2, 3]
    found = collections.defaultdict(list)
    for row in rejects(lake_folder):
        found[row["target"]].append(row)
    assert {target: len(some) for target, some in found.items()} == counted
    for name in TYPES:
        told = [(row["operation"], json.loads(row["raw_row"])["id"], row["raw"]) for row in found[f"shop.{name}"]]
        assert told[:3] == [("R", "2", "infinity"), ("I", "4", "-infinity"), ("U", "1", "infinity")], name
    items = found["shop.items"][0]
    assert json.loads(items["raw_row"]) == {"id": "2", "at": "infinity", "body": "***"}
    assert (items["key"], items["column_name"], items["source"]) == ('{"id": "2"}', "at", "shop_eu")
    assert items["reason"] == "is outside the years 0001 to 9999"
    reports = {report.target: report for report in verify.reports(config, session=lake_folder.session)}
    # Of a changelog nothing says that the change of key 1 was rejected, but what was rejected.
    assert {target: (one.error, one.differences) for target, one in reports.items()} == {
        target: ("", int(target == "shop.changes")) for target in found
    }
    assert {target: one.rejected for target, one in reports.items()} == dict.fromkeys(found, 1)
    told = verb.rows(config, table="items")
    assert len(told) == counted["shop.items"]
    (newest,) = verb.rows(config, table="items", limit=1)
    assert (newest in told, newest["rejected_at"]) == (True, told[-1]["rejected_at"])
    mended = {name: options | {"out_of_range": "null"} for name, options in tables.items()}
    config = lake_folder.config(group({"eu": database}, mended), lake={"about": "_kuvasz"})
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE items SET body = 'later' WHERE id = 1")
        database.execute("DELETE FROM items WHERE id = 3")
        pipeline.wait_applied(database)
        for target in ("shop.items", "shop.bag", "shop.versions"):
            assert (target, "shop_eu") in verb.tables(config)
            (report,) = verify.reports(
                config, table=target, sid="shop_eu", is_fixing=True, session=lake_folder.session
            )
            assert (report.left, report.error) == (0, "")
    assert sorted((row[0], row[1] is None) for row in pipeline.rows("items")) == [(1, True), (2, False)]
    assert ids(pipeline, "bag") == [1, 2, 3]


YEARS = "is outside the years 0001 to 9999"
#: column -> its type at the source, a value that does not fit, what is written down of it, and what is wrong.
UNFIT = {
    "day": ("date", "'infinity'", "infinity", YEARS),
    "at": ("timestamptz", "'20000-01-01 00:00:00+00'", "20000-01-01 00:00:00+00", YEARS),
    "price": ("numeric(8,2)", "'NaN'", "NaN", "is no finite number, which a decimal cannot hold"),
    "digits": ("numeric", "12345.5", "12345.5", "has more digits than its decimal type"),
    "deep": ("numeric", "0.125", "0.125", "has more fractional digits than its decimal type"),
    "list": ("int[]", "'{{1,2},{3,4}}'", "{{1,2},{3,4}}",
             "is an array of several dimensions, which a list cannot hold"),
    "days": ("date[]", "'{2024-02-29,infinity}'", "{2024-02-29,infinity}", YEARS),
    "name": ("text", r"E'caf\xE9'", r"caf\xe9", "is not valid UTF-8"),
}  # fmt: skip


def test_every_kind_of_misfit_is_written_down_as_its_source_has_it_also_by_who_is_killed(
    postgres18: EmbeddedPostgres, lake_folder: LakeFolder
) -> None:
    database = create_database(postgres18, options="TEMPLATE template0 LOCALE 'C' ENCODING 'SQL_ASCII'")
    database.execute(f"ALTER DATABASE {database.name} SET client_encoding = 'UTF8'")  # or texts are bytes here

    def insert(begin: int) -> None:
        for name in TYPES:
            database.execute(f"INSERT INTO {name} (id) VALUES ({begin + len(UNFIT)})")
            for at, (column, (_, value, *_)) in enumerate(UNFIT.items(), begin):
                database.execute(f"INSERT INTO {name} (id, {column}) VALUES ({at}, {value})")

    try:
        for name in TYPES:
            columns = ", ".join(f"{column} {kind}" for column, (kind, *_) in UNFIT.items())
            database.execute(f"CREATE TABLE {name} (id int {'' if name == 'bag' else 'PRIMARY KEY'}, {columns})")
        database.execute("ALTER TABLE bag REPLICA IDENTITY FULL")
        insert(1)
        options = {"on_bad_value": "reject", "types": {"digits": "decimal(5,2)", "deep": "decimal(10,2)"}}
        types = {name: {key: text for key, text in one.items() if key == "type"} for name, one in TYPES.items()}
        tables: dict[str, Any] = {name: one | options for name, one in types.items()}
        config = lake_folder.config(group({"eu": database}, tables), lake={"about": "_kuvasz"})
        killed = Pipeline(config, lake_folder)
        killed.__enter__()
        killed.wait_streaming()
        insert(11)
        killed.die()
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_streaming()
            insert(21)
            pipeline.wait_applied(database)
            assert set(pipeline.states().values()) == {State.STREAMING}
            for name in TYPES:
                assert ids(pipeline, name) == [9, 19, 29], name
        told = {(row["target"], row["lsn"], row["ordinal"]): row for row in rejects(lake_folder)}.values()
        expected = [
            (operation, str(begin + at), column, raw, reason)
            for begin, operation in ((1, "R"), (11, "I"), (21, "I"))
            for at, (column, (_, _, raw, reason)) in enumerate(UNFIT.items())
        ]
        for name in TYPES:
            found = [
                (row["operation"], json.loads(row["raw_row"])["id"], row["column_name"], row["raw"], row["reason"])
                for row in told
                if row["target"] == f"shop.{name}"
            ]
            assert sorted(found) == sorted(expected), name
        for report in verify.reports(config, session=lake_folder.session):
            assert (report.error, report.differences, report.rejected) == ("", 0, 3 * len(UNFIT)), report
        as_text = dict.fromkeys(("price", "digits", "deep", "list", "days"), "string")
        tables["items"] = options | {"types": as_text, "out_of_range": "null"}
        config = lake_folder.config(group({"eu": database}, tables), lake={"about": "_kuvasz"})
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_streaming()
            database.execute("UPDATE items SET name = 'cafe' WHERE name IS NOT NULL")
            pipeline.wait_applied(database)
            assert ids(pipeline, "items") == [*range(1, 10), *range(11, 20), *range(21, 30)]
    finally:
        drop_database(database)


#: What is wrong with a row: its expression fails, the filter fails, or gets a value that cannot be read.
BAD_ROWS = "VALUES ({0}, 0, 'today'), ({0} + 1, -1, 'today'), ({0} + 2, 1, 'infinity')"

COMPUTED: dict[str, Any] = {
    "set": {"id": "id", "share": "CAST(100 / n AS int)", "n": "n"},
    "filter": "CAST(7 / (n + 1) AS int) <> 3 AND year(day) > 2000",
}
#: The same in PostgreSQL's SQL, without what fails.
SEEN = (
    "SELECT id, 100 / nullif(n, 0), n FROM {} WHERE n <> 0 AND day < 'infinity' AND 7 / nullif(n + 1, 0) <> 3"
    " AND day > '2000-12-31'"
)

MENDED: dict[str, Any] = {
    "set": COMPUTED["set"] | {"share": "CAST(try_divide(100, n) AS int)"},
    "filter": "day IS NULL OR year(day) > 2000", "out_of_range": "null",
}  # fmt: skip
SEEN_THEN = "SELECT id, 100 / nullif(n, 0), n FROM {} WHERE day > '2000-12-31'"


def seen(database: Database, query: str, table: str) -> list[str]:
    with database.connect() as session:
        return sorted(str(row) for row in session.execute(query.format(table)).fetchall())


def held(pipeline: Pipeline, table: str) -> list[str]:
    return sorted(str(tuple(row[:3])) for row in pipeline.rows(table))


def test_a_row_for_which_an_expression_fails_is_written_down_and_all_others_go_on(
    database: Database, lake_folder: LakeFolder
) -> None:
    failing_rows_go_by(database, lake_folder)


@pytest.mark.slow
def test_rows_for_which_an_expression_failed_come_with_a_map_that_takes_them(
    database: Database, lake_folder: LakeFolder
) -> None:
    config, types = failing_rows_go_by(database, lake_folder)
    reports = {report.target: report for report in verify.reports(config, session=lake_folder.session)}
    # As above: nothing says of a changelog's key that its change was rejected.
    assert {target for target, one in reports.items() if one.error or one.differences} <= {"shop.changes"}, reports
    assert {one.rejected for one in reports.values()} == {6}, reports
    tables = {name: one | MENDED | {"on_bad_value": "reject"} for name, one in types.items()}
    config = lake_folder.config(group({"eu": database}, tables), lake={"about": "_kuvasz"})
    with Pipeline(config, lake_folder) as pipeline:
        for name, verb in (("versions", "resync"), ("added", "retry"), ("changes", "retry")):  # clones need no word
            pipeline.wait_state("shop_eu", f"shop.{name}", State.ERROR)
            pipeline.tell(verb, f"shop.{name}", "shop_eu")
        pipeline.wait_streaming()
        database.execute("UPDATE items SET n = 2 WHERE id = 32")
        database.execute("DELETE FROM items WHERE id = 33")
        pipeline.wait_applied(database)
        for target in ("shop.items", "shop.bag", "shop.versions"):
            (report,) = verify.reports(
                config, table=target, sid="shop_eu", is_fixing=True, session=lake_folder.session
            )
            assert (report.left, report.error, report.rejected) == (0, "", 0)
        for name in ("items", "bag"):
            assert held(pipeline, name) == seen(database, SEEN_THEN, name), name


def failing_rows_go_by(database: Database, lake_folder: LakeFolder) -> tuple[Config, dict[str, dict]]:
    """Have an expression fail for rows of tables of all types; returns their map, and their types by name."""
    for name in TYPES:
        key = "" if name == "bag" else "PRIMARY KEY"
        database.execute(f"CREATE TABLE {name} (id int {key}, n int, day date)")
        database.execute(f"INSERT INTO {name} SELECT i, i % 4 + 1, '2024-02-29' FROM generate_series(1, 20) i")
        database.execute(f"INSERT INTO {name} {BAD_ROWS.format(21)}")
        database.execute(f"ALTER TABLE {name} REPLICA IDENTITY FULL")
    types = {name: {key: text for key, text in one.items() if key == "type"} for name, one in TYPES.items()}
    tables = {name: one | COMPUTED | {"on_bad_value": "reject"} for name, one in types.items()}
    config = lake_folder.config(group({"eu": database}, tables), lake={"about": "_kuvasz"})
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        for name in ("items", "bag", "added"):
            assert held(pipeline, name) == seen(database, SEEN, name), name
        for name in TYPES:
            database.execute(f"INSERT INTO {name} {BAD_ROWS.format(31)}")
            database.execute(f"INSERT INTO {name} VALUES (41, 5, 'today'), (42, 0, '1999-12-31')")
            database.execute(f"UPDATE {name} SET n = 0 WHERE id IN (2, 3)")
            database.execute(f"UPDATE {name} SET n = -1 WHERE id IN (6, 7)")
            database.execute(f"UPDATE {name} SET day = 'infinity' WHERE id = 10")
            database.execute(f"UPDATE {name} SET n = 3, day = 'today' WHERE id IN (21, 22, 23)")
        pipeline.wait_applied(database)
        for name in ("items", "bag"):
            assert held(pipeline, name) == seen(database, SEEN, name), name
        for name in TYPES:
            database.execute(f"DELETE FROM {name} WHERE id IN (2, 31, 22)")
            database.execute(f"UPDATE {name} SET n = 4 WHERE id = 3")
        pipeline.wait_applied(database)
        assert set(pipeline.states().values()) == {State.STREAMING}
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        for name in TYPES:
            database.execute(f"UPDATE {name} SET n = 0 WHERE id = 41")
        pipeline.wait_applied(database)
        for name in ("items", "bag"):
            assert held(pipeline, name) == seen(database, SEEN, name), name
    why = {
        (row["operation"], json.loads(row["key"])["id"], row["column_name"], row["reason"], row["raw"])
        for row in rejects(lake_folder)
        if row["target"] == "shop.items"
    }
    fails = "its expression fails"
    assert {one for one in why if one[0] == "R"} == {
        ("R", "21", "share", fails, None), ("R", "22", None, "the filter fails for it", None),
        ("R", "23", "day", "is outside the years 0001 to 9999", None),
    }  # fmt: skip
    assert ("U", "41", "share", fails, None) in why
    assert not {one for one in why if one[1] == "42"}, "it is outside the filter, whatever else is wrong with it"
    return config, types


def test_a_row_that_belongs_to_no_target_as_far_as_anybody_knows_is_rejected_by_each(
    database: Database, lake_folder: LakeFolder
) -> None:
    database.execute("CREATE TABLE events (id int PRIMARY KEY, code text)")
    database.execute("INSERT INTO events VALUES (1, '1'), (2, '2'), (3, '3'), (4, 'x'), (5, '1')")
    route = {"by": "CAST(code AS int)", "to": "events_{value}", "allow": [1, 2], "rest": "events_other"}
    tables = {"events": {"route": route, "on_bad_value": "reject"}}
    config = lake_folder.config(group({"eu": database}, tables), lake={"about": "_kuvasz"})
    targets = ("events_1", "events_2", "events_other")

    def found() -> list[list[int]]:
        return [ids(pipeline, target) for target in targets]

    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        assert found() == [[1, 5], [2], [3]]
        database.execute("INSERT INTO events VALUES (6, 'y'), (7, NULL), (8, '2')")
        database.execute("UPDATE events SET code = 'z' WHERE id IN (2, 5)")
        database.execute("UPDATE events SET code = '2' WHERE id = 4")
        pipeline.wait_applied(database)
        assert found() == [[1], [4, 8], [3, 7]]
        database.execute("UPDATE events SET code = '3' WHERE id IN (5, 6)")
        database.execute("DELETE FROM events WHERE id = 2")
        pipeline.wait_applied(database)
        assert found() == [[1], [4, 8], [3, 5, 6, 7]]
        assert set(pipeline.states().values()) == {State.STREAMING}
    told = collections.Counter(
        (row["target"], row["operation"], json.loads(row["key"])["id"], row["reason"]) for row in rejects(lake_folder)
    )
    whats = [("R", "4"), ("I", "6"), ("U", "2"), ("U", "5")]
    assert told == dict.fromkeys(
        ((f"shop.{target}", *what, "the filter fails for it") for target in targets for what in whats), 1
    )


def test_a_row_that_is_too_large_is_written_down_and_all_others_go_on(
    database: Database, lake_folder: LakeFolder
) -> None:
    names = ["items", "versions", "added", "changes", "bag"]
    for name in names:
        key = "" if name == "bag" else "PRIMARY KEY"
        database.execute(f"CREATE TABLE {name} (id int {key}, n int, body text, hidden text)")
        database.execute(f"ALTER TABLE {name} ALTER body SET STORAGE EXTERNAL, ALTER hidden SET STORAGE EXTERNAL")
        database.execute(f"INSERT INTO {name} VALUES (1, 1, 'a'), (2, 1, 'b'), (3, 1, repeat('c', 100000))")
    database.execute("ALTER TABLE bag REPLICA IDENTITY FULL")
    types = {name: {key: text for key, text in TYPES[name].items() if key == "type"} for name in names}
    tables = {name: one | {"on_bad_value": "reject", "exclude": ["hidden"]} for name, one in types.items()}
    config = lake_folder.config(group({"eu": database}, tables), lake={"about": "_kuvasz"}, max_row_bytes="64kB")
    in_lake = "SELECT id, n, body FROM items WHERE id <> ALL (%s) ORDER BY id"

    def wanted(*left_out: int) -> list[tuple[Any, ...]]:
        with database.connect() as session:
            return session.execute(in_lake, ([*left_out],)).fetchall()

    def items() -> list[tuple[Any, ...]]:
        return sorted(tuple(row[:3]) for row in pipeline.rows("items"))

    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        for name in names[:4]:
            database.execute(
                f"INSERT INTO {name} VALUES (4, 1, repeat('d', 70000), 'h'), (5, 1, 'e', repeat('h', 70000))"
            )
            database.execute(f"UPDATE {name} SET body = repeat('x', 70000) WHERE id = 1")
        database.execute("UPDATE items SET n = 2 WHERE id = 3")
        pipeline.wait_applied(database)
        assert items() == wanted(1, 4)
        database.execute("UPDATE items SET n = 3 WHERE id IN (1, 4)")  # what was too large is not sent again
        for name in names[:4]:
            database.execute(f"UPDATE {name} SET body = 'small' WHERE id = 1")
            database.execute(f"INSERT INTO {name} VALUES (6, 1, repeat('f', 70000)), (7, 1, 'g')")
            database.execute(f"DELETE FROM {name} WHERE id = 6")
        pipeline.wait_applied(database)
        assert items() == wanted(4)
        assert set(pipeline.states().values()) == {State.STREAMING}
        assert [ids(pipeline, name) for name in ("versions", "added")] == [[1, 1, 2, 3, 5, 7], [1, 1, 2, 3, 5, 7]]
        told = [row[:2] for row in pipeline.rows("changes")]
        assert told
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("INSERT INTO items VALUES (8, 1, repeat('i', 70000)), (9, 1, 'j')")
        database.execute("INSERT INTO bag VALUES (4, 1, 'd', repeat('h', 70000)), (5, 1, repeat('e', 70000), 'h')")
        pipeline.wait_state("shop_eu", "shop.bag", State.ERROR)
        assert "column body: value '…' makes its row larger than `pipeline.max_row_bytes`" in pipeline.errors()[0]
        database.execute("INSERT INTO items VALUES (10, 1, 'k')")
        wait_until(lambda: items() == wanted(4, 8), "the others go on")
    why = [
        (row["operation"], json.loads(row["key"])["id"], row["column_name"], row["raw"])
        for row in rejects(lake_folder)
        if row["target"] == "shop.items"
    ]
    assert why[:2] == [("I", "4", "body", None), ("U", "1", "body", None)]
    assert ("U", "4", None, None) in why
    assert ("I", "8", "body", None) in why
    (report,) = verify.reports(config, table="items", is_fixing=True, session=lake_folder.session)
    assert (report.error, report.left, report.mended) == ("", 0, 2), "a copy takes rows of any size"
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_state("shop_eu", "shop.items", State.STREAMING)
        database.execute("UPDATE items SET n = 9 WHERE id IN (4, 8)")
        wait_until(lambda: items() == wanted(), "what was left out of the update is there again")


def test_an_earlier_version_stays_where_the_map_says_so(database: Database, lake_folder: LakeFolder) -> None:
    """Until the row fits, is deleted or gets another key; and no row takes from it what it leaves out."""
    database.execute("CREATE TABLE items (id int PRIMARY KEY, at timestamp, body text)")
    database.execute("ALTER TABLE items REPLICA IDENTITY FULL, ALTER body SET STORAGE EXTERNAL")
    database.execute("INSERT INTO items SELECT i, 'today', 'a' FROM generate_series(1, 9) i")
    database.execute("INSERT INTO items VALUES (10, 'infinity', 'a'), (11, 'today', repeat('b', 9000))")

    def of_map(**options: str) -> Any:
        return lake_folder.config(group({"eu": database}, {"items": options}), lake={"about": "_kuvasz"})

    def seen() -> dict[int, str]:
        return {row[0]: row[2][:3] for row in pipeline.rows("items")}

    config = of_map(on_bad_value="keep")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE items SET at = 'infinity', body = 'new' WHERE id IN (1, 2, 3, 4, 11)")
        database.execute("UPDATE items SET at = 'infinity', id = 50 WHERE id = 5")
        database.execute("UPDATE items SET body = 'fit' WHERE id = 6")
        database.execute("UPDATE items SET at = 'infinity' WHERE id = 6")
        database.execute("INSERT INTO items VALUES (12, 'infinity', 'a')")
        pipeline.wait_applied(database)
        first = seen()
    assert first == {**dict.fromkeys((1, 2, 3, 4, 7, 8, 9), "a"), 6: "fit", 11: "bbb"}
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE items SET at = 'today' WHERE id IN (2, 12)")
        database.execute("DELETE FROM items WHERE id = 3")
        database.execute("UPDATE items SET body = 'later' WHERE id = 4")
        pipeline.wait_applied(database)
        wanted = {**first, 2: "new", 12: "a"}
        del wanted[3]
        assert seen() == wanted
        (report,) = verify.reports(config, is_fixing=True, session=lake_folder.session)
        assert (report.error, report.differences, report.rejected) == ("", 0, 6)
        assert seen() == wanted, "what is kept is no difference"
        told = {(row["operation"], json.loads(row["key"])["id"]) for row in rejects(lake_folder)}
        assert told == {("R", "10"), ("I", "12"), *(("U", id_) for id_ in ("1", "2", "3", "4", "6", "11", "50"))}
    config = of_map(on_bad_value="keep", out_of_range="null")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE items SET body = 'now' WHERE id = 4")
        database.execute("DELETE FROM items WHERE id = 11")
        pipeline.wait_applied(database)
        (report,) = verify.reports(config, is_fixing=True, session=lake_folder.session)
        assert (report.error, report.left, report.mended) == ("", 0, 4)
        assert seen() == at_source(database)


def at_source(database: Database) -> dict[int, str]:
    with database.connect() as session:
        return dict(session.execute("SELECT id, left(body, 3) FROM items").fetchall())


def test_no_row_takes_what_it_leaves_out_from_a_version_that_stayed(
    database: Database, lake_folder: LakeFolder
) -> None:
    """Not even under another map: what is kept is in the table's own notes, until it is copied again."""
    database.execute("CREATE TABLE items (id int PRIMARY KEY, at timestamp, body text)")
    database.execute("ALTER TABLE items ALTER body SET STORAGE EXTERNAL")
    database.execute("INSERT INTO items SELECT i, 'today', repeat('a', 9000) FROM generate_series(1, 3) i")

    def of_map(**options: str) -> Any:
        return lake_folder.config(group({"eu": database}, {"items": options}), lake={"about": "_kuvasz"})

    def is_noted() -> bool:
        table = oracle.open_table(lake_folder.pyiceberg, "shop.items", catalog=lake_folder.catalog)
        return table.properties["kuvasz.rule.shop_eu"].endswith(".less")

    def seen() -> dict[int, str]:
        return {row[0]: row[2][:3] for row in pipeline.rows("items")}

    with Pipeline(of_map(on_bad_value="keep"), lake_folder) as pipeline:
        pipeline.wait_streaming()
        assert not is_noted()
        database.execute("UPDATE items SET at = 'infinity', body = repeat('b', 9000) WHERE id = 1")
        pipeline.wait_applied(database)
        assert is_noted()
        assert seen() == dict.fromkeys((1, 2, 3), "aaa")
    with Pipeline(of_map(), lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE items SET at = 'today' WHERE id = 1")
        pipeline.wait_state("shop_eu", "shop.items", State.ERROR)
        assert "a row before it may have been rejected" in pipeline.errors()[0]
        assert seen()[1] == "aaa"
        pipeline.tell("resync", "shop.items", "shop_eu")
        pipeline.wait_state("shop_eu", "shop.items", State.STREAMING)
        assert not is_noted()
        database.execute("UPDATE items SET at = 'yesterday'")
        pipeline.wait_applied(database)
        assert seen() == at_source(database) == {1: "bbb", 2: "aaa", 3: "aaa"}


def test_what_stays_is_there_behind_a_lost_slot_and_not_behind_a_copy(
    database: Database, lake_folder: LakeFolder
) -> None:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, at timestamp, body text)")
    database.execute("INSERT INTO items SELECT i, 'today', 'old' FROM generate_series(1, 5) i")
    (shop,) = group({"eu": database}, {"items": {"on_bad_value": "keep"}})
    config = lake_folder.config([shop | {"on_slot_lost": "repair"}], lake={"about": "_kuvasz"})

    def seen() -> dict[int, str]:
        return {row[0]: row[2] for row in pipeline.rows("items")}

    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE items SET at = 'infinity', body = 'new' WHERE id = 1")
        pipeline.wait_applied(database)
    database.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
    database.execute("UPDATE items SET at = 'infinity', body = 'new' WHERE id = 2")
    database.execute("UPDATE items SET body = 'new' WHERE id = 3")
    database.execute("DELETE FROM items WHERE id = 4")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        assert seen() == {1: "old", 2: "old", 3: "new", 5: "old"}
        pipeline.tell("resync", "shop.items", "shop_eu")
        wait_until(lambda: seen() == {3: "new", 5: "old"}, lambda: f"it is copied: {seen()} {pipeline.errors()}")
