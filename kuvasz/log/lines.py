"""Where our log records go, from which level on, and what never goes there."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from pathlib import Path

from kuvasz.config.secrets import SecretFilter
from kuvasz.events import Event
from kuvasz.log.formats import JsonFormatter, PlainFormatter
from kuvasz.log.log_file import LogFile


def set_up(log_format: str, secrets: Iterable[str], *, level: str = "info", file: str | Path | None = None) -> None:
    """Send our log records to stderr or to a file, without secrets.

    Args:
        log_format: ``auto``, ``plain`` or ``json``.
        secrets: What never shows.
        level: ``debug``, ``info``, ``warning`` or ``error``: nothing below it is told.
        file: In the place of stderr, but for live lines: beside those stderr has the news as well.

    Raises:
        ConfigError: The file cannot be written.
    """
    is_drawn = is_live(log_format)
    handlers: list[logging.Handler] = [] if file is None else [LogFile(Path(file))]
    for handler in handlers:
        handler.setFormatter(JsonFormatter() if log_format == "json" else PlainFormatter(is_dated=True))
    if file is None or is_drawn:
        handlers.append(_of_stderr(log_format, is_drawn=is_drawn))
    for handler in handlers:
        handler.addFilter(SecretFilter(frozenset(secrets)))
    root = logging.getLogger("kuvasz")
    for before in root.handlers:
        before.close()
    root.handlers[:] = handlers
    root.propagate = False
    set_level(level)


def _of_stderr(log_format: str, *, is_drawn: bool) -> logging.Handler:
    handler = logging.StreamHandler(_Stderr())
    handler.setFormatter(JsonFormatter() if log_format == "json" else PlainFormatter())
    if is_drawn:
        handler.addFilter(_is_news)
    return handler


def set_level(level: str) -> None:
    """Tell nothing below a level from now on."""
    logging.getLogger("kuvasz").setLevel(level.upper())


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
    """Leave out, beside live lines, what they show: how much came of each source."""
    return getattr(record, "event", "") != Event.CHANGES.code


def is_live(log_format: str) -> bool:
    """Whether a person watches a terminal, so that lines may be drawn over."""
    return log_format == "auto" and sys.stderr.isatty()


__all__ = ["hide", "is_live", "is_set_up", "set_level", "set_up"]
