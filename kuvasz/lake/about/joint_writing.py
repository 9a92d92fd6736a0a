"""Rows of many threads become one commit: while one of them writes, those that come wait, and go together next."""

from __future__ import annotations

import concurrent.futures
import threading
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

#: Rows that wait, and who is told what came of them.
_Waiting: TypeAlias = tuple[pa.Table, concurrent.futures.Future[None]]


class JointWriting:
    """Writes rows for whoever waits until they are there.

    Args:
        write: Makes one commit of rows; called by one thread at a time.
    """

    def __init__(self, write: Callable[[pa.Table], None]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._writing = threading.Lock()  #: held by who writes
        self._waiting: list[_Waiting] = []

    def put(self, rows: pa.Table) -> None:
        """Have rows written, and return when they are: by this thread or by another one, together with its own.

        Raises:
            Exception: What `write` raised of the commit that they were in; they may be there all the same.
        """
        mine: concurrent.futures.Future[None] = concurrent.futures.Future()
        with self._lock:
            self._waiting.append((rows, mine))
        with self._writing:
            if not mine.done():
                self._write_all()
        mine.result()

    def _write_all(self) -> None:
        with self._lock:
            together, self._waiting = self._waiting, []
        try:
            self._write(pa.concat_tables([rows for rows, _ in together]))
        except BaseException as error:  # noqa: BLE001 (each of those that wait raises it)
            for _, written in together:
                written.set_exception(error)
        else:
            for _, written in together:
                written.set_result(None)


__all__ = ["JointWriting"]
