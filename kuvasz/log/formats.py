"""How a record looks as a line. The message is a constant; the facts are the record's extra fields."""

from __future__ import annotations

import datetime
import json
import logging

from typing_extensions import override

from kuvasz.shown import escapes

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def _facts(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD}


def _when(record: logging.LogRecord) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(record.created, datetime.UTC)


def _traceback(record: logging.LogRecord) -> str | None:
    # The filter that takes secrets out leaves a text and no exception, whose own text would tell them.
    return record.exc_text or (logging.Formatter().formatException(record.exc_info) if record.exc_info else None)


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        line = {"at": _when(record).isoformat(timespec="microseconds"), "level": record.levelname.lower(),
                "message": record.getMessage(), **_facts(record)}  # fmt: skip
        if traceback := _traceback(record):
            line["traceback"] = traceback
        return json.dumps(line, default=str)


class PlainFormatter(logging.Formatter):
    """Time, level, message, facts; below them what is wrong. Nothing of a fact begins a line or steers a terminal.

    Args:
        is_dated: Whether the day stands in front: in a file that lasts nobody else adds it.
    """

    def __init__(self, *, is_dated: bool = False) -> None:
        super().__init__()
        self._time = "%Y-%m-%d %H:%M:%S" if is_dated else "%H:%M:%S"

    @override
    def format(self, record: logging.LogRecord) -> str:
        facts = _facts(record)
        facts.pop("event", None)
        error = facts.pop("error", None) or facts.pop("reason", None)
        text = " ".join([record.getMessage(), *(f"{name}={value}" for name, value in facts.items())])
        at = _when(record).strftime(self._time)
        line = f"{at} {record.levelname.lower():7} {escapes.one_line(text)}".rstrip()
        below = [str(error)] if error is not None else []
        below += [traceback] if (traceback := _traceback(record)) else []
        return "\n    ".join([line, *(part for told in below for part in escapes.lines(told).split("\n"))])


__all__ = ["JsonFormatter", "PlainFormatter"]
