"""How far each webhook has been told, a document of the coordinator each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from kuvasz.errors import StateError
from kuvasz.events import Event, EventLimit, EventLog
from kuvasz.state.ports import StoredNotices

if TYPE_CHECKING:
    from kuvasz.state.coordinator.documents import Documents

_log = EventLog(__name__)


class NoticeDocuments(StoredNotices):
    """The documents.

    Args:
        documents: Where they are.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._failing = EventLimit()  # they are kept each second

    @override
    def all(self) -> dict[str, Mapping[str, Any]]:
        """See `StoredNotices.all`."""
        return {name: one for name, one in self._documents.all().items() if isinstance(one, dict)}

    @override
    def put(self, name: str, told: Mapping[str, Any]) -> None:
        """See `StoredNotices.put`."""
        try:
            self._documents.put({name: told})
        except StateError as error:
            if self._failing.is_news():
                _log.tell(Event.NOTICES_UNKEPT, file=self._documents.place, error=str(error))
        else:
            self._failing.over()


__all__ = ["NoticeDocuments"]
