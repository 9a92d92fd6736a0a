from __future__ import annotations

import pytest

from kuvasz.model import Column, PgType
from kuvasz.source.check.table_check import is_kept_as_text

TEXT = PgType(oid=25, name="text")
NUMERIC = PgType(oid=1700, name="numeric")
DECIMAL_10_2 = (10 << 16 | 2) + 4


@pytest.mark.parametrize(
    ("pg_type", "typmod", "expected"),
    [
        (TEXT, -1, False),
        (PgType(oid=114, name="json"), -1, False),
        (PgType(oid=99001, name="mood", category="e"), -1, False),
        (PgType(oid=23, name="int4"), -1, False),
        (NUMERIC, DECIMAL_10_2, False),
        (NUMERIC, -1, True),
        (PgType(oid=1186, name="interval"), -1, True),
        (PgType(oid=99002, name="code", category="d", base=TEXT), -1, False),
        (PgType(oid=1231, name="_numeric", element=NUMERIC), -1, False),
    ],
)
def test_what_arrives_as_text_without_being_text(pg_type, typmod, expected):
    assert is_kept_as_text(Column(name="c", pg_type=pg_type, typmod=typmod)) is expected
