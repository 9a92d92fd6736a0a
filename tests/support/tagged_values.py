"""Values that say which column they were written to, in every type that can.

A value stands for a number: the column's times `UNIT`, and a count. It is written by SQL and read from the lake by
its type alone, whatever the column is called by then.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
import uuid
from typing import Any

UNIT = 10_000

#: Counts from here on are of defaults.
DEFAULTS = 9_000

_DAY = datetime.date(1970, 1, 1)


@dataclasses.dataclass(frozen=True)
class Kind:
    """What values of a type are made of, in SQL."""

    make: str = "{0}::{type}"  #: value of a number
    read: str = "{0}::text::numeric::bigint"  #: number of a value


_INSTANT = "extract(epoch FROM {0})::bigint"

#: Types that Spark SQL may cast to text, which then shows the number.
PLAIN = ("int", "bigint", "text", "varchar(40)", "numeric(12,2)", "numeric(16,2)")

KINDS = {
    **dict.fromkeys((*PLAIN, "real", "double precision", "whole", "words"), Kind()),
    "uuid": Kind("lpad({0}::text, 32, '0')::uuid", "replace({0}::text, '-', '')::numeric::bigint"),
    "date": Kind("date '1970-01-01' + {0}::int", "({0} - date '1970-01-01')::bigint"),
    "timestamp": Kind("to_timestamp({0}) AT TIME ZONE 'UTC'", _INSTANT),
    "timestamptz": Kind("to_timestamp({0})", _INSTANT),
    "bytea": Kind("convert_to({0}::text, 'UTF8')", "convert_from({0}, 'UTF8')::bigint"),
    "jsonb": Kind("jsonb_build_object('v', {0})", "({0} ->> 'v')::bigint"),
    "int[]": Kind("ARRAY[{0}, {0}]::int[]", "({0})[1]::bigint"),
    "int4range": Kind("int4range({0}::int, {0}::int + 1)", "lower({0})::bigint"),
    "enum": Kind("{0}::text::{type}", "{0}::text::bigint"),
    "composite": Kind("jsonb_populate_record(NULL::{type}, jsonb_build_object('v', {0}))", "({0}).v::bigint"),
}

#: What some of the types are, in each database.
DOMAINS = ("CREATE DOMAIN whole AS int", "CREATE DOMAIN words AS text")


def number_of(value: Any) -> int:
    """Return the number that a value of the lake stands for."""
    if isinstance(value, datetime.datetime):
        return int(value.replace(tzinfo=datetime.UTC).timestamp())
    if isinstance(value, datetime.date):
        return (value - _DAY).days
    if isinstance(value, bytes):
        return int(str(uuid.UUID(bytes=value)).replace("-", "") if len(value) == 16 else value)
    if isinstance(value, uuid.UUID):
        return int(str(value).replace("-", ""))
    if isinstance(value, list):
        (only,) = set(value)
        return int(only)
    return _of_text(value) if isinstance(value, str) else int(value)


def _of_text(text: str) -> int:
    """Return the number in PostgreSQL's own text of a value: a field may be the string of another source."""
    if text.startswith("\\x"):
        return number_of(bytes.fromhex(text[2:]))
    if re.fullmatch(r"[0-9a-f-]{36}", text):
        return number_of(uuid.UUID(text))
    if re.match(r"\d{4}-", text):
        return number_of(datetime.datetime.fromisoformat(text) if ":" in text else datetime.date.fromisoformat(text))
    return int(re.findall(r"\d+", text)[0])


__all__ = ["DEFAULTS", "DOMAINS", "KINDS", "PLAIN", "UNIT", "Kind", "number_of"]
