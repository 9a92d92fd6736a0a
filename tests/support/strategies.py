"""PostgreSQL's types with their hardest values, and random programs of SQL over them.

A value is a psycopg parameter, cast to its type in the statement. `TYPES` is the table of the user's manual
("Types") as data; `programs` draws tables and what an application does to them.
"""

from __future__ import annotations

import dataclasses
import random
import re
import struct
from typing import Any

from hypothesis import strategies as st

from tests.support.postgres import VERSION

_RANDOM = random.Random(20240229)  # noqa: S311

NEEDS = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'very happy', 'Žltý');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN price AS numeric(10,3);
CREATE DOMAIN dear_price AS price CHECK (VALUE > 0);
CREATE DOMAIN ints AS int[];
CREATE DOMAIN email AS varchar(40);
"""


@dataclasses.dataclass(frozen=True, slots=True)
class SqlType:
    """A column type, what it is in the lake, and values that are likely to go wrong."""

    sql: str
    iceberg: str
    values: tuple[Any, ...]
    extension: str | None = None  #: that the server must have
    is_key: bool = False  #: whether a key of it is worth a test
    drawn: st.SearchStrategy[Any] | None = None  #: further values

    @property
    def name(self) -> str:
        """A column name made of the type's."""
        return re.sub(r"\W+", "_", self.sql.replace("[]", "_list")).strip("_")

    def any_value(self) -> st.SearchStrategy[Any]:
        """Draw a value, NULL left out."""
        some = st.sampled_from(self.values)
        return some if self.drawn is None else some | self.drawn


def _floats(count: int, word: str, number: str) -> tuple[str, ...]:
    """Return random bit patterns as floats."""
    size = struct.calcsize(word)
    return tuple(repr(struct.unpack(number, _RANDOM.randbytes(size))[0]) for _ in range(count))


CONTROLS = tuple(f"<{chr(code)}>" for code in (*range(1, 32), 127, 128, 159))
TEXTS = (
    "", " ", "NULL", "null", "\\N", "\\.", "\\", "\\\\", "\\t", "tab\there", "line\nfeed", "return\r", "\r\n",
    "'", '"', '""', "{}", "{NULL}", "a,b", "%s %",
    "ünï", "Žltý", "😀🏳️‍🌈", "e\u0301", "\u2028\ufeff\ufffd\uffff", "\U0010ffff",
    "".join(map(chr, range(1, 128))), *CONTROLS,
)  # fmt: skip
_letters = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
_texts = st.text(_letters, max_size=30)
_numerics = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=4).map(str)


def _list(element: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | element, max_size=4)


_ALL_TYPES: tuple[SqlType, ...] = (
    SqlType("bool", "boolean", ("t", "f"), is_key=True),
    SqlType("int2", "int", ("-32768", "32767", "0", "-1"), is_key=True),
    SqlType("int4", "int", ("-2147483648", "2147483647", "0", "-1"), is_key=True,
            drawn=st.integers(-(2**31), 2**31 - 1).map(str)),
    SqlType("int8", "long", ("-9223372036854775808", "9223372036854775807", "0", "-1"), is_key=True,
            drawn=st.integers(-(2**63), 2**63 - 1).map(str)),
    SqlType("oid", "long", ("0", "4294967295"), is_key=True),
    SqlType("float4", "float", ("NaN", "Infinity", "-Infinity", "-0", "0", "1e-45", "-3.4028235e38", "0.1",
                                "16777217", *_floats(20, "I", "f")), is_key=True),
    SqlType("float8", "double", ("NaN", "Infinity", "-Infinity", "-0", "0", "5e-324", "-1.7976931348623157e308",
                                 "0.1", *_floats(20, "Q", "d")), is_key=True, drawn=st.floats().map(repr)),
    SqlType("numeric(12,2)", "decimal(12, 2)", ("-9999999999.99", "9999999999.99", "0", "0.01", "-0.01"),
            is_key=True),
    SqlType("numeric(9,0)", "decimal(9, 0)", ("-999999999", "999999999", "0")),
    SqlType("numeric(38,0)", "decimal(38, 0)", ("9" * 38, "-" + "9" * 38, "0", "18446744073709551616"), is_key=True),
    SqlType("numeric(38,38)", "decimal(38, 38)", ("0." + "9" * 38, "-0." + "9" * 38, "1e-38", "0"), is_key=True),
    SqlType("numeric(38,10)", "decimal(38, 10)", ("9" * 28 + ".9999999999", "-1e-10", "0")),
    SqlType("numeric(10,-2)", "decimal(38, 0)", ("999999999900", "-999999999900", "0", "149")),
    SqlType("numeric(3,5)", "decimal(38, 5)", ("0.00999", "-0.00999", "0", "0.00001")),
    SqlType("numeric", "string", ("1.500", "NaN", "Infinity", "-Infinity", "1e-200", "9" * 200 + ".123", "0",
                                   "-0.00"), is_key=True, drawn=_numerics),
    SqlType("numeric(50,3)", "string", ("9" * 47 + ".999", "0.000")),
    SqlType("text", "string", TEXTS, is_key=True, drawn=_texts),
    SqlType("varchar(5)", "string", ("", "abcde", "é😀"), is_key=True),
    SqlType("varchar", "string", ("", "x" * 300)),
    SqlType("char(5)", "string", ("ab", "", "abcde", "\t\n"), is_key=True),
    SqlType("name", "string", ("a name", "x" * 63), is_key=True),
    SqlType('"char"', "string", ("x", "")),
    SqlType("citext", "string", ("Žltý", "ABC", "\\N"), extension="citext", is_key=True),
    SqlType("xml", "string", ("<a>&amp;\n</a>", "text")),
    SqlType("mood", "string", ("sad", "very happy", "Žltý"), is_key=True),
    SqlType("bytea", "binary", (b"", b"\0", b"\xff" * 20, bytes(range(256)), b"\\x00", b"\\N\n\t"), is_key=True,
            drawn=st.binary(max_size=30)),
    SqlType("date", "date", ("0001-01-01", "9999-12-31", "2024-02-29", "1970-01-01", "1900-02-28", "1582-10-10"),
            is_key=True, drawn=st.dates().map(str)),
    SqlType("timestamp", "timestamp", ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999",
                                       "1969-12-31 23:59:59.999999", "2024-02-29 12:34:56.7", "1582-10-10 01:02:03"),
            is_key=True, drawn=st.datetimes().map(str)),
    SqlType("timestamptz", "timestamptz", ("0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00",
                                           "2024-03-31 02:30:00+05:30", "1883-11-18 12:00:00-08"), is_key=True,
            drawn=st.datetimes().map(lambda at: f"{at}+00")),
    SqlType("timestamp(0)", "timestamp", ("2024-02-29 12:34:56.7",)),
    SqlType("time", "string", ("00:00:00", "24:00:00", "23:59:59.999999"), is_key=True),
    SqlType("timetz", "string", ("12:34:56.789+05:30", "00:00:00-15:59:59")),
    SqlType("interval", "string", ("1 year 2 mons -3 days 04:05:06.7", "0", "-178000000 years", "00:00:00.000001")),
    SqlType("uuid", "uuid", ("A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "00000000-0000-0000-0000-000000000000",
                             "ffffffff-ffff-ffff-ffff-ffffffffffff", "80000000-0000-0000-7fff-ffffffffffff"),
            is_key=True, drawn=st.uuids().map(str)),
    SqlType("json", "string", ('{"a" : 1,\n "a":2 }', "null", '"\\u00e9\\\\"', " [ ] ")),
    SqlType("jsonb", "string", ('{"b" : 1, "a":[1e2, null]}', '"tab\\t"', "null", '{"😀": "\\\\N"}')),
    SqlType("int2[]", "list<int>", ("{-32768,32767}",)),
    SqlType("int4[]", "list<int>", ("{}", "{NULL}", "{1,NULL,-2147483648}", "[0:1]={4,5}", "[-3:-3]={1}"),
            is_key=True, drawn=_list(st.integers(-9, 9))),
    SqlType("int8[]", "list<long>", ("{9223372036854775807,-9223372036854775808}", "{}")),
    SqlType("bool[]", "list<boolean>", ("{t,f,NULL}", "{}")),
    SqlType("float4[]", "list<float>", ("{NaN,-Infinity,0.1,NULL,-0}",)),
    SqlType("float8[]", "list<double>", ("{NaN,-Infinity,0.1,NULL,-0}",)),
    SqlType("numeric(10,3)[]", "list<decimal(10, 3)>", ("{1.5,NULL,-9999999.999}", "{}")),
    SqlType("numeric(38,38)[]", "list<decimal(38, 38)>", ("{1e-38,NULL}",)),
    SqlType("numeric[]", "list<string>", ("{1.50,NULL,NaN}", "{}")),
    SqlType("text[]", "list<string>", ("{}", "{NULL}", '{"NULL",NULL,"","a,b","{}","\\"","\\\\"," x "}', list(TEXTS)),
            is_key=True, drawn=_list(_texts)),
    SqlType("varchar(3)[]", "list<string>", ("{abc,NULL}",)),
    SqlType("bytea[]", "list<binary>", ([b"", None, bytes(range(256))], [])),
    SqlType("date[]", "list<date>", ("{0001-01-01,9999-12-31,NULL}", "{}")),
    SqlType("timestamp[]", "list<timestamp>", ('{"0001-01-01 00:00:00","9999-12-31 23:59:59.999999",NULL}',)),
    SqlType("timestamptz[]", "list<timestamptz>", ('{"2024-02-29 12:34:56.7+02",NULL}', "{NULL}", "{}")),
    SqlType("uuid[]", "list<uuid>", ("{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11,NULL}", "{}", "{NULL}")),
    SqlType("jsonb[]", "list<string>", (r'{"{\"a\": \"x\\\\y\"}",NULL}',)),
    SqlType("mood[]", "list<string>", ('{sad,"very happy",NULL}',)),
    SqlType("pair[]", "list<string>", (r'{"(1,\"a b\")",NULL}',)),
    SqlType("int4range[]", "list<string>", ('{"[1,5)",empty,NULL}',)),
    SqlType("box[]", "list<string>", ("{(1,1),(0,0);(2,2),(0,0)}",)),
    SqlType("inet[]", "list<string>", ("{10.0.0.1/8,::1}",)),
    SqlType("price", "decimal(10, 3)", ("1.5", "-9999999.999")),
    SqlType("dear_price", "decimal(10, 3)", ("1.5", "9999999.999"), is_key=True),
    SqlType("ints", "list<int>", ("{1,NULL}", "{}")),
    SqlType("email", "string", ("a@b", "")),
    SqlType("pair", "string", ('(1,"a ""b"" \\\\ ")', "(,)")),
    SqlType("int4range", "string", ("[1,5)", "empty", "(,)"), is_key=True),
    SqlType("tstzrange", "string", ('["2024-01-01 00:00+02",)', "(,infinity]")),
    SqlType("nummultirange", "string", ("{[1.5,2],[3,4)}", "{}")),
    SqlType("point", "string", ("(0.1,-2)", "(NaN,Infinity)")),
    SqlType("box", "string", ("(1,1),(0,0)",)),
    SqlType("circle", "string", ("<(0,0),1e-300>",)),
    SqlType("polygon", "string", ("((0,0),(1,1),(1,0))",)),
    SqlType("inet", "string", ("192.168.0.1/24", "::1", "10.0.0.1"), is_key=True),
    SqlType("cidr", "string", ("10.0.0.0/8", "::/0")),
    SqlType("macaddr", "string", ("08:00:2b:01:02:03",)),
    SqlType("macaddr8", "string", ("08:00:2b:01:02:03:04:05",)),
    SqlType("bit(3)", "string", ("101", "000")),
    SqlType("varbit", "string", ("", "10101")),
    SqlType("money", "string", ("-92233720368547758.08", "1.5")),
    SqlType("tsvector", "string", ("'a':1A 'it''s':2", "")),
    SqlType("tsquery", "string", ("'a' & !'b'",)),
    SqlType("pg_lsn", "string", ("16/B374D848", "0/0", "FFFFFFFF/FFFFFFFF"), is_key=True),
    SqlType("int2vector", "string", ("1 2 3", "")),
    SqlType("regclass", "string", ("pg_class",)),
    SqlType("hstore", "map<string, string>", ('"a"=>"1", "b"=>NULL', "", '"\\""=>"\\\\", ""=>"", "NULL"=>"NULL"',
                                              '"😀"=>"=>", "x"=>"tab\tline\n"'), extension="hstore"),
    SqlType("vector(3)", "list<float>", ("[1,2.5,-1e-05]", "[0.1,3.4e38,0]"), extension="vector"),
    SqlType("vector", "list<float>", ("[1]", "[1,2]"), extension="vector"),
)  # fmt: skip

#: Scales below zero, and above the precision, came with PostgreSQL 15.
_FROM_15 = ("numeric(10,-2)", "numeric(3,5)")

#: What the server that most tests have knows.
TYPES = tuple(kind for kind in _ALL_TYPES if VERSION >= 15 or kind.sql not in _FROM_15)


# --- programs

Statement = tuple[str, tuple[Any, ...]]

#: Long enough to be stored out of line, where an UPDATE leaves them out; the last is too long for one page.
_LARGE = tuple("".join(_RANDOM.choices("abcdefgh😀", k=size)) for size in (2100, 3000, 9000))
_LARGE_TYPES = {
    "text": st.sampled_from(_LARGE),
    "bytea": st.sampled_from(_LARGE).map(str.encode),
    "text[]": st.sampled_from(_LARGE).map(lambda text: [text, None, ""]),
    "jsonb": st.sampled_from(_LARGE).map(lambda text: f'{{"a": "{text}"}}'),
    "numeric": st.sampled_from(("7" * 9000, "0." + "3" * 9000)),
}
#: No index entry may be longer than a third of a page; this key is stored out of line all the same.
_LARGE_KEY = "".join(_RANDOM.choices("abcdefgh", k=2300))


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """A random table; the first columns are its key."""

    name: str
    columns: tuple[SqlType, ...]
    key_count: int
    identity: str

    @property
    def names(self) -> tuple[str, ...]:
        """Column names, in order."""
        return tuple(f"k{place}" if place < self.key_count else f"c{place}" for place in range(len(self.columns)))

    @property
    def key(self) -> tuple[str, ...]:
        """Names of the key's columns."""
        return self.names[: self.key_count]

    def definition(self) -> list[str]:
        """Return the statements that create it."""
        columns = [f"{name} {column.sql}" for name, column in zip(self.names, self.columns, strict=True)]
        large = [f"ALTER {name} SET STORAGE EXTERNAL" for name, column in zip(self.names, self.columns, strict=True)
                 if column.sql in ("text", "bytea", "text[]")]  # fmt: skip
        return [
            f"CREATE TABLE {self.name} ({', '.join(columns)}, PRIMARY KEY ({', '.join(self.key)}))",
            f"ALTER TABLE {self.name} {', '.join([*large, f'REPLICA IDENTITY {self.identity}'])}",
        ]


@dataclasses.dataclass(frozen=True, slots=True)
class Phase:
    """What an application does between two looks at the lake."""

    transactions: tuple[tuple[Statement, ...], ...]
    while_down: bool  #: kuvasz is stopped meanwhile
    lose_index: bool  #: and its state folder is deleted; only with `while_down`


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """Tables, their first rows, and phases of changes."""

    tables: tuple[Table, ...]
    first: tuple[Statement, ...]
    phases: tuple[Phase, ...]
    format_version: int


#: xml may be missing from the server; of an empty table with uuid[], PyIceberg 0.12 cannot build its Arrow table.
_SIMPLE = [kind for kind in TYPES if kind.extension is None and kind.sql not in ("xml", "uuid[]")]
#: Bounds of arrays are refused in keys: a list does not keep them.
_KEYS = [
    dataclasses.replace(kind, values=tuple(value for value in kind.values if "]=" not in str(value)))
    for kind in _SIMPLE
    if kind.is_key
]


@st.composite
def tables(draw: st.DrawFn, name: str) -> Table:
    """Draw a table of 1 or 2 key columns and 2 to 4 others."""
    keys = draw(st.lists(st.sampled_from(_KEYS), min_size=1, max_size=2))
    others = draw(st.lists(st.sampled_from(_SIMPLE), min_size=2, max_size=4))
    identity = draw(st.sampled_from(("DEFAULT", "DEFAULT", "FULL")))
    return Table(name=name, columns=(*keys, *others), key_count=len(keys), identity=identity)


def _value(table: Table, place: int) -> st.SearchStrategy[Any]:
    column = table.columns[place]
    if place < table.key_count:
        return column.any_value() | st.just(_LARGE_KEY) if column.sql == "text" else column.any_value()
    value = st.none() | column.any_value()
    return value | _LARGE_TYPES[column.sql] if column.sql in _LARGE_TYPES else value


@st.composite
def _insert(draw: st.DrawFn, table: Table) -> Statement:
    values = tuple(draw(_value(table, place)) for place in range(len(table.columns)))
    places = ", ".join(f"%s::{column.sql}" for column in table.columns)
    return f"INSERT INTO {table.name} ({', '.join(table.names)}) VALUES ({places}) ON CONFLICT DO NOTHING", values


def _picked(table: Table) -> str:
    """Return a condition that takes one row, by a number."""
    key = ", ".join(table.key)
    some = f"SELECT {key} FROM {table.name} ORDER BY {key} LIMIT 1"
    return f"({key}) IN ({some} OFFSET %s %% (SELECT greatest(count(*), 1) FROM {table.name}))"


_numbers = st.integers(0, 40)


@st.composite
def _update(draw: st.DrawFn, table: Table) -> Statement:
    first, last = (0, table.key_count) if draw(st.integers(0, 3)) == 0 else (table.key_count, len(table.columns))
    places = draw(st.lists(st.integers(first, last - 1), min_size=1, max_size=2, unique=True))
    settings = ", ".join(f"{table.names[place]} = %s::{table.columns[place].sql}" for place in places)
    values = tuple(draw(_value(table, place)) for place in places)
    return f"UPDATE {table.name} SET {settings} WHERE {_picked(table)}", (*values, draw(_numbers))


@st.composite
def _statement(draw: st.DrawFn, choices: tuple[Table, ...]) -> Statement:
    table = draw(st.sampled_from(choices))
    kind = draw(st.sampled_from(("insert",) * 6 + ("update",) * 8 + ("delete",) * 3 + ("touch", "truncate")))
    if kind == "insert":
        return draw(_insert(table))
    if kind == "update":
        return draw(_update(table))
    if kind == "delete":
        return f"DELETE FROM {table.name} WHERE {_picked(table)}", (draw(_numbers),)
    if kind == "touch":
        return f"UPDATE {table.name} SET {table.key[0]} = {table.key[0]}", ()
    return f"TRUNCATE {', '.join(sorted({table.name, draw(st.sampled_from(choices)).name}))}", ()


@st.composite
def _transaction(draw: st.DrawFn, choices: tuple[Table, ...]) -> tuple[Statement, ...]:
    statements = draw(st.lists(_statement(choices), min_size=1, max_size=8))
    if draw(st.integers(0, 2)) == 0:
        begin = draw(st.integers(0, len(statements) - 1))
        end = draw(st.integers(begin, len(statements)))
        statements[end:end] = [("ROLLBACK TO there", ())]
        statements[begin:begin] = [("SAVEPOINT there", ())]
    return tuple(statements)


@st.composite
def _phase(draw: st.DrawFn, choices: tuple[Table, ...]) -> Phase:
    down = draw(st.integers(0, 2)) == 0
    transactions = draw(st.lists(_transaction(choices), min_size=1, max_size=5))
    return Phase(tuple(transactions), down, down and draw(st.booleans()))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Draw two tables and two to four phases."""
    chosen = (draw(tables("one")), draw(tables("two")))
    first = draw(st.lists(st.sampled_from(chosen).flatmap(_insert), max_size=15))
    phases = draw(st.lists(_phase(chosen), min_size=2, max_size=4))
    return Program(chosen, tuple(first), tuple(phases), draw(st.sampled_from((3, 3, 2))))
