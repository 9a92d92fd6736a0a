from __future__ import annotations

import pytest

from kuvasz.model import TableName
from kuvasz.source import sql


@pytest.mark.parametrize(
    ("name", "quoted"),
    [("orders", '"orders"'), ("Mixed Case", '"Mixed Case"'), ("a.b", '"a.b"'), ('say "hi"', '"say ""hi"""')],
)
def test_identifier(name, quoted):
    assert sql.identifier(name) == quoted


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_what_is_no_identifier_is_refused(name):
    with pytest.raises(ValueError, match="not an identifier"):
        sql.identifier(name)


def test_lists_and_qualified_names():
    assert sql.identifiers(["a", "B"]) == '"a", "B"'
    assert sql.qualified(TableName(schema="Bill ing", name="a.b")) == '"Bill ing"."a.b"'


@pytest.mark.parametrize(
    ("text", "quoted"), [("", "''"), ("it's", "'it''s'"), ("a\\b", "E'a\\\\b'"), ("\\'", "E'\\\\'''")]
)
def test_literal(text, quoted):
    assert sql.literal(text) == quoted


def test_a_literal_with_a_nul_is_refused():
    with pytest.raises(ValueError, match="not a text"):
        sql.literal("a\0b")
