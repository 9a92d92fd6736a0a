"""Log records as plain lines or as JSON. The message is a constant; the facts are the record's extra fields."""

from __future__ import annotations

import datetime
import json
import logging
import sys
from collections.abc import Iterable

from typing_extensions import override

from kuvasz.config.secrets import SecretFilter
from kuvasz.events import Event
from kuvasz.shown import escapes

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def set_up(log_format: str, secrets: Iterable[str]) -> None:
    """Send our log records to stderr, without secrets."""
    handler = logging.StreamHandler(_Stderr())
    handler.setFormatter(JsonFormatter() if log_format == "json" else PlainFormatter())
    handler.addFilter(SecretFilter(frozenset(secrets)))
    if is_live(log_format):
        handler.addFilter(_is_news)
    root = logging.getLogger("kuvasz")
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    root.propagate = False


def hide(secrets: Iterable[str]) -> None:
    """Keep more secrets out of our log records from now on: a map that was read again may have some."""
    for handler in logging.getLogger("kuvasz").handlers:
        for each in handler.filters:
            if isinstance(each, SecretFilter):
                each.learn(secrets)


def is_set_up() -> bool:
    """Whether our log records go anywhere: those of a verb do not."""
    return bool(logging.getLogger("kuvasz").handlers)


class _Stderr:
    """Whatever stderr is at the time: the live lines of the console stand in for it while they are drawn."""

    def write(self, text: str) -> None:
        sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def _is_news(record: logging.LogRecord) -> bool:
    """Leave out, beside live lines, what they show: a commit per table and second."""
    return getattr(record, "event", "") != Event.COMMITTED.code


def is_live(log_format: str) -> bool:
    """Whether a person watches a terminal, so that lines may be drawn over."""
    return log_format == "auto" and sys.stderr.isatty()


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
    """Time, level, message, facts; below them what is wrong. Nothing of a fact begins a line or steers a terminal."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        facts = _facts(record)
        facts.pop("event", None)
        error = facts.pop("error", None) or facts.pop("reason", None)
        text = " ".join([record.getMessage(), *(f"{name}={value}" for name, value in facts.items())])
        line = f"{_when(record):%H:%M:%S} {record.levelname.lower():7} {escapes.one_line(text)}".rstrip()
        below = [str(error)] if error is not None else []
        below += [traceback] if (traceback := _traceback(record)) else []
        return "\n    ".join([line, *(part for told in below for part in escapes.lines(told).split("\n"))])
