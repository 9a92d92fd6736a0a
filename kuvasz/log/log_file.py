"""The log in a file of its own, which its owner alone reads, and which others may rotate.

Before each line it looks whether the file is still the one of its name: who moves it away, as logrotate does, needs
no signal.
A log must not stop what it tells of: where the file cannot be written, lines go to stderr.
"""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import os
import sys
from io import TextIOWrapper
from pathlib import Path

from typing_extensions import override

from kuvasz.errors import ConfigError
from kuvasz.events import Event


class LogFile(logging.handlers.WatchedFileHandler):
    """Writes records to the end of a file.

    Args:
        path: The file; it is made, readable by its owner alone, and so is its folder. One that is there stays as it
            is: whoever rotates it says who may read it.

    Raises:
        ConfigError: It cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._is_missing = False  # the last line did not get in
        self._why = ""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            super().__init__(path, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            hint = "its folder has to be there, and be writable by the user of kuvasz"
            raise ConfigError(f"log.file: {path} cannot be written: {_said(error)}", hint=hint) from error

    @override
    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, errors=self.errors, opener=_private)

    @override
    def emit(self, record: logging.LogRecord) -> None:
        was_missing, self._is_missing = self._is_missing, False
        try:
            super().emit(record)
        except OSError as error:  # it is opened anew before anything is written
            self._fall_back(record, error)
        if self._is_missing and not was_missing:
            self._to_stderr(_failed(self.baseFilename, self._why))

    @override
    def handleError(self, record: logging.LogRecord) -> None:
        """See `logging.Handler.handleError`: called where the exception is handled."""
        self._fall_back(record, sys.exc_info()[1])

    def _fall_back(self, record: logging.LogRecord, error: BaseException | None) -> None:
        self._is_missing, self._why = True, _said(error)
        if self.stream is not None:  # with what it kept of lines that did not get in; the next one opens it anew
            with contextlib.suppress(OSError):
                self.stream.close()
            self.stream = None
        self._to_stderr(record)

    def _to_stderr(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(Exception):  # nobody hears it there either, or it is no line: nothing stops for that
            sys.stderr.write(self.format(record) + "\n")


def _failed(path: str, why: str) -> logging.LogRecord:
    event = Event.LOG_FILE_FAILED
    facts = {"event": event.code, "file": path, "error": why}
    level = logging.getLevelName(event.level)
    return logging.makeLogRecord({"msg": event.message, "levelno": event.level, "levelname": level, **facts})


def _said(error: BaseException | None) -> str:
    is_system = isinstance(error, OSError) and error.errno
    return os.strerror(error.errno).lower() if is_system else str(error)  # type: ignore[union-attr]


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


__all__ = ["LogFile"]
