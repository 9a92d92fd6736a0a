"""The last verdict on each table, a document of the coordinator each."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from typing_extensions import override

from kuvasz.errors import StateError
from kuvasz.events import Event, EventLog
from kuvasz.state.ports import StoredVerdicts, TableKey
from kuvasz.state.verdicts.verdict import Verdict

if TYPE_CHECKING:
    from kuvasz.state.coordinator.documents import Documents

_log = EventLog(__name__)


class VerdictDocuments(StoredVerdicts):
    """The verdicts.

    Args:
        documents: Where they are.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    @override
    def all(self) -> dict[TableKey, Verdict]:
        """See `StoredVerdicts.all`; none of what another version wrote."""
        found = self._documents.all()
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            return {_key(name): Verdict.of_json(one) for name, one in found.items()}
        return {}

    @override
    def put(self, verdicts: Mapping[TableKey, Verdict | None]) -> None:
        """See `StoredVerdicts.put`."""
        try:
            self._documents.put(
                {json.dumps(key): None if one is None else one.as_json() for key, one in verdicts.items()}
            )
        except StateError as error:
            _log.tell(Event.VERDICTS_FAILED, file=self._documents.place, error=str(error))


def _key(name: str) -> TableKey:
    target, source = json.loads(name)
    return str(target), str(source)


__all__ = ["VerdictDocuments"]
