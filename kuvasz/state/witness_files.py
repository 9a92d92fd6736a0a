"""How far each lake table was, as a witness outside the lake: an older lake that is put in place agrees with itself.

One small file per table in the state folder, written after each commit without waiting for the disk. It may be older
than the lake, after a power failure or where another process wrote the table, and then says nothing: what counts is
that the lake was once as far as it says. Without the folder nothing is lost but the witness.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from pathlib import Path

from typing_extensions import override

from kuvasz import lsn
from kuvasz.events import Event, EventLog
from kuvasz.state.ports import Witness

_log = EventLog(__name__)

FOLDER = "positions"


class WitnessFiles(Witness):
    """The files.

    Args:
        folder: The state folder; one of its own below it is made when there is something to note.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        self._lock = threading.Lock()
        self._known: dict[str, dict[str, int]] = {}

    @override
    def known(self, table: str) -> Mapping[str, int]:
        """See `Witness.known`."""
        with self._lock:
            return dict(self._of(table))

    @override
    def note(self, table: str, positions: Mapping[str, int]) -> None:
        """See `Witness.note`."""
        with self._lock:
            known = self._of(table)
            if any(known.get(source) != position for source, position in positions.items()):
                known.update(positions)
                self._write(table)

    @override
    def drop(self, table: str, source: str) -> None:
        """See `Witness.drop`."""
        with self._lock:
            if self._of(table).pop(source, None) is not None:
                self._write(table)

    def _of(self, table: str) -> dict[str, int]:
        if table not in self._known:
            self._known[table] = self._read(table)
        return self._known[table]

    def _read(self, table: str) -> dict[str, int]:
        try:
            found = json.loads(self._file(table).read_text(encoding="utf-8"))
            return {source: lsn.parse(text) for source, text in found["positions"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def _write(self, table: str) -> None:
        file = self._file(table)
        fresh = file.with_suffix(".new")
        positions = {source: lsn.render(position) for source, position in self._known[table].items()}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            fresh.write_text(json.dumps({"table": table, "positions": positions}), encoding="utf-8")
            fresh.replace(file)
        except OSError as error:  # an older witness is one all the same
            _log.tell(Event.WITNESS_FAILED, table=table, error=str(error))

    def _file(self, table: str) -> Path:
        return self._folder / f"{hashlib.sha256(table.encode()).hexdigest()[:32]}.json"


__all__ = ["FOLDER", "WitnessFiles"]
