"""The last events of a running kuvasz, as a bug report may have them: without what the log alone may say of rows."""

from __future__ import annotations

import collections
import json
import sys
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kuvasz.admin.about import EventRows
    from kuvasz.events import Event

#: Events that are kept; one has some 300 bytes.
MOST = 2000

#: Events of one source that are shown.
MOST_OF_ONE = 50


class LastEvents:
    """Keeps events in the form that the lake's table of them has, too. Told from any thread.

    Args:
        rows: Makes rows of events; commits, and what an engine says, have none.
        most: So many are kept.
    """

    def __init__(self, rows: EventRows, most: int = MOST) -> None:
        self._rows = rows
        self._kept: collections.deque[dict[str, Any]] = collections.deque(maxlen=most)

    def hear(self, event: Event, facts: Mapping[str, object]) -> None:
        """Keep an event; see `kuvasz.events.Listener`."""
        for row in self._rows.of(event, facts):
            self._kept.append(row | ({"stack": _stack()} if event.has_traceback else {}))

    def all(self) -> list[dict[str, Any]]:
        """Return the events, the oldest first, ready for JSON."""
        return [_entry(row) for row in list(self._kept)]

    def of(self, source: str, most: int = MOST_OF_ONE) -> list[dict[str, Any]]:
        """Return the last events of a source, as `all` does."""
        return [_entry(row) for row in list(self._kept) if row["source"] == source][-most:]


def _entry(row: dict[str, Any]) -> dict[str, Any]:
    at, fields = row["happened_at"], json.loads(row["fields"])
    kept = {
        name: row[name] for name in ("severity", "event", "text", "source", "table_name") if row[name] is not None
    }
    stack = {"stack": row["stack"]} if "stack" in row else {}
    return {"at": at.isoformat(timespec="milliseconds"), **kept, **fields, **stack}


def _stack() -> list[str]:
    """Return where the exception that is handled was raised, and its kind: its text may quote a row."""
    kind, _, trace = sys.exc_info()
    places = [f"{one.filename}:{one.lineno} {one.name}" for one in traceback.extract_tb(trace)]
    return places if kind is None else [*places, kind.__name__]


__all__ = ["MOST", "LastEvents"]
