"""Every type of the manual through the whole path: copied, streamed and updated, read by three readers.

`tests.integration.test_values` holds the same for the decoder alone; here the lake's files and metadata are what is
looked at, and what becomes of values that the lake cannot hold.
"""

from __future__ import annotations

import datetime
import random
import re
import shutil
from collections.abc import Iterator, Sequence
from decimal import Decimal

import psycopg
import pytest

from kuvasz.state.tables import State
from tests.support import oracle
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.postgres import Database, create_database, drop_database
from tests.support.strategies import NEEDS, TYPES, SqlType
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

#: What a role may prefer in output formats; kuvasz must not care.
ODD_MANNERS = (
    "datestyle = 'SQL, DMY'", "timezone = 'Asia/Kathmandu'", "intervalstyle = 'iso_8601'", "bytea_output = 'escape'",
    "extra_float_digits = 0", "client_encoding = 'LATIN1'", "quote_all_identifiers = on",
    "standard_conforming_strings = off",
)  # fmt: skip

UTC = datetime.UTC
LAST = datetime.datetime.max  # noqa: DTZ901


@pytest.fixture(
    params=["postgres18", *(pytest.param(one, marks=pytest.mark.slow) for one in ("postgres16", "postgres17"))]
)
def typed(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database with the types of the table, on each server."""
    created = create_database(request.getfixturevalue(request.param))
    created.execute(NEEDS)
    yield created
    drop_database(created)


def supported(database: Database, types: Sequence[SqlType]) -> list[SqlType]:
    """Return the types the server has, their extensions created."""
    available = {name for (name,) in database.execute("SELECT name FROM pg_available_extensions")}
    for name in {kind.extension for kind in types} & available:
        database.execute(f"CREATE EXTENSION {name}")
    try:
        database.execute("SELECT '<a/>'::xml")
    except psycopg.errors.FeatureNotSupported:
        types = [kind for kind in types if kind.sql != "xml"]
    return [kind for kind in types if kind.extension is None or kind.extension in available]


def with_odd_manners(database: Database) -> Database:
    """Return the database as a role sees it that prefers everything to be printed differently."""
    database.execute("DROP ROLE IF EXISTS odd; CREATE ROLE odd LOGIN SUPERUSER REPLICATION")
    for manner in ODD_MANNERS:
        database.execute(f"ALTER ROLE odd SET {manner}")
    seen = Database(database.server, database.name)
    seen.url = database.server.url(database.name, user="odd")
    return seen


def insert(database: Database, types: Sequence[SqlType], first_id: int) -> int:
    """Insert rows that have every value of every type, and a row of NULLs; return their number."""
    count = max(len(kind.values) for kind in types)
    rows = [
        (first_id + row, *(None if row % (len(kind.values) + 1) == len(kind.values)
                           else kind.values[row % (len(kind.values) + 1)] for kind in types))
        for row in range(count)
    ]  # fmt: skip
    rows.append((first_id + count, *(None for _ in types)))
    with database.connect() as connection, connection.cursor() as cursor:
        places = ", ".join(f"%s::{kind.sql}" for kind in types)
        cursor.executemany(f"INSERT INTO everything VALUES (%s, {places})", rows)
    return len(rows)


def huge(database: Database, row: int) -> None:
    """Insert a row of values of one megabyte, which no compression makes small."""
    content = random.Random(row).randbytes(1 << 19)  # noqa: S311
    text = content.hex()
    values = {"text": text, "bytea": content * 2, "jsonb": f'{{"a": "{text}"}}', "text_list": [text, None, ""]}
    database.execute(
        f"INSERT INTO everything (id, {', '.join(values)}) VALUES ({row}, {', '.join(['%s'] * len(values))})",
        tuple(values.values()),
    )


def test_every_type_is_copied_streamed_and_updated(typed: Database, lake_folder: LakeFolder) -> None:
    replicated = with_odd_manners(typed)
    types = supported(typed, TYPES)
    names = [kind.name for kind in types]
    columns = ", ".join(f"{kind.name} {kind.sql}" for kind in types)
    typed.execute(f"CREATE TABLE everything (id int PRIMARY KEY, {columns})")
    insert(typed, types, 0)
    huge(typed, 900)
    with Pipeline(lake_folder.config(group({None: replicated}, {"everything": None})), lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.assert_equal("everything", oracle.source_rows(typed.url, "everything"))
        insert(typed, types, 1000)
        huge(typed, 1900)
        pipeline.wait_applied(replicated)
        pipeline.assert_equal("everything", oracle.source_rows(typed.url, "everything"))
        # Every column of every row from its neighbour, and then none but one: the large ones are not sent again.
        settings = ", ".join(f"{name} = other.{name}" for name in names)
        typed.execute(f"UPDATE everything mine SET {settings} FROM everything other WHERE other.id = mine.id + 1")
        typed.execute("UPDATE everything SET bool = NOT bool")
        typed.execute("DELETE FROM everything WHERE id % 10 = 3")
        pipeline.wait_applied(replicated)
        pipeline.assert_equal("everything", oracle.source_rows(typed.url, "everything"))
        table = oracle.open_table(lake_folder.pyiceberg, "shop.everything", catalog=lake_folder.catalog)
        found = {field.name: str(field.field_type) for field in table.schema().fields}
    assert found == {"id": "int"} | {kind.name: kind.iceberg for kind in types}


def tables_by_key(typed: Database, *, is_whole: bool) -> dict[str, SqlType]:
    """Make tables whose key is of a type, or has it in front of another column; return name -> type.

    Args:
        typed: The database.
        is_whole: Both for every type; else every type is a key once, on the one or the other server, and some are a
            part of one.
    """
    types = supported(typed, [kind for kind in TYPES if kind.is_key])
    if not is_whole and typed.server.version == 17:
        types = [kind for kind in types if kind.extension]
    only = {f"only_{kind.name}": kind for kind in types}
    by = {f"by_{kind.name}": kind for kind in (types if is_whole else types[::3])}
    for name, kind in only.items():
        typed.execute(f"CREATE TABLE {name} (k {kind.sql} PRIMARY KEY, n int)")
    for name, kind in by.items():
        typed.execute(f"CREATE TABLE {name} (k {kind.sql}, n int, PRIMARY KEY (k, n))")
    return only | by


def fill_keys(typed: Database, tables: dict[str, SqlType], start: int) -> None:
    """Insert every second value of the types."""
    with typed.connect() as connection:
        for name, kind in tables.items():
            # Bounds of arrays are refused in keys: a list does not keep them.
            values = [value for value in kind.values if "]=" not in str(value)]
            insert = f"INSERT INTO {name} VALUES (%s::{kind.sql}, %s) ON CONFLICT DO NOTHING"
            for place, value in enumerate(values[start::2]):
                connection.execute(insert, (value, place))


def change_keys(typed: Database, tables: dict[str, SqlType]) -> None:
    with typed.connect() as connection:
        for name in tables:
            if name.startswith("only_"):
                connection.execute(f"UPDATE {name} SET n = n + 1")
            else:
                connection.execute(f"UPDATE {name} SET n = n + 1000 WHERE n % 2 = 0")
                connection.execute(f"DELETE FROM {name} WHERE n % 3 = 1")


WHOLE = [pytest.param(server, True, marks=pytest.mark.slow) for server in ("postgres16", "postgres18", "postgres17")]


@pytest.mark.parametrize(
    ("typed", "is_whole"),
    [("postgres18", False), pytest.param("postgres17", False, marks=pytest.mark.slow), *WHOLE],
    indirect=["typed"],
)
def test_keys_of_every_type(typed: Database, lake_folder: LakeFolder, *, is_whole: bool) -> None:
    """Rows are found again by keys of every type, by an index that was lost as well."""
    tables = tables_by_key(typed, is_whole=is_whole)

    def check(pipeline: Pipeline) -> None:
        pipeline.wait_applied(typed)
        for name in tables:
            pipeline.assert_equal(name, oracle.source_rows(typed.url, name), key=("k",))

    fill_keys(typed, tables, 0)
    config = lake_folder.config(group({None: typed}, dict.fromkeys(tables)))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        fill_keys(typed, tables, 1)
        change_keys(typed, tables)
        check(pipeline)
    shutil.rmtree(lake_folder.folder / "state")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        change_keys(typed, tables)
        check(pipeline)


UUIDS = (
    "00000000-0000-0000-0000-000000000000", "01000000-0000-0000-7000-000000000000",
    "7fffffff-ffff-ffff-8000-000000000000", "7fffffff-ffff-ffff-ffff-ffffffffffff",
    "80000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff",
)  # fmt: skip


def test_spark_passes_over_no_file_with_a_key_that_is_asked_for(database: Database, lake_folder: LakeFolder) -> None:
    """Iceberg's spec orders them by their bytes, and Java, which Spark goes by, by two numbers with signs.

    NaN is greater than all for Spark, and in no bounds.
    """
    database.execute("CREATE TABLE items (id uuid PRIMARY KEY, n int)")
    database.execute("CREATE TABLE floats (id float8 PRIMARY KEY); INSERT INTO floats VALUES ('NaN'), (1)")
    insert = "INSERT INTO items SELECT v::uuid, n FROM unnest(%s::text[]) WITH ORDINALITY AS given (v, n)"
    database.execute(insert, (list(UUIDS[::2]),))
    tables = {"items": None, "floats": None}
    with Pipeline(lake_folder.config(group({None: database}, tables)), lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute(insert, (list(UUIDS[1::2]),))
        pipeline.wait_applied(database)
    rows = lake_folder.session.table(lake_folder.spark_name("items"))
    for place, value in enumerate(UUIDS):
        found = [{row.id for row in rows.where(f"id {sign} '{value}'").collect()} for sign in ("=", ">=", "<")]
        assert found == [{value}, set(UUIDS[place:]), set(UUIDS[:place])], value
    assert lake_folder.session.table(lake_folder.spark_name("floats")).where("id > 5").count() == 1


#: SQL type, a value that the lake cannot hold, what it becomes under `clamp`.
OUT_OF_RANGE = [
    ("date", "infinity", datetime.date.max),
    ("date", "0044-03-15 BC", datetime.date.min),
    ("timestamp", "-infinity", datetime.datetime(1, 1, 1)),  # noqa: DTZ001
    ("timestamp", "294276-12-31 23:59:59.999999", LAST),
    ("timestamptz", "infinity", datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ("timestamptz", "4714-11-24 00:00:00+00 BC", datetime.datetime(1, 1, 1, tzinfo=UTC)),
    ("date[]", "{-infinity,2024-02-29,NULL}", (datetime.date.min, datetime.date(2024, 2, 29), None)),
]


def values_of(pipeline: Pipeline, target: str) -> dict[int, object]:
    """Return id -> v as Spark reads them."""
    rows = oracle.lake_rows_spark(pipeline.folder.session, f"{pipeline.folder.catalog}.shop.`{target}`", ["id", "v"])
    return {row[0]: row[1] for row in rows.rows}


def shown_error(pipeline: Pipeline, target: str) -> str:
    """Wait until a target is in error and return its message."""
    pipeline.wait_state("shop", f"shop.{target}", State.ERROR)
    return next(str(t.error) for t in pipeline.app.view().tables if t.target == f"shop.{target}")


# Slow: test_accounted_for.py has values of some types that do not fit, test_types_option.py what to do about all.
@pytest.mark.slow
def test_values_out_of_range_stop_their_table_alone(database: Database, lake_folder: LakeFolder) -> None:
    """By default; in the copy and in the stream; and nothing is lost when the map then says what to do with them."""
    tables = {f"t{place}": case for place, case in enumerate(OUT_OF_RANGE)}
    for name, (kind, value, _) in tables.items():
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v {kind})")
        database.execute(f"INSERT INTO {name} VALUES (1, NULL)")
        if name in ("t0", "t3"):
            database.execute(f"INSERT INTO {name} VALUES (2, %s)", (value,))
    database.execute("CREATE TABLE fine (id int PRIMARY KEY, v date)")
    config = lake_folder.config(group({None: database}, dict.fromkeys([*tables, "fine"])))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_state("shop", "shop.fine", State.STREAMING)
        for name, (_, value, _) in tables.items():
            if name not in ("t0", "t3"):
                pipeline.wait_state("shop", f"shop.{name}", State.STREAMING)
                database.execute(f"INSERT INTO {name} VALUES (2, %s)", (value,))
        for name, (_, value, _) in tables.items():
            error = shown_error(pipeline, name)
            said = re.escape(f"source shop, table public.{name}, column v: value {value.strip('{}').split(',')[0]!r}")
            assert re.match(said + r" is outside the years 0001 to 9999", error), error
            if name not in ("t0", "t3"):
                assert re.search(r"transaction [0-9A-F]+/[0-9A-F]+", error), error
            assert "hint: put `out_of_range: null | clamp` or `types: {v: string}` into the table's entry" in error
            assert values_of(pipeline, name) == ({} if name in ("t0", "t3") else {1: None})
        database.execute("INSERT INTO fine VALUES (1, '2024-02-29')")
        wait_until(lambda: values_of(pipeline, "fine") == {1: datetime.date(2024, 2, 29)}, "the others go on")
    for name in tables:
        database.execute(f"INSERT INTO {name} VALUES (3, NULL)")
    for policy in ("clamp", "null"):
        config = lake_folder.config(
            group({None: database}, {name: {"out_of_range": policy} for name in [*tables, "fine"]})
        )
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_streaming()
            for name, (_, value, _) in tables.items():
                database.execute(f"INSERT INTO {name} VALUES (%s, %s)", (4 if policy == "clamp" else 5, value))
            pipeline.wait_applied(database)
            for name, (_, _, clamped) in tables.items():
                nulled = (None, *clamped[1:]) if isinstance(clamped, tuple) else None
                now = clamped if policy == "clamp" else nulled  # another policy has the table copied again
                expected = {1: None, 2: now, 3: None, 4: now, 5: nulled}
                if policy == "clamp":
                    del expected[5]
                assert values_of(pipeline, name) == expected, (name, policy)


@pytest.mark.parametrize("policy", ["null", "clamp"])
def test_a_key_out_of_range_stops_its_table_whatever_the_policy(
    database: Database, lake_folder: LakeFolder, policy: str
) -> None:
    """Two keys must never become one, and a key is never NULL."""
    for name in ("copied", "streamed"):
        database.execute(f"CREATE TABLE {name} (id int, v date, PRIMARY KEY (id, v))")
    database.execute("INSERT INTO copied VALUES (1, 'infinity'), (1, '9999-12-31')")
    database.execute("INSERT INTO streamed VALUES (1, '9999-12-31')")
    tables = {name: {"out_of_range": policy} for name in ("copied", "streamed")}
    with Pipeline(lake_folder.config(group({None: database}, tables)), lake_folder) as pipeline:
        pipeline.wait_state("shop", "shop.streamed", State.STREAMING)
        database.execute("INSERT INTO streamed VALUES (1, 'infinity')")
        for name in ("copied", "streamed"):
            error = shown_error(pipeline, name)
            assert f"table public.{name}, column v: value 'infinity' is outside the years" in error
            assert "out_of_range: null | clamp" not in error
        assert values_of(pipeline, "streamed") == {1: datetime.date.max}


def test_decimals_of_the_map_hold_what_fits_and_stop_at_the_rest(database: Database, lake_folder: LakeFolder) -> None:
    bad = {"nan": ("NaN", "is no finite number"), "inf": ("-Infinity", "is no finite number"),
           "big": ("12345678901234567", "has more digits"),
           "fine_scale": ("0.00001", "has more fractional digits")}  # fmt: skip
    for name in (*bad, "good", "nulled"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v numeric, w numeric[])")
        database.execute(
            f"INSERT INTO {name} VALUES (1, 1.5, '{{1.5000,NULL}}'), (2, -1234567890123456.7890, '{{}}')"
        )
    decimals = {"v": "decimal(20,4)", "w": "decimal(38,6)"}
    tables = {name: {"decimals": decimals} for name in (*bad, "good")}
    tables["nulled"] = {"decimals": decimals, "out_of_range": "null"}
    with Pipeline(lake_folder.config(group({None: database}, tables)), lake_folder) as pipeline:
        pipeline.wait_streaming()
        for name, (value, _) in bad.items():
            database.execute(f"INSERT INTO {name} VALUES (3, %s::numeric)", (value,))
        for name in ("good", "nulled"):
            database.execute(f"INSERT INTO {name} VALUES (3, 0.5000, '{{0.25}}')")
        database.execute("INSERT INTO nulled VALUES (4, 'NaN', '{Infinity,1}')")
        for name, (value, said) in bad.items():
            error = shown_error(pipeline, name)
            assert f"source shop, table public.{name}, column v: value {value!r} {said}" in error
            assert values_of(pipeline, name) == {1: Decimal("1.5"), 2: Decimal("-1234567890123456.7890")}
        expected = {1: Decimal("1.5"), 2: Decimal("-1234567890123456.7890"), 3: Decimal("0.5")}
        wait_until(lambda: len(values_of(pipeline, "nulled")) == 4, "the others go on")
        wait_until(lambda: values_of(pipeline, "good") == expected, "the others go on")
        assert values_of(pipeline, "nulled") == expected | {4: None}
        table = oracle.open_table(lake_folder.pyiceberg, "shop.good", catalog=lake_folder.catalog)
    kinds = {field.name: str(field.field_type) for field in table.schema().fields}
    assert kinds == {"id": "int", "v": "decimal(20, 4)", "w": "list<decimal(38, 6)>"}


def test_arrays_of_several_dimensions(database: Database, lake_folder: LakeFolder) -> None:
    """A column declared so is text; in a column declared with one dimension such a value stops the table."""
    database.execute("CREATE TABLE grids (id int PRIMARY KEY, v int[][], w text[3][3])")
    database.execute("CREATE TABLE lists (id int PRIMARY KEY, v int[])")
    database.execute("""INSERT INTO grids VALUES (1, '{{1,2},{3,NULL}}', '{{"a b"}}'), (2, '{1}', NULL)""")
    config = lake_folder.config(group({None: database}, {"grids": None, "lists": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("INSERT INTO grids VALUES (3, '[0:0][1:2]={{1,2}}', '{}')")
        pipeline.wait_applied(database)
        pipeline.assert_equal("grids", oracle.source_rows(database.url, "grids"))
        database.execute("INSERT INTO lists VALUES (1, '{{1,2}}')")
        assert "value '{{1,2}}' is an array of several dimensions" in shown_error(pipeline, "lists")
        table = oracle.open_table(lake_folder.pyiceberg, "shop.grids", catalog=lake_folder.catalog)
    assert {field.name: str(field.field_type) for field in table.schema().fields} == {
        "id": "int", "v": "string", "w": "string"
    }  # fmt: skip
