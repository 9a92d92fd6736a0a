"""What kuvasz holds of a source, in a document.

The LSN that is confirmed changes each second with every source, and a note of it must be durable before the source is
told: a coordinator that sees each of them would cost as much as the stream. So it stands there once all has ended in
order; of a process that was killed it is not known, as after a machine that lost power.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from typing_extensions import override

from kuvasz.errors import StateError
from kuvasz.events import Event, EventLimit, EventLog
from kuvasz.state.coordinator.documents import Documents
from kuvasz.state.ports import SourceRecord, StoredRecord

_log = EventLog(__name__)


class RecordDocument(StoredRecord):
    """The standing of one source. It is read when it is asked for first.

    Args:
        documents: Where it is, by the source's name.
        source: The source's name.
    """

    def __init__(self, documents: Documents, source: str) -> None:
        self._documents = documents
        self._source = source
        self._written: dict[str, Any] | None = None
        self._failing = EventLimit()  # it is written each second

    @functools.cached_property
    @override
    def standing(self) -> SourceRecord:  # type: ignore[override] # cached, it is an attribute like any other
        """See `StoredRecord.standing`: what a coordinator does not say now is not written over."""
        return self._load()

    @property
    @override
    def place(self) -> str:
        return f"{self._documents.place}, {self._source}"

    def _load(self) -> SourceRecord:
        found = self._documents.get(self._source)
        try:
            return SourceRecord() if found is None else SourceRecord.of_json(found)
        except (ValueError, KeyError, TypeError) as error:
            _log.tell(Event.STANDING_FAILED, file=self.place, error=str(error))
            return SourceRecord()

    @override
    def update(self, standing: SourceRecord) -> None:
        """Take a standing over; it is found from now on, but for what is confirmed."""
        self.standing = standing
        self._write(dataclasses.replace(standing, confirmed_lsn=0))

    @override
    def close(self) -> None:
        """Keep all of it, what is confirmed as well."""
        if self._written is not None:
            self._write(self.standing)
            self._written = None

    def _write(self, standing: SourceRecord) -> None:
        document = standing.as_json()
        if document == self._written:
            return
        try:
            self._documents.put({self._source: document})
            self._written = document
        except StateError as error:  # the stream is worth more, and without the coordinator it ends anyway
            if self._failing.is_news():
                _log.tell(Event.STANDING_FAILED, file=self.place, error=str(error))
        else:
            self._failing.over()


__all__ = ["RecordDocument"]
