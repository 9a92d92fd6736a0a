"""How far each lake table was, a document each."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping

from typing_extensions import override

from kuvasz.errors import StateError
from kuvasz.events import Event, EventLimit, EventLog
from kuvasz.model import SourcePosition
from kuvasz.state.coordinator.documents import Documents
from kuvasz.state.ports import FormerPosition, TableWitness, Witness

_log = EventLog(__name__)


class WitnessDocuments(Witness):
    """The witnesses of all tables. What this process wrote while it held the lease is not read again.

    Args:
        documents: Where they are, by the table's name.
        number: Returns the number of the lease that this process holds, or held last.
    """

    def __init__(self, documents: Documents, number: Callable[[], int]) -> None:
        self._documents = documents
        self._number = number
        self._lock = threading.Lock()
        self._seen: dict[str, TableWitness] = {}
        self._seen_under = 0
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
        """See `Witness.let_go`: it is read again."""
        with self._lock:
            self._seen.pop(table, None)

    def _change(self, table: str, change: Callable[[TableWitness], bool]) -> None:
        with self._lock:
            try:
                seen = self._of(table)  # what is not known is not written over, either
                if change(seen):
                    self._documents.put({table: seen.as_json()})
                    self._failing.over()
            except StateError as error:  # an older witness is one all the same
                if self._failing.is_news():
                    _log.tell(Event.WITNESS_FAILED, table=table, error=str(error))

    def _of(self, table: str) -> TableWitness:
        if self._seen_under != self._number():  # another process may have written since
            self._seen, self._seen_under = {}, self._number()
        if table not in self._seen:
            found = self._read(table)
            if self._seen_under == 0:
                return found
            self._seen[table] = found
        return self._seen[table]

    def _read(self, table: str) -> TableWitness:
        found = self._documents.get(table)
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            return TableWitness() if found is None else TableWitness.of_json(found)
        return TableWitness()


__all__ = ["WitnessDocuments"]
