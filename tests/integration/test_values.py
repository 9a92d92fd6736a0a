"""Every type, with its extremes, out of a real server by COPY and by the stream.

Both decode to the same values, and these are the values the server has, as psycopg or the server prints them.
"""

from __future__ import annotations

import datetime
import math
import random
import struct
import uuid
from collections.abc import Iterator
from decimal import Decimal

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from kuvasz.decode import columns, copytext, tuples
from kuvasz.decode.refusals import ValueRefused
from kuvasz.model import LakeType, PgType, ValueType
from kuvasz.typemap import BUILTIN, iceberg_name, value_type
from tests.support.postgres import Database, create_database, drop_database, needs

pytestmark = pytest.mark.postgres

#: What kuvasz sets on each of its connections. The test servers do not wait for their log, but the SQL functions
#: of a slot read no further than it is flushed.
SETTINGS = (
    "-c datestyle=ISO -c timezone=UTC -c extra_float_digits=3 -c bytea_output=hex -c intervalstyle=postgres"
    " -c client_encoding=UTF8 -c synchronous_commit=on"
)

DEFINITIONS = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'very happy', 'Žltý');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN price AS numeric(10,3);
CREATE DOMAIN dear_price AS price CHECK (VALUE > 0);
CREATE DOMAIN ints AS int[];
"""
#: Types that came with a version.
SINCE = {"numeric(3,5)": 15, "numeric(2,-3)": 15}
HAS_VECTOR = "SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"

RANDOM = random.Random(20240229)  # noqa: S311


def bits(count: int, pattern: str, floats: str) -> list[str]:
    """Random floats from all there are."""
    numbers = [struct.unpack(floats, struct.pack(pattern, RANDOM.getrandbits(8 * struct.calcsize(pattern))))[0]
               for _ in range(count)]  # fmt: skip
    return [repr(number) for number in numbers if math.isfinite(number)]


def digits(count: int) -> str:
    return "".join(RANDOM.choices("0123456789", k=count)) or "0"


def instants(count: int) -> list[str]:
    first, last = datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30)  # noqa: DTZ001
    span = (last - first) // datetime.timedelta(microseconds=1)
    return [str(first + datetime.timedelta(microseconds=RANDOM.randrange(span))) for _ in range(count)]


def words(count: int) -> list[str]:
    letters = "aZ09 \t\n\r\v\f\b\\\"'{},;()=>NULL\x01\x7fäß€😀\u2028"
    return ["".join(RANDOM.choices(letters, k=RANDOM.randrange(12))) for _ in range(count)]


def arrays(count: int, element) -> list[list]:
    return [[RANDOM.choice((None, element(), element())) for _ in range(RANDOM.randrange(5))] for _ in range(count)]


#: SQL type, Iceberg type, values as psycopg parameters or text.
CASES: list[tuple[str, str, list]] = [
    ("bool", "boolean", ["t", "f"]),
    ("int2", "int", ["-32768", "32767", "0"]),
    ("int4", "int", ["-2147483648", "2147483647", "0", "-1"]),
    ("int8", "long", ["-9223372036854775808", "9223372036854775807", "0",
                      *(str(RANDOM.randrange(-(2**63), 2**63)) for _ in range(100))]),
    ("oid", "long", ["0", "4294967295"]),
    ("float4", "float", ["NaN", "Infinity", "-Infinity", "-0", "1e-45", "3.4028235e38", "0.1", "16777217",
                         *bits(300, "<I", "<f")]),
    ("float8", "double", ["NaN", "Infinity", "-Infinity", "-0", "5e-324", "1.7976931348623157e308", "0.1",
                          *bits(300, "<Q", "<d")]),
    ("numeric(12,2)", "decimal(12, 2)", ["-9999999999.99", "9999999999.99", "0", "0.01", "-0.01",
                                         *(f"{digits(9)}.{digits(2)}" for _ in range(100))]),
    ("numeric(38,10)", "decimal(38, 10)", ["9" * 28 + "." + "9" * 10, "-" + "9" * 28 + "." + "9" * 10, "1e-10",
                                           *(f"-{digits(RANDOM.randrange(28))}.{digits(9)}" for _ in range(99))]),
    ("numeric(38,0)", "decimal(38, 0)", ["9" * 38, "-" + "9" * 38, "0", "18446744073709551616"]),
    ("numeric(38,38)", "decimal(38, 38)", ["0." + "9" * 38, "1e-38", "0"]),
    ("numeric(2,-3)", "decimal(38, 0)", ["99000", "-1499", "0"]),
    ("numeric(3,5)", "decimal(38, 5)", ["0.00999", "-0.00001", "0"]),
    ("numeric", "string", ["1.500", "NaN", "Infinity", "-Infinity", "1e-200", "9" * 200 + ".123", "0"]),
    ("numeric(50,3)", "string", ["9" * 47 + ".999"]),
    ("text", "string", ["", "NULL", "\\N", "\\.", "\\", "tab\tnewline\nreturn\r", "ünï😀", "x" * 100_000,
                        *words(300)]),
    ("varchar(5)", "string", ["abcde", "é"]),
    ("char(5)", "string", ["ab", "", "abcde"]),
    ("name", "string", ["a name", "x" * 63]),
    ('"char"', "string", ["x", ""]),
    ("xml", "string", ["<a>&amp;</a>"]),
    ("mood", "string", ["sad", "very happy", "Žltý"]),
    ("bytea", "binary", [b"", b"\x00\xff", bytes(range(256)),
                         *(RANDOM.randbytes(RANDOM.randrange(40)) for _ in range(50))]),
    ("date", "date", ["0001-01-01", "9999-12-31", "2024-02-29", "1970-01-01", "1900-02-28", "1582-10-10",
                      *(text[:10] for text in instants(200))]),
    ("timestamp", "timestamp", ["0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "2024-02-29 12:34:56.7",
                                "1969-12-31 23:59:59.999999", *instants(200)]),
    ("timestamptz", "timestamptz", ["0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00",
                                    "2024-02-29 12:34:56.789+05:30", *(text + "-07" for text in instants(200))]),
    ("timestamp(0)", "timestamp", ["2024-02-29 12:34:56.7"]),
    ("time", "string", ["00:00:00", "24:00:00", "12:34:56.789"]),
    ("timetz", "string", ["12:34:56.789+05:30"]),
    ("interval", "string", ["1 year 2 mons -3 days 04:05:06.7", "0", "infinity"]),
    ("uuid", "uuid", ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
                      *(str(uuid.UUID(int=RANDOM.getrandbits(128))) for _ in range(50))]),
    ("json", "string", ['{"a" : 1,\n "a":2 }', "null", '"\\u00e9\\\\"']),
    ("jsonb", "string", ['{"b" : 1, "a":[1e2, null]}', '"tab\\t"']),
    ("int4[]", "list<int>", ["{}", "{NULL}", "{1,NULL,-2147483648}", "[0:1]={4,5}", "[-3:-3]={1}"]),
    ("int8[]", "list<long>", ["{9223372036854775807}"]),
    ("bool[]", "list<boolean>", ["{t,f,NULL}"]),
    ("float4[]", "list<float>", ["{NaN,-Infinity,0.1,NULL}"]),
    ("float8[]", "list<double>", ["{NaN,-Infinity,0.1,NULL}"]),
    ("numeric(10,3)[]", "list<decimal(10, 3)>", ["{1.5,NULL,-9999999.999}", "{}"]),
    ("numeric[]", "list<string>", ["{1.50,NULL,NaN}"]),
    ("text[]", "list<string>", ["{}", '{"NULL",NULL,"","a,b","{}","\\"","\\\\"," x "}',
                                *arrays(200, lambda: words(1)[0])]),
    ("varchar(3)[]", "list<string>", ["{abc,NULL}"]),
    ("bytea[]", "list<binary>", arrays(30, lambda: RANDOM.randbytes(RANDOM.randrange(6)))),
    ("date[]", "list<date>", ["{2024-02-29,NULL}"]),
    ("timestamp[]", "list<timestamp>", ['{"2024-02-29 12:34:56.7",NULL}']),
    ("timestamptz[]", "list<timestamptz>", ['{"2024-02-29 12:34:56.7+02",NULL}']),
    ("uuid[]", "list<uuid>", ["{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11,NULL}"]),
    ("jsonb[]", "list<string>", [r'{"{\"a\": \"x\\\\y\"}",NULL}']),
    ("mood[]", "list<string>", ['{sad,"very happy",NULL}']),
    ("pair[]", "list<string>", [r'{"(1,\"a b\")",NULL}']),
    ("int4range[]", "list<string>", ['{"[1,5)",empty,NULL}']),
    ("box[]", "list<string>", ["{(1,1),(0,0);(2,2),(0,0)}"]),
    ("inet[]", "list<string>", ["{10.0.0.1/8,::1}"]),
    ("price", "decimal(10, 3)", ["1.5", "-9999999.999"]),
    ("dear_price", "decimal(10, 3)", ["1.5"]),
    ("price[]", "list<decimal(10, 3)>", ["{1.5,NULL}"]),
    ("ints", "list<int>", ["{1,NULL}"]),
    ("pair", "string", ['(1,"a ""b"" \\\\ ")', "(,)"]),
    ("int4range", "string", ["[1,5)", "empty"]),
    ("tstzrange", "string", ['["2024-01-01 00:00+02",)']),
    ("nummultirange", "string", ["{[1.5,2],[3,4)}", "{}"]),
    ("point", "string", ["(0.1,-2)"]),
    ("box", "string", ["(1,1),(0,0)"]),
    ("polygon", "string", ["((0,0),(1,1),(1,0))"]),
    ("inet", "string", ["192.168.0.1/24", "::1"]),
    ("cidr", "string", ["10.0.0.0/8"]),
    ("macaddr", "string", ["08:00:2b:01:02:03"]),
    ("bit(3)", "string", ["101"]),
    ("varbit", "string", ["", "10101"]),
    ("money", "string", ["-92233720368547758.08", "1.5"]),
    ("tsvector", "string", ["'a':1A 'it''s':2"]),
    ("tsquery", "string", ["'a' & !'b'"]),
    ("pg_lsn", "string", ["16/B374D848"]),
    ("int2vector", "string", ["1 2 3"]),
    ("regclass", "string", ["pg_class"]),
    ("vector(3)", "list<float>", ["[1,2.5,-1e-05]", "[0.1,3.4e38,0]"]),
    ("vector", "list<float>", ["[1]", "[1,2]"]),
]  # fmt: skip


@pytest.fixture(scope="module")
def typed(postgres18) -> Iterator[Database]:
    """A database with the types of the cases."""
    database = create_database(postgres18)
    with connected(database) as connection:
        connection.execute(DEFINITIONS)
        if connection.execute(HAS_VECTOR).fetchone():
            connection.execute("CREATE EXTENSION vector")
    yield database
    drop_database(database)


def connected(database: Database) -> psycopg.Connection:
    return database.connect(options=SETTINGS, autocommit=True)


class Table:
    """One table, published, with a slot that sees all its changes."""

    def __init__(self, connection: psycopg.Connection, definition: str, *, identity: str = "DEFAULT") -> None:
        self.connection = connection
        for statement in (
            "DROP TABLE IF EXISTS t", f"CREATE TABLE t ({definition})",
            f"ALTER TABLE t REPLICA IDENTITY {identity}",
            "DROP PUBLICATION IF EXISTS p", "CREATE PUBLICATION p FOR TABLE t",
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = 's'",
            "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
        ):  # fmt: skip
            connection.execute(statement)
        self.types = column_types(connection)

    def copied(self) -> tuples.Cells:
        with self.connection.cursor().copy("COPY (SELECT * FROM t ORDER BY id) TO STDOUT") as copy:
            return copytext.split_copy(b"".join(map(bytes, copy)), len(self.types))

    def streamed(self) -> tuples.RowChanges:
        rows = self.connection.execute(
            "SELECT data FROM pg_logical_slot_get_binary_changes('s', NULL, NULL, 'proto_version', '1',"
            " 'publication_names', 'p')"
        ).fetchall()
        messages = [data for (data,) in rows if data[:1] in (b"I", b"U", b"D")]
        lengths = np.array([len(message) for message in messages], np.uint32)
        return tuples.split_changes(b"".join(messages), lengths, len(self.types))


def column_types(connection: psycopg.Connection) -> list[ValueType]:
    rows = connection.execute(
        "SELECT atttypid, atttypmod FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0 ORDER BY attnum"
    ).fetchall()
    return [value_type(pg_type(connection, oid), typmod) for oid, typmod in rows]


def pg_type(connection: psycopg.Connection, oid: int) -> PgType:
    """A type as the catalog has it."""
    name, schema, category, element, base, base_typmod, delimiter = connection.execute(
        "SELECT t.typname, n.nspname, t.typtype, CASE WHEN e.typarray = t.oid THEN e.oid END, t.typbasetype,"
        " t.typtypmod, coalesce(e.typdelim, ',') FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace"
        " LEFT JOIN pg_type e ON e.oid = t.typelem AND e.typarray = t.oid WHERE t.oid = %s",
        (oid,),
    ).fetchone()
    return PgType(
        oid=oid, name=name, schema=schema, category=category,
        element=pg_type(connection, element) if element else None,
        base=pg_type(connection, base) if base else None,
        base_typmod=base_typmod, delimiter=delimiter,
    )  # fmt: skip


def printed(connection: psycopg.Connection, wanted: ValueType) -> list[object]:
    """The column's values without any of our code: as psycopg reads them, or as the server prints strings."""
    # A composite value whose fields are all NULL "is null" too.
    text = "CASE WHEN {0} IS DISTINCT FROM NULL THEN format('%s', {0}) END"
    expression = "v"
    if wanted.kind is LakeType.STRING:
        expression = text.format("v")
    elif wanted.wire.value == "vector":
        expression = "v::real[]"
    elif wanted.element is not None and wanted.element.kind is LakeType.STRING:
        elements = f"SELECT array_agg({text.format('e')}) FROM (SELECT unnest(v) AS e) s"
        expression = f"CASE WHEN v IS NULL THEN NULL ELSE coalesce(({elements}), '{{}}') END"
    elif wanted.element is not None and wanted.element.kind is LakeType.DECIMAL:
        expression = "v::numeric[]"
    rows = connection.execute(f"SELECT {expression} FROM t ORDER BY id").fetchall()
    return [read(value, wanted) for (value,) in rows]


def read(value: object, wanted: ValueType) -> object:
    """A value of psycopg as Arrow has it."""
    if value is None:
        return None
    if wanted.kind is LakeType.LIST:
        return [read(element, wanted.element) for element in value]
    if wanted.kind is LakeType.FLOAT:
        return float(np.float32(repr(value)))
    if wanted.kind is LakeType.UUID:
        return value.bytes
    return value


def same(value: object) -> object:
    """A form in which -0.0 is not 0.0 and NaN is NaN."""
    if isinstance(value, list | tuple):
        return [same(one) for one in value]
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack(">d", value)
    return value


@pytest.mark.parametrize(("sql_type", "iceberg", "values"), CASES, ids=[case[0] for case in CASES])
def test_copy_and_stream_decode_to_what_the_server_has(typed, sql_type: str, iceberg: str, values: list) -> None:
    needs(typed.server, SINCE.get(sql_type, 14), sql_type)
    if sql_type == "interval" and typed.server.version < 17:
        values = [value for value in values if "infinity" not in value]
    with connected(typed) as connection:
        if sql_type.startswith("vector") and not connection.execute(HAS_VECTOR).fetchone():
            pytest.skip("the server has no extension vector")
        table = Table(connection, f"id int PRIMARY KEY, v {sql_type}")
        assert iceberg_name(table.types[1]) == iceberg
        with connection.cursor() as cursor:
            rows = list(enumerate([*values, None]))
            try:
                cursor.executemany(f"INSERT INTO t VALUES (%s, %s::{sql_type})", rows)
            except psycopg.errors.FeatureNotSupported as error:
                pytest.skip(str(error))  # xml, if the server was built without it
        copied = columns.column(table.copied(), 1, table.types[1])
        streamed = columns.column(table.streamed().new, 1, table.types[1])
        wanted = printed(connection, table.types[1])
    copied.validate(full=True)
    assert len(copied) == len(values) + 1
    assert same(copied.to_pylist()) == same(streamed.to_pylist()) == same(wanted)


UTC = datetime.UTC


@pytest.mark.parametrize(
    ("sql_type", "value", "clamped"),
    [
        ("date", "infinity", datetime.date.max), ("date", "-infinity", datetime.date.min),
        ("date", "4714-11-24 BC", datetime.date.min), ("date", "5874897-12-31", datetime.date.max),
        ("timestamp", "infinity", datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)),  # noqa: DTZ001
        ("timestamp", "0001-12-31 23:59:59 BC", datetime.datetime(1, 1, 1)),  # noqa: DTZ001
        ("timestamptz", "-infinity", datetime.datetime(1, 1, 1, tzinfo=UTC)),
        ("timestamptz", "294276-12-31 23:59:59.999999+00",
         datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
        ("timestamptz", "4714-11-24 00:00:00+00 BC", datetime.datetime(1, 1, 1, tzinfo=UTC)),
        ("date[]", "{infinity}", [datetime.date.max]),
    ],
)  # fmt: skip
def test_times_outside_the_range_follow_the_policy(typed, sql_type: str, value: str, clamped: object) -> None:
    with connected(typed) as connection:
        table = Table(connection, f"id int PRIMARY KEY, v {sql_type}")
        connection.execute(f"INSERT INTO t VALUES (1, '{value}')")
        for cells in (table.copied(), table.streamed().new):
            with pytest.raises(ValueRefused, match="is outside the years"):
                columns.column(cells, 1, table.types[1])
            assert columns.column(cells, 1, table.types[1], out_of_range="clamp").to_pylist() == [clamped]
            nulled = [None] if isinstance(clamped, list) else None
            assert columns.column(cells, 1, table.types[1], out_of_range="null").to_pylist() == [nulled]


def test_numerics_as_decimals_by_the_map_fit_or_are_refused(typed) -> None:
    with connected(typed) as connection:
        table = Table(connection, "id int PRIMARY KEY, v numeric")
        connection.execute("INSERT INTO t VALUES (1, 1.5000), (2, 1e20), (3, 0.00001), (4, 'NaN')")
        cells, asked = table.copied(), value_type(BUILTIN[1700], -1, decimal=(20, 4))
    assert columns.column(cells, 1, asked, np.array([0], np.int32)).to_pylist() == [Decimal("1.5000")]
    for row, said in ((1, "more digits"), (2, "more fractional digits"), (3, "no finite number")):
        with pytest.raises(ValueRefused, match=said) as refused:
            columns.column(cells, 1, asked, np.array([0, row], np.int32))
        assert refused.value.row == row


def test_arrays_of_several_dimensions_are_refused_or_text(typed) -> None:
    with connected(typed) as connection:
        table = Table(connection, "id int PRIMARY KEY, v int[]")
        connection.execute("INSERT INTO t VALUES (1, '{{1,2},{3,4}}'), (2, '[0:0][1:2]={{1,2}}')")
        cells = table.copied()
    for row in (0, 1):
        with pytest.raises(ValueRefused, match="several dimensions"):
            columns.column(cells, 1, table.types[1], np.array([row], np.int32))
    as_text = value_type(BUILTIN[1007], -1, as_text=True)
    assert columns.column(cells, 1, as_text).to_pylist() == ["{{1,2},{3,4}}", "[0:0][1:2]={{1,2}}"]


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_updates_and_deletes_carry_their_old_rows_and_unchanged_values_are_filled(typed, identity: str) -> None:
    big = "".join(RANDOM.choices("abcdefghijklmnopqrstuvwxyz", k=20_000))
    with connected(typed) as connection:
        table = Table(connection, "id int PRIMARY KEY, n int, big text", identity=identity)
        connection.execute("ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
        for statement in (
            f"INSERT INTO t VALUES (1, 1, '{big}')", "UPDATE t SET n = 2", "UPDATE t SET id = 5",
            "UPDATE t SET n = 3", "DELETE FROM t",
        ):  # fmt: skip
            connection.execute(statement)
        changes = table.streamed()
    assert bytes(changes.tag) == b"IUUUD"
    is_full = identity == "FULL"
    assert bytes(changes.old_tag) == (b"\0OOOO" if is_full else b"\0\0K\0K")
    assert changes.new.length[2].tolist() == [20_000, -2, -2, -2, -1]
    old = columns.column(changes.old, 0, table.types[0]).to_pylist()
    assert old == ([1, 1, 5, 5] if is_full else [1, 5])
    alone = np.array([-1, -1, -1, -1, -1], np.int32)
    if not is_full:
        assert tuples.fill_unchanged(changes, alone).tolist() == [1, 2, 3]
    assert tuples.fill_unchanged(changes, alone if is_full else np.array([-1, 0, 1, 2, 3], np.int32)).tolist() == []
    assert columns.column(changes.new, 2, table.types[2]).to_pylist() == [big, big, big, big, None]
    assert columns.column(changes.new, 1, table.types[1]).to_pylist() == [1, 2, 2, 3, None]


def test_built_in_types_are_those_of_the_catalog(typed, postgres16) -> None:
    for server in (typed.server, postgres16):
        with psycopg.connect(server.url()) as connection:
            # Neither pseudo-types nor the row types of the catalog's own tables, nor arrays of either.
            rows = connection.execute(
                "SELECT t.oid FROM pg_type t LEFT JOIN pg_type e ON e.typarray = t.oid WHERE t.oid < 10000"
                " AND t.typtype IN ('b', 'r', 'm') AND coalesce(e.typtype, 'b') IN ('b', 'r', 'm')"
            ).fetchall()
            assert {oid: pg_type(connection, oid) for (oid,) in rows} == BUILTIN


def test_generated_and_dropped_columns_leave_no_gap(typed) -> None:
    with connected(typed) as connection:
        connection.execute("DROP TABLE IF EXISTS t")
        table = Table(connection, "id int PRIMARY KEY, gone int, v text")
        connection.execute("ALTER TABLE t DROP gone")
        connection.execute("INSERT INTO t VALUES (1, 'kept')")
        table.types = [table.types[0], table.types[2]]
        for cells in (table.copied(), table.streamed().new):
            assert columns.column(cells, 1, table.types[1]).to_pylist() == ["kept"]


def test_a_thousand_rows_of_many_columns_agree(typed) -> None:
    with connected(typed) as connection:
        table = Table(
            connection, "id int PRIMARY KEY, a bigint, b text, c numeric(12,2), d timestamptz, e bool, f int[]"
        )
        connection.execute(
            "INSERT INTO t SELECT i, i * 1000003, CASE WHEN i % 7 > 0 THEN repeat(E'x\\t\\\\', i % 5) END,"
            " (i * 37 % 1000) / 100.0, timestamptz '2024-01-01' + i * interval '1 second', i % 2 = 0,"
            " ARRAY[i, NULL, -i] FROM generate_series(1, 1000) i"
        )
        copied, streamed = table.copied(), table.streamed().new
        rows = connection.execute("SELECT * FROM t ORDER BY id").fetchall()
    both = [
        pa.Table.from_arrays(
            [columns.column(cells, index, kind) for index, kind in enumerate(table.types)], names=list("iabcdef")
        )
        for cells in (copied, streamed)
    ]
    assert both[0].equals(both[1])
    assert [tuple(row.values()) for row in both[0].to_pylist()] == rows
