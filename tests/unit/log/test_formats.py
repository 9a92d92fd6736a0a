"""How records look."""

from __future__ import annotations

import json
import logging

from kuvasz.log.formats import JsonFormatter, PlainFormatter


def record(**facts: object) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": "a table stops", "levelname": "ERROR", "created": 0.0, **facts})


def test_json_has_each_fact_by_its_name_on_one_line() -> None:
    line = JsonFormatter().format(record(event="table_failed", table="a\nb", positions={"eu": "0/1"}))
    assert json.loads(line) == {
        "at": "1970-01-01T00:00:00.000000+00:00", "level": "error", "message": "a table stops",
        "event": "table_failed", "table": "a\nb", "positions": {"eu": "0/1"},
    }  # fmt: skip
    assert line.isascii()
    assert line.isprintable()


def test_plain_has_the_time_and_where_it_lasts_the_day() -> None:
    assert PlainFormatter().format(record(rows=3)) == "00:00:00 error   a table stops rows=3"
    assert PlainFormatter(is_dated=True).format(record(rows=3)).startswith("1970-01-01 00:00:00 error ")


def test_what_is_wrong_stands_below() -> None:
    assert PlainFormatter().format(record(error="no\nhint: do")).split("\n")[1:] == ["    no", "    hint: do"]
