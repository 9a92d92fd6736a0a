"""How far each lake table was, as a witness outside the lake: an older lake that is put in place agrees with itself.

One small file per table in the state folder, written after each commit without waiting for the disk. It may be older
than the lake, after a power failure or where another process wrote the table, and then says nothing: what counts is
that the lake was once as far as it says. Without the folder nothing is lost but the witness.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from typing_extensions import override

from kuvasz import private_folder
from kuvasz.errors import StateError, unreadable
from kuvasz.events import Event, EventLimit, EventLog
from kuvasz.model import SourcePosition
from kuvasz.state.ports import FormerPosition, TableWitness, Witness

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
        self._seen: dict[str, TableWitness] = {}
        self._failing = EventLimit()  # each commit of each table writes one

    @override
    def known(self, table: str) -> Mapping[str, int]:
        """See `Witness.known`."""
        with self._lock:
            return dict(self._of(table).positions)

    @override
    def note(self, table: str, positions: Mapping[str, int]) -> None:
        """See `Witness.note`."""
        self._change(table, lambda seen: seen.note(positions))

    @override
    def drop(self, table: str, source: str) -> None:
        """See `Witness.drop`."""
        self._change(table, lambda seen: seen.drop(source))

    @override
    def give_up(self, table: str, source: str, position: SourcePosition) -> None:
        """See `Witness.give_up`."""
        self._change(table, lambda seen: seen.give_up(source, position))

    @override
    def expect(self, table: str, source: str, position: SourcePosition) -> None:
        """See `Witness.expect`."""
        self._change(table, lambda seen: seen.expect(source, position))

    @override
    def given_up(self, table: str) -> Mapping[str, FormerPosition]:
        """See `Witness.given_up`."""
        with self._lock:
            return dict(self._of(table).given_up)

    @override
    def let_go(self, table: str) -> None:
        """See `Witness.let_go`: nobody else has this folder."""

    def _of(self, table: str) -> TableWitness:
        if table not in self._seen:
            self._seen[table] = self._read(table)
        return self._seen[table]

    def _read(self, table: str) -> TableWitness:
        try:
            return TableWitness.of_json(json.loads(self._file(table).read_text(encoding="utf-8")))
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, AttributeError):
            return TableWitness()
        except OSError as error:
            raise unreadable(self._file(table), error) from error

    def _change(self, table: str, change: Callable[[TableWitness], bool]) -> None:
        with self._lock:
            try:
                seen = self._of(table)  # what is not known is not written over, either
                if change(seen):
                    noted = json.dumps({"table": table, **seen.as_json()})
                    private_folder.exchange(self._file(table), noted, is_durable=False)
                    self._failing.over()
            except (OSError, StateError) as error:  # an older witness is one all the same
                if self._failing.is_news():
                    _log.tell(Event.WITNESS_FAILED, table=table, error=str(error))

    def _file(self, table: str) -> Path:
        return self._folder / f"{hashlib.sha256(table.encode()).hexdigest()[:32]}.json"


__all__ = ["FOLDER", "WitnessFiles"]
