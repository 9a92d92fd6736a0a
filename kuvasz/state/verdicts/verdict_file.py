"""The last verdict on each table in one file of the state folder, `verified.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from typing_extensions import override

from kuvasz import private_folder
from kuvasz.errors import StateError, unreadable
from kuvasz.events import Event, EventLog
from kuvasz.state.ports import StoredVerdicts, TableKey
from kuvasz.state.verdicts.verdict import Verdict

_log = EventLog(__name__)

FILE = "verified.json"


class VerdictFile(StoredVerdicts):
    """The file.

    Args:
        folder: The state folder; made when there is something to keep.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE

    @override
    def all(self) -> dict[TableKey, Verdict]:
        """See `StoredVerdicts.all`; none of a file that is none of ours."""
        try:
            found = json.loads(self._file.read_text(encoding="utf-8"))["tables"]
            return {(entry["target"], entry["source"]): Verdict.of_json(entry) for entry in found}
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, AttributeError):
            return {}
        except OSError as error:
            raise unreadable(self._file, error) from error

    @override
    def put(self, verdicts: Mapping[TableKey, Verdict | None]) -> None:
        """See `StoredVerdicts.put`. After a crash the file is the old one or the new one."""
        try:
            kept = {key: verdict for key, verdict in {**self.all(), **verdicts}.items() if verdict is not None}
            entries = [
                {"target": target, "source": source, **one.as_json()} for (target, source), one in kept.items()
            ]
            private_folder.exchange(self._file, json.dumps({"tables": entries}), is_durable=False)
        except (OSError, StateError) as error:
            _log.tell(Event.VERDICTS_FAILED, file=str(self._file), error=str(error))


__all__ = ["FILE", "VerdictFile"]
