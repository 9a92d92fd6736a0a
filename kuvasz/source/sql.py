"""Quoting of names and strings in SQL that is composed as text.

Hints show statements to people, COPY and replication commands take no parameters, so plain strings are composed
here rather than `psycopg.sql` objects. Every identifier is quoted: mixed case, blanks, dots and keywords then need
no rule of their own (manual, section 4.1.1 "Identifiers and Key Words").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kuvasz.model import TableName


def identifier(name: str) -> str:
    """Return one name, quoted.

    Raises:
        ValueError: The name is empty or has a NUL, which PostgreSQL allows in no identifier.
    """
    if not name or "\0" in name:
        msg = f"not an identifier: {name!r}"
        raise ValueError(msg)
    return '"' + name.replace('"', '""') + '"'


def identifiers(names: Iterable[str]) -> str:
    """Return names, quoted and separated by commas."""
    return ", ".join(identifier(name) for name in names)


def qualified(table: TableName) -> str:
    """Return a table's name with its schema, quoted."""
    return f"{identifier(table.schema)}.{identifier(table.name)}"


def literal(text: str) -> str:
    """Return a string constant that reads the same whatever ``standard_conforming_strings`` says.

    Raises:
        ValueError: The text has a NUL.
    """
    if "\0" in text:
        msg = f"not a text for PostgreSQL: {text!r}"
        raise ValueError(msg)
    quoted = text.replace("'", "''")
    if "\\" in quoted:
        return "E'" + quoted.replace("\\", "\\\\") + "'"
    return f"'{quoted}'"
