"""How far each webhook has been told, in one file of the state folder, `notified.json`."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typing_extensions import override

from kuvasz import private_folder
from kuvasz.errors import StateError, unreadable
from kuvasz.events import Event, EventLimit, EventLog
from kuvasz.state.ports import StoredNotices

_log = EventLog(__name__)

FILE = "notified.json"


class NoticeFile(StoredNotices):
    """The file. Its values may quote names of tables and what happened, so only this user may read it.

    Args:
        folder: The state folder; made when there is something to keep.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._failing = EventLimit()  # it is kept each second
        self._lock = threading.Lock()  # each webhook has a thread, and keeps its own part of it

    @override
    def all(self) -> dict[str, Mapping[str, Any]]:
        """See `StoredNotices.all`; nothing of a file that is none of ours."""
        try:
            found = json.loads(self._file.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        except OSError as error:
            raise unreadable(self._file, error) from error
        return {name: one for name, one in found.items() if isinstance(one, dict)} if isinstance(found, dict) else {}

    @override
    def put(self, name: str, told: Mapping[str, Any]) -> None:
        """See `StoredNotices.put`. After a crash the file is the old one or the new one."""
        try:
            with self._lock:
                text = json.dumps({**self.all(), name: told})
                private_folder.exchange(self._file, text, is_private=True)
        except (OSError, StateError) as error:
            if self._failing.is_news():
                _log.tell(Event.NOTICES_UNKEPT, file=str(self._file), error=str(error))
        else:
            self._failing.over()


__all__ = ["FILE", "NoticeFile"]
