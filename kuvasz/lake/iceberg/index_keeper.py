"""Keeps indexes of tables in the store (`cluster.indexes`): who takes a table over need not read all of its keys.

A thread of its own looks at the tables now and then. Where so much is new in one that reading it would take longer
than bringing the index, the index is made durable on disk, with the table's lock held as at the end of a process,
and copied to the store without it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from kuvasz.errors import TableStuck
from kuvasz.events import Event, EventLog
from kuvasz.index import kept
from kuvasz.lake.files.object_folder import kept_index
from kuvasz.lake.table import checkpoints
from kuvasz.lake.table.notes import SET_BACK_PROPERTY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kuvasz.config.model import Config
    from kuvasz.index.kept import IndexCheckpoints
    from kuvasz.lake.iceberg.tables import Tables
    from kuvasz.lake.table.table import LakeTable

_log = EventLog(__name__)

#: Seconds between two looks at all tables.
_LOOK_S: Final = 10.0

#: Rows in files that a checkpoint does not know, behind which there is another one: below, reading them is as quick.
_LEAST_ROWS: Final = 1 << 16

#: And so great a part of all rows: each is written some three times for that.
_SHARE: Final = 16


class IndexUpkeep:
    """The keeper.

    Args:
        config: The whole configuration.
        properties: The properties of the lake's FileIO.
        tables: The tables.
        least_rows: See `_LEAST_ROWS`.
        look_s: Seconds between two looks.
    """

    def __init__(
        self,
        config: Config,
        properties: Mapping[str, str],
        tables: Tables,
        *,
        least_rows: int = _LEAST_ROWS,
        look_s: float = _LOOK_S,
    ) -> None:
        self._config = config
        self._properties = properties
        self._tables = tables
        self._least_rows = least_rows
        self._look_s = look_s
        self._known: dict[str, frozenset[str]] = {}  #: uuid -> paths of the files that the kept checkpoint knows
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="indexes", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End soon; a copy that is under way is given up with the process, for what is half there is nothing."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(self._look_s):
            for table in self._tables.all():
                if self._stop.is_set():
                    return
                self.keep(table)

    def keep(self, table: LakeTable) -> bool:
        """Keep a table's index if enough of it is new; return whether that was done.

        What cannot be done is told, and tried again at the next look.
        """
        begin, uuid = time.monotonic(), table.definition.uuid
        index = kept_index(self._config, self._properties, uuid)
        if index is None or not table.index.is_open:
            return False
        try:
            if uuid not in self._known:
                found = index.newest(table.index.folder)
                self._known[uuid] = (
                    _paths(found.tag) if found is not None and _serves(table, found.tag) else frozenset()
                )
            size = self._keep(table, index)
        except TableStuck:
            return False
        except kept.Unusable as error:
            self._known[uuid] = frozenset()
            _log.tell(Event.INDEX_UNKEPT, table=table.name, place=index.place, error=str(error))
            return False
        if size is None:
            return False
        seconds = round(time.monotonic() - begin, 2)
        _log.tell(Event.INDEX_KEPT, table=table.name, place=index.place, bytes=size, seconds=seconds)
        return True

    def _keep(self, table: LakeTable, index: IndexCheckpoints) -> int | None:
        """Return how many bytes of runs were written; None: there is too little that is new."""
        with contextlib.ExitStack() as files:
            with self._tables.having(table) as is_there:
                if not (is_there and table.index.is_open and self._is_due(table)):
                    return None
                table.index.save()
                checkpoint = files.enter_context(kept.opened(table.index.folder))
            if checkpoint is None or checkpoint.manifest.tag["snapshot"] != table.index.snapshot_id:
                return None  # it could not be saved, which was told, or is known of no snapshot yet
            size = index.keep(checkpoint, checkpoint.manifest.tag["sequence"])
            self._known[table.definition.uuid] = _paths(checkpoint.manifest.tag)
            return size

    def _is_due(self, table: LakeTable) -> bool:
        known = self._known[table.definition.uuid]
        rows = fresh = 0
        for entry in table.index.files:
            rows += entry.rows
            fresh += 0 if entry.path in known else entry.rows
        return fresh >= max(self._least_rows, rows // _SHARE)


def _serves(table: LakeTable, tag: Mapping[str, Any]) -> bool:
    return checkpoints.is_readable(tag, table.definition, table.table.properties.get(SET_BACK_PROPERTY, ""))


def _paths(tag: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(tag["files"].values())


__all__ = ["IndexUpkeep"]
