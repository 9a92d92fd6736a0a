"""Keeps indexes of tables in the store (`cluster.indexes`): who takes a table over need not read its keys.

A thread of its own looks at the tables now and then. Where so much is new in one that reading it would take longer
than bringing the index, the index is made durable on disk, with the table's lock held as at the end of a process,
and copied to the store without it. Where somebody else has a table next, at an orderly end or when its group is given
back, all that is new of it is kept, as far as that is done soon: then nothing of it is read.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from kuvasz.backoff import Backoff
from kuvasz.errors import TableStuck
from kuvasz.events import Event, EventLog
from kuvasz.index import kept
from kuvasz.lake.files.object_folder import kept_index
from kuvasz.lake.table import checkpoints
from kuvasz.lake.table.notes import SET_BACK_PROPERTY
from kuvasz.own_thread import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from kuvasz.config.model import Config
    from kuvasz.index.kept import IndexCheckpoints
    from kuvasz.lake.iceberg.tables import Tables
    from kuvasz.lake.table.table import LakeTable

_log = EventLog(__name__)

#: Seconds between two looks at all tables.
_LOOK_S: Final = 10.0

#: So great a part of all rows has to be in files that a checkpoint does not know: each is written some three times
#: for that. And `kept.LEAST_ROWS` at least.
_SHARE: Final = 16

#: The part of a lease that may pass until all that is new is kept of tables that somebody else has next: for as long
#: nobody applies them, and of who is killed a whole lease passes. And seconds, whatever the lease is.
_PATIENCE, _MOST_PATIENCE_S = 5, 10.0

#: Tables that are kept at a time then.
_AT_ONCE: Final = 8

#: Seconds after which a table is tried again that could not be kept, the first and the last wait.
_FIRST_PAUSE_S, _LAST_PAUSE_S = 10.0, 600.0


class IndexUpkeep:
    """The keeper.

    Args:
        config: The whole configuration.
        properties: The properties of the lake's FileIO.
        tables: The tables.
        least_rows: See `kept.LEAST_ROWS`.
        look_s: Seconds between two looks.
        patience_s: Seconds that an end may take; see `_PATIENCE`.
    """

    def __init__(
        self,
        config: Config,
        properties: Mapping[str, str],
        tables: Tables,
        *,
        least_rows: int = kept.LEAST_ROWS,
        look_s: float = _LOOK_S,
        patience_s: float | None = None,
    ) -> None:
        self._config = config
        self._properties = properties
        self._tables = tables
        self._least_rows = least_rows
        self._look_s = look_s
        longest = min(config.cluster.lease / _PATIENCE, _MOST_PATIENCE_S)
        self._patience_s = longest if patience_s is None else patience_s
        self._known: dict[str, frozenset[str]] = {}  #: uuid -> paths of the files that the kept checkpoint knows
        self._refused: dict[str, tuple[Backoff, float]] = {}  #: uuid -> when it is tried again, monotonic seconds
        self._turns: dict[str, threading.Lock] = {}  #: uuid -> held by who copies it
        self._stop = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="indexes", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End, with what is new of all tables kept for whoever has them next; nobody changes them any more.

        A copy that takes too long is given up, for what is half there is nothing.
        """
        self._stop.set()
        self.hand_over(self._tables.all())
        self._over.set()

    def _run(self) -> None:
        while not self._stop.wait(self._look_s):
            for table in self._tables.all():
                if self._stop.is_set():
                    return
                _, again_at = self._refused.get(table.definition.uuid, (None, 0.0))
                if time.monotonic() >= again_at:
                    self.keep(table)

    def hand_over(self, tables: Collection[LakeTable]) -> None:
        """Keep all that is new of tables that somebody else has next, those first of which that is most.

        Blocks for as long as it takes, but not longer than a moment: what was not kept by then is read.

        Args:
            tables: The tables; nobody changes them any more.
        """
        fresh = [(rows, number, table) for number, table in enumerate(tables) if (rows := self._fresh_rows(table))]
        waiting = iter([table for *_, table in sorted(fresh, reverse=True)])
        over, turn = threading.Event(), threading.Lock()

        def work() -> None:
            while not over.is_set():
                with turn:
                    table = next(waiting, None)
                if table is None:
                    return
                self.keep(table, is_over=over.is_set)

        running = [in_thread(work, "indexes") for _ in range(min(_AT_ONCE, len(fresh)))]
        concurrent.futures.wait(running, timeout=self._patience_s)
        over.set()
        for table in tables:  # what is kept of it is another one's from now on
            self._known.pop(table.definition.uuid, None)

    def _fresh_rows(self, table: LakeTable) -> int:
        """Return how many rows of a table that is kept at all nobody knows but this process."""
        try:
            with self._open(table) as is_open:
                rows, fresh = self._rows(table) if is_open else (0, 0)
        except TableStuck:
            return 0
        return fresh if rows >= self._least_rows else 0

    def keep(self, table: LakeTable, is_over: Callable[[], bool] | None = None) -> bool:
        """Keep a table's index if enough of it is new; return whether that was done.

        What cannot be done is told, and tried again later.

        Args:
            table: The table.
            is_over: Given where somebody else has it next: whatever is new is enough, and once that is true nobody
                waits for it any more.
        """
        begin, uuid = time.monotonic(), table.definition.uuid
        index, turn = kept_index(self._config, self._properties, uuid), self._turns.setdefault(uuid, threading.Lock())
        if index is None or not table.index.is_open or not turn.acquire(timeout=self._patience_s if is_over else 0):
            return False
        try:
            if not self._may_be_due(table, is_last=is_over is not None):
                return False
            if uuid not in self._known:
                found = index.newest(table.index.folder)
                self._known[uuid] = (
                    _paths(found.tag) if found is not None and _serves(table, found.tag) else frozenset()
                )
            size = self._keep(table, index, is_over)
        except TableStuck:
            return False
        except kept.Unusable as error:
            self._known[uuid] = frozenset()
            if not (self._over.is_set() or (is_over is not None and is_over())):
                self._refuse(uuid)
                _log.tell(Event.INDEX_UNKEPT, table=table.name, place=index.place, error=str(error))
            return False
        finally:
            turn.release()
        if size is None:
            return False
        self._refused.pop(uuid, None)
        seconds = round(time.monotonic() - begin, 2)
        _log.tell(Event.INDEX_KEPT, table=table.name, place=index.place, bytes=size, seconds=seconds)
        return True

    def _refuse(self, uuid: str) -> None:
        pause, _ = self._refused.get(uuid, (Backoff(_FIRST_PAUSE_S, _LAST_PAUSE_S), 0.0))
        self._refused[uuid] = pause, time.monotonic() + pause.next_s()

    def _keep(self, table: LakeTable, index: IndexCheckpoints, is_over: Callable[[], bool] | None) -> int | None:
        """Return how many bytes of runs were written; None: there is too little that is new."""
        with contextlib.ExitStack() as files:
            with self._open(table) as is_open:
                if not (is_open and self._is_due(table, is_last=is_over is not None)):
                    return None
                table.index.save()
                checkpoint = files.enter_context(kept.opened(table.index.folder))
            if checkpoint is None or checkpoint.manifest.tag["snapshot"] != table.index.snapshot_id:
                return None  # it could not be saved, which was told, or is known of no snapshot yet
            tag = checkpoint.manifest.tag
            size = index.keep(
                checkpoint, tag["sequence"], is_given_up=lambda: self._over.is_set() or bool(is_over and is_over())
            )
            self._known[table.definition.uuid] = _paths(tag)
            return size

    @contextlib.contextmanager
    def _open(self, table: LakeTable) -> Iterator[bool]:
        """Yield whether a table is loaded and its index open, which it is for as long as the body runs."""
        with self._tables.having(table) as is_there:
            yield is_there and table.index.is_open

    def _may_be_due(self, table: LakeTable, *, is_last: bool) -> bool:
        with self._open(table) as is_open:
            return is_open and self._is_due(table, is_last=is_last)

    def _is_due(self, table: LakeTable, *, is_last: bool) -> bool:
        rows, fresh = self._rows(table)
        if is_last:
            return rows >= self._least_rows and fresh > 0
        return fresh >= max(self._least_rows, rows // _SHARE)

    def _rows(self, table: LakeTable) -> tuple[int, int]:
        """Return how many rows a table has, and how many of them in files that the kept checkpoint does not know."""
        known = self._known.get(table.definition.uuid, frozenset())
        rows = fresh = 0
        for entry in table.index.files:
            rows += entry.rows
            fresh += 0 if entry.path in known else entry.rows
        return rows, fresh


def _serves(table: LakeTable, tag: Mapping[str, Any]) -> bool:
    return checkpoints.is_readable(tag, table.definition, table.table.properties.get(SET_BACK_PROPERTY, ""))


def _paths(tag: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(tag["files"].values())


__all__ = ["IndexUpkeep"]
