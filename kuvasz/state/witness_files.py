"""How far each lake table was, as a witness outside the lake: an older lake that is put in place agrees with itself.

One small file per table in the state folder, written after each commit without waiting for the disk. It may be older
than the lake, after a power failure or where another process wrote the table, and then says nothing: what counts is
that the lake was once as far as it says. Without the folder nothing is lost but the witness.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import threading
from collections.abc import Mapping
from pathlib import Path

from typing_extensions import override

from kuvasz import lsn
from kuvasz.events import Event, EventLog
from kuvasz.model import SourcePosition
from kuvasz.state.ports import FormerPosition, Witness

_log = EventLog(__name__)

FOLDER = "positions"

NEVER = FormerPosition(-1, 0)


@dataclasses.dataclass(slots=True, eq=False)
class _TableWitness:
    """What is noted of one table, by source."""

    positions: dict[str, int] = dataclasses.field(default_factory=dict)
    given_up: dict[str, FormerPosition] = dataclasses.field(default_factory=dict)


class WitnessFiles(Witness):
    """The files.

    Args:
        folder: The state folder; one of its own below it is made when there is something to note.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        self._lock = threading.Lock()
        self._seen: dict[str, _TableWitness] = {}

    @override
    def known(self, table: str) -> Mapping[str, int]:
        """See `Witness.known`."""
        with self._lock:
            return dict(self._of(table).positions)

    @override
    def note(self, table: str, positions: Mapping[str, int]) -> None:
        """See `Witness.note`."""
        with self._lock:
            seen = self._of(table)
            is_new = any(seen.positions.get(source) != position for source, position in positions.items())
            if is_new or not seen.given_up.keys().isdisjoint(positions):
                seen.positions.update(positions)
                seen.given_up = {source: given for source, given in seen.given_up.items() if source not in positions}
                self._write(table)

    @override
    def drop(self, table: str, source: str) -> None:
        """See `Witness.drop`."""
        with self._lock:
            if self._of(table).positions.pop(source, None) is not None:
                self._write(table)

    @override
    def give_up(self, table: str, source: str, position: SourcePosition) -> None:
        """See `Witness.give_up`."""
        with self._lock:
            given, known = FormerPosition(position.history, position.lsn), self._of(table).given_up
            if known.get(source, NEVER) < given:
                known[source] = given
                self._write(table)

    @override
    def expect(self, table: str, source: str, position: SourcePosition) -> None:
        """See `Witness.expect`."""
        with self._lock:
            known = self._of(table).given_up
            given = known.get(source)
            if given is not None and (below := given.below(position)) != given:
                known[source] = below
                self._write(table)

    @override
    def given_up(self, table: str) -> Mapping[str, FormerPosition]:
        """See `Witness.given_up`."""
        with self._lock:
            return dict(self._of(table).given_up)

    def _of(self, table: str) -> _TableWitness:
        if table not in self._seen:
            self._seen[table] = self._read(table)
        return self._seen[table]

    def _read(self, table: str) -> _TableWitness:
        try:
            found = json.loads(self._file(table).read_text(encoding="utf-8"))
            return _TableWitness(
                {source: lsn.parse(text) for source, text in found["positions"].items()},
                {source: FormerPosition(int(history), lsn.parse(text))
                 for source, (history, text) in found.get("given_up", {}).items()},
            )  # fmt: skip
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return _TableWitness()

    def _write(self, table: str) -> None:
        file, seen = self._file(table), self._seen[table]
        fresh = file.with_suffix(".new")
        noted = {
            "table": table,
            "positions": {source: lsn.render(position) for source, position in seen.positions.items()},
            "given_up": {source: (given.history, lsn.render(given.lsn)) for source, given in seen.given_up.items()},
        }
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            fresh.write_text(json.dumps(noted), encoding="utf-8")
            fresh.replace(file)
        except OSError as error:  # an older witness is one all the same
            _log.tell(Event.WITNESS_FAILED, table=table, error=str(error))

    def _file(self, table: str) -> Path:
        return self._folder / f"{hashlib.sha256(table.encode()).hexdigest()[:32]}.json"


__all__ = ["FOLDER", "WitnessFiles"]
