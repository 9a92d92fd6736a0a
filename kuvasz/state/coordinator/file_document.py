"""The files that one source's tables had when all of their rows were known, in one document."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from typing_extensions import override

from kuvasz.errors import StateError
from kuvasz.events import Event, EventLimit, EventLog
from kuvasz.state.coordinator.documents import Documents
from kuvasz.state.ports import KnownFile, StoredFiles

_log = EventLog(__name__)


class FileDocument(StoredFiles):
    """The document. Called by one thread at a time; it is read when it is asked for first.

    Args:
        documents: Where it is, by the source's name.
        source: The source's name.
    """

    def __init__(self, documents: Documents, source: str) -> None:
        self._documents = documents
        self._source = source
        self._files: dict[int, KnownFile] | None = None  #: None: nobody has read it yet
        self._failing = EventLimit()  # each look may write it

    def _known(self) -> dict[int, KnownFile]:
        if self._files is None:
            self._files = self._load()
        return self._files

    def _load(self) -> dict[int, KnownFile]:
        found = self._documents.get(self._source) or {}
        try:
            return {int(oid): KnownFile.of_json(one) for oid, one in found.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            _log.tell(Event.RELATION_FILES_FAILED, file=self._documents.place, error=str(error))
            return {}

    @override
    def all(self) -> Mapping[int, KnownFile]:
        """See `StoredFiles.all`."""
        return dict(self._known())

    @override
    def put(self, files: Mapping[int, KnownFile]) -> None:
        """See `StoredFiles.put`."""
        after = {**self._known(), **files}
        if after == self._files:
            return
        self._files = after
        document = {str(oid): dataclasses.asdict(one) for oid, one in sorted(after.items())}
        try:
            self._documents.put({self._source: document})
        except StateError as error:  # an older one cries wolf, and the table is compared
            if self._failing.is_news():
                _log.tell(Event.RELATION_FILES_FAILED, file=self._documents.place, error=str(error))
        else:
            self._failing.over()


__all__ = ["FileDocument"]
