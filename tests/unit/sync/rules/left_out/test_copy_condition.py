"""Which filters PostgreSQL may decide; that both engines then agree is tests/integration/test_copy_condition.py's."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kuvasz import typemap
from kuvasz.config.model import TableConfig
from kuvasz.config.sources import SourceTableSpec
from kuvasz.model import Column, PgType, Relation, ReplicaIdentity, TableName
from kuvasz.sync.rules.left_out.copy_condition import copy_condition, published_condition

NAME = TableName(schema="public", name="t")
TYPES = {
    "id": typemap.BUILTIN[20], "n": typemap.BUILTIN[23], "s": typemap.BUILTIN[21], "b": typemap.BUILTIN[16],
    "c": typemap.BUILTIN[25], "v": typemap.BUILTIN[1043], "u": typemap.BUILTIN[2950], "x": typemap.BUILTIN[1042],
    "price": typemap.BUILTIN[1700], "day": typemap.BUILTIN[1082], "f": typemap.BUILTIN[701],
    "e": PgType(oid=20000, name="mood", schema="public", category="e"),
    "d": PgType(oid=20001, name="count", schema="public", category="d", base=typemap.BUILTIN[23]),
    "Odd name": typemap.BUILTIN[23], "Twin": typemap.BUILTIN[23], "twIn": typemap.BUILTIN[23],
}  # fmt: skip
RELATION = Relation(
    oid=1, table=NAME, identity=ReplicaIdentity.DEFAULT,
    columns=tuple(Column(name=name, pg_type=kind) for name, kind in TYPES.items()),
)  # fmt: skip


def condition(text: str | None, **said: Any) -> str:
    config = TableConfig(filter=text, **said)
    spec = SourceTableSpec(table=NAME, config=config, namespace="shop", target="t", has_sid=False)
    return copy_condition(spec, RELATION)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("n = 5", '("n" = (5))'),
        (" N\n== -05 ", '("n" = (-5))'),
        ("5 < id", '("id" > (5))'),
        ("3 >= `S`", '("s" <= (3))'),
        ("`Odd name` != 1", '("Odd name" <> (1))'),
        ("c <> 'XX'", '("c"::text COLLATE "C" <> \'XX\')'),
        ("u = 'ab-c'", '("u"::text COLLATE "C" = \'ab-c\')'),
        ("e IN ('a', 'b')", "(textin(enum_out(\"e\")) COLLATE \"C\" IN ('a', 'b'))"),
        ("n not in (1,-2)", '("n" NOT IN ((1), (-2)))'),
        ("n between 1 and 2 and not b", '(("n" BETWEEN (1) AND (2)) AND (NOT "b"))'),
        ("n IS NULL or b is not true", '(("n" IS NULL) OR ("b" IS NOT TRUE))'),
        ("NOT (n = 1 OR b = false) AND true", '((NOT (("n" = (1)) OR ("b" = false))) AND true)'),
        ("n = 9223372036854775807", '("n" = (9223372036854775807))'),
    ],
)
def test_what_both_engines_see_alike_is_taken(text: str, wanted: str) -> None:
    assert condition(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("n = 1 AND price > 0.5", '("n" = (1))'),
        ("day >= DATE '2024-01-01' AND (n = 1 AND f < 2) AND b", '(("n" = (1)) AND "b")'),
        ("x = 'a' AND v = 'a'", '("v"::text COLLATE "C" = \'a\')'),
        ("n = 1 OR price > 0.5", ""),
        ("NOT (n = 1 AND price > 0.5)", ""),
        ("NOT (price > 0.5) AND n = 1", '("n" = (1))'),
        ("c < 'a'", ""),
        ("c BETWEEN 'a' AND 'b'", ""),
        ("n = '5'", ""),
        ("c = 5", ""),
        ("n = 9223372036854775808", ""),
        ("n > 0.5", ""),
        ("d = 1", ""),
        ("twin = 1", ""),
        ("gone = 1", ""),
        ("price IS NULL", ""),
        ("n is true", ""),
        ("n", ""),
    ],
)
def test_what_is_not_alike_lets_all_rows_come(text: str, wanted: str) -> None:
    assert condition(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "c = 'a' 'b'", "c = 'a''b'", r"c = 'a\'", "c = r'a'", 'c = "a"', "c = '$x'", "c = 'é'", "é = 1",
        "n <=> 1", "n + 1 = 2", "n -1 = 2", "n = 1 -- AND b", "n = 1 /* b */", "n = --1", "n = 1L", "n = 1.",
        "n = 1e3", "upper(c) = 'A'", "t.n = 1", "n = 1 = b", "n = s", "n IN ()", "n IN (1", "n IN (SELECT 1)",
        "(n = 1", "n = 1)", "n BETWEEN 1 OR 2", "n IS DISTINCT FROM 1", "c LIKE 'a%'", "c NOT LIKE 'a%'",
        "current_date = 'x'", "case = 1", "AND", "n = ", "n = 1 AND", "NOT", "n IN (NULL)", "n = NULL", "! b",
        "n => 1", "n = 1;", "n = 1\u00a0", "(" * 60 + "n = 1" + ")" * 60,
    ],
)  # fmt: skip
def test_a_text_that_is_not_understood_lets_all_rows_come(text: str) -> None:
    assert condition(text) == ""
    assert condition(f"n = 1 AND {text}") == ""


def test_a_column_that_has_another_type_in_the_lake_is_not_compared() -> None:
    assert condition("n = 1 AND b", types={"n": "string"}) == '"b"'
    assert condition(None) == ""


NUMBERED = dataclasses.replace(
    RELATION,
    columns=tuple(dataclasses.replace(column, attnum=n) for n, column in enumerate(RELATION.columns, 1)),
)
NUMBERS = {column.name: column.attnum for column in NUMBERED.columns}
UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"


@pytest.mark.parametrize(
    ("text", "wanted", "columns"),
    [
        ("n = 5 AND c = 'a'", """(("n" = (5)) AND ("c"::text COLLATE "C" = 'a'))""", "nc"),
        ("n = 5 AND b", '("n" = (5))', "n"),
        ("n = 5 OR b", "", ""),
        (f"u = '{UUID}'", f"""("u" = '{UUID}'::uuid)""", "u"),
        (f"'{UUID}' <> u AND u IS NOT NULL", f"""(("u" <> '{UUID}'::uuid) AND ("u" IS NOT NULL))""", "u"),
        (f"u NOT IN ('{UUID}')", f"""("u" NOT IN ('{UUID}'::uuid))""", "u"),
        (f"u = '{UUID.upper()}'", "", ""),
        ("u <> 'none'", "", ""),
        (f"u IN ('{UUID}', 'none')", "", ""),
        ("u = 1", "", ""),
        ("not understood (", "", ""),
        (None, "", ""),
    ],
)
def test_a_row_filter_reads_what_it_may(text: str | None, wanted: str, columns: str) -> None:
    config = TableConfig(filter=text)
    spec = SourceTableSpec(table=NAME, config=config, namespace="shop", target="t", has_sid=False)
    found = published_condition(spec, NUMBERED, {NUMBERS[name] for name in "ncuv"})
    assert found[0] == wanted
    if wanted:
        assert found[1] == {NUMBERS[name] for name in columns}
