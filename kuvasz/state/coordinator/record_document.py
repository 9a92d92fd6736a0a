"""What kuvasz holds of a source, in a document.

The LSN that is confirmed changes each second with every source, and a note of it must be durable before the source is
told: a coordinator that sees each of them would cost as much as the stream. So it stands there once all has ended in
order; of a process that was killed it is not known, as after a machine that lost power.

The loop of all sources never waits for the coordinator: what it has to say is written by a thread, of each source the
last of it alone, and one after another.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from typing import Any

from typing_extensions import override

from kuvasz.errors import StateError
from kuvasz.events import Event, EventLimit, EventLog
from kuvasz.own_thread import in_thread
from kuvasz.state.coordinator.documents import Documents
from kuvasz.state.ports import SourceRecord, StoredRecord

_log = EventLog(__name__)


class RecordDocument(StoredRecord):
    """The standing of one source. It is read when it is asked for first.

    Args:
        documents: Where it is, by the source's name.
        source: The source's name.
        writer: Has it written soon.
    """

    def __init__(self, documents: Documents, source: str, writer: RecordWriter | None = None) -> None:
        self._documents = documents
        self._source = source
        self._writer = writer or RecordWriter()
        self._written: dict[str, Any] | None = None
        self._is_due = False  #: it is yet to be written
        self._lock = threading.Lock()  #: held while it is
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
        self.standing, self._is_due = standing, True
        self.settle()

    @override
    def update_soon(self, standing: SourceRecord) -> None:
        """See `StoredRecord.update_soon`; once more, if it could not be written the last time."""
        self.standing = standing
        if self._lasting() != self._written:
            self._is_due = True
            self._writer.add(self)

    @override
    def confirming(self, confirmed_lsn: int) -> None:
        """See `StoredRecord.confirming`: it is known here, and found once all has ended in order."""
        if confirmed_lsn > self.standing.confirmed_lsn:
            self.update_soon(dataclasses.replace(self.standing, confirmed_lsn=confirmed_lsn))

    @property
    @override
    def is_settled(self) -> bool:
        """See `StoredRecord.is_settled`: what is not due may be on its way."""
        return not self._is_due and not self._lock.locked()

    @override
    def settle(self) -> None:
        """See `StoredRecord.settle`."""
        with self._lock:
            if self._is_due:
                self._is_due = False  # first: what comes meanwhile is due again
                self._write(self._lasting())

    @override
    def close(self) -> None:
        """Keep all of it, what is confirmed as well; nothing is written behind that."""
        with self._lock:
            if self._is_due or self._written is not None:
                self._is_due = False
                self._write(self.standing.as_json())
                self._written = None

    def _lasting(self) -> dict[str, Any]:
        """Return what is found of it also if this process is killed."""
        return dataclasses.replace(self.standing, confirmed_lsn=0).as_json()

    def _write(self, document: dict[str, Any]) -> None:
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


class RecordWriter:
    """Writes records in a thread, for as long as there are some to be written. From any thread; nothing blocks."""

    def __init__(self) -> None:
        self._due: dict[RecordDocument, None] = {}
        self._lock = threading.Lock()
        self._is_running = False

    def add(self, record: RecordDocument) -> None:
        """Have a record written as it is by then."""
        with self._lock:
            self._due[record] = None
            if self._is_running:
                return
            self._is_running = True
        in_thread(self._run, "records")

    def _run(self) -> None:
        while (record := self._next()) is not None:
            try:
                record.settle()
            except Exception as error:  # noqa: BLE001 (the owner of the thread: others are to be written)
                _log.tell(Event.STANDING_FAILED, file=record.place, error=repr(error))

    def _next(self) -> RecordDocument | None:
        with self._lock:
            record = next(iter(self._due), None)
            if record is None:
                self._is_running = False
            else:
                del self._due[record]
            return record


__all__ = ["RecordDocument", "RecordWriter"]
