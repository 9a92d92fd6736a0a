"""What Spark's JVM says: into the log line by line, so that it neither breaks a terminal's live lines nor is lost."""

from __future__ import annotations

import collections
import contextlib
import os
import re
import sys
import threading
from collections.abc import Iterator

from kuvasz import log
from kuvasz.events import Event, EventLog

_log = EventLog(__name__)

#: Said at every start, and of no use to anybody.
_USUAL = re.compile(
    r"WARNING: Using incubator modules|Setting default log level to|To adjust logging level use"
    r"|Using Spark's default log4j|:: (loading settings|resolution report|resolving dependencies|retrieving)|\s*$"
)

#: Ivy's report on jars: only what it fetches is news.
_REPORT = re.compile(r"\t|Ivy Default Cache|The jars for the packages|.* added as a dependency|\s+(confs|found) ")

#: Lines that are kept to tell why a start failed.
_KEPT = 400


class SparkOutput:
    """Reads what the JVM and Python's workers write into a pipe, until all of them are gone."""

    def __init__(self) -> None:
        self._kept: collections.deque[str] = collections.deque(maxlen=_KEPT)
        self._thread: threading.Thread | None = None
        self._is_starting = True

    @contextlib.contextmanager
    def pipe(self) -> Iterator[int]:
        """Give the descriptor to write to, for a JVM that is started meanwhile."""
        reading, writing = os.pipe()
        try:
            yield writing
        finally:
            os.close(writing)
            self._thread = threading.Thread(target=self._read, args=(reading,), name="java output", daemon=True)
            self._thread.start()

    def started(self) -> None:
        """Say that what comes from now on is no report of a start."""
        self._is_starting = False

    def said(self, patience_s: float = 2.0) -> list[str]:
        """Return the last lines of a JVM that has ended, or is about to."""
        if self._thread is not None:
            self._thread.join(patience_s)
        return list(self._kept)

    def _read(self, reading: int) -> None:
        with open(reading, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                text = line.rstrip("\r\n")
                self._kept.append(text)
                if not _USUAL.match(text) and not (self._is_starting and _REPORT.match(text)):
                    _tell(text)


def _tell(line: str) -> None:
    if log.is_set_up():
        _log.tell(Event.SPARK_SAID, line=line)
    else:  # a verb: its result alone goes to stdout
        print(line, file=sys.stderr, flush=True)  # noqa: T201


__all__ = ["SparkOutput"]
