from __future__ import annotations

import pytest

from kuvasz import typemap
from kuvasz.model import PgType
from kuvasz.typemap import BUILTIN
from kuvasz.verbs import typetable

DOMAIN = PgType(oid=0, name="amount", schema="sales", category="d", base=BUILTIN[1700])
ROWS = {row.postgresql: row for row in typetable.rows()}


@pytest.mark.parametrize(
    ("pg_type", "typmod", "name"),
    [
        (BUILTIN[23], -1, "int4"),
        (BUILTIN[1700], -1, "numeric"),
        (BUILTIN[1700], (12 << 16 | 2) + 4, "numeric(12,2)"),
        (BUILTIN[1231], (12 << 16 | 2) + 4, "numeric(12,2)[]"),
        (BUILTIN[1007], -1, "int4[]"),
        (PgType(oid=0, name="mood", schema="public", category="e"), -1, "mood"),
        (DOMAIN, -1, "sales.amount"),
    ],
)
def test_a_type_is_named_as_postgresql_shows_it(pg_type: PgType, typmod: int, name: str) -> None:
    assert typemap.postgresql_name(pg_type, typmod) == name


@pytest.mark.parametrize(
    ("name", "iceberg", "note"),
    [
        ("int4", "int", ""),
        ("text", "string", ""),
        ("an enum", "string", ""),
        ("interval", "string", "PostgreSQL's own text"),
        ("bpchar", "string", "keeps its blanks"),
        ("time", "string", "PostgreSQL's own text: Spark cannot read Iceberg's time"),
        ("date", "date", "infinity and years beyond 9999: `out_of_range`, in a key `types: {column: string}`"),
        ("numeric", "string", "exact text; a number with `types: {column: decimal(p,s)}`"),
        (
            "numeric(12,2)",
            "decimal(12, 2)",
            "NaN and Infinity stop the table; exact text with `types: {column: string}`",
        ),
        ("int4[]", "list<int>", "of one dimension: others stop the table; `types: {column: string}`"),
    ],
)
def test_every_type_says_what_it_becomes(name: str, iceberg: str, note: str) -> None:
    assert (ROWS[name].iceberg, ROWS[name].note) == (iceberg, note)


def test_a_domain_has_the_note_of_what_it_is_over() -> None:
    assert typetable.note(DOMAIN, typemap.value_type(DOMAIN, -1)) == ROWS["numeric"].note


def test_a_list_has_the_note_of_its_elements_as_well() -> None:
    assert ROWS["numeric[]"].note.endswith(f"; {ROWS['numeric'].note}")
