"""The files that one source's tables had when all of their rows were known, in `files/<source>.json`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from typing_extensions import override

from kuvasz import private_folder
from kuvasz.errors import unreadable
from kuvasz.events import Event, EventLimit, EventLog
from kuvasz.state.ports import KnownFile, StoredFiles

_log = EventLog(__name__)

FOLDER = "files"


class RelationFiles(StoredFiles):
    """The file. Called by one thread at a time; it is read when it is asked for first.

    Args:
        folder: The state folder; made when there is something to keep.
        source: The source's name.
    """

    def __init__(self, folder: Path, source: str) -> None:
        self._folder = folder
        self._source = source
        self._files: dict[int, KnownFile] | None = None  #: None: nobody has read it yet
        self._failing = EventLimit()  # each look may write it

    @property
    def _path(self) -> Path:
        return self._folder / FOLDER / f"{self._source}.json"

    def _known(self) -> dict[int, KnownFile]:
        if self._files is None:
            self._files = self._load()
        return self._files

    def _load(self) -> dict[int, KnownFile]:
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            return {int(oid): KnownFile.of_json(one) for oid, one in found.items()}
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, AttributeError):
            return {}
        except OSError as error:
            raise unreadable(self._path, error) from error

    @override
    def all(self) -> Mapping[int, KnownFile]:
        """See `StoredFiles.all`."""
        return dict(self._known())

    @override
    def put(self, files: Mapping[int, KnownFile]) -> None:
        """See `StoredFiles.put`. After a crash the file is the old one or the new one."""
        after = {**self._known(), **files}
        if after == self._files:
            return
        self._files = after
        try:
            known = {str(oid): dataclasses.asdict(one) for oid, one in sorted(after.items())}
            private_folder.exchange(self._path, json.dumps(known))
        except OSError as error:  # an older one cries wolf, and the table is compared
            if self._failing.is_news():
                _log.tell(Event.RELATION_FILES_FAILED, file=str(self._path), error=str(error))
        else:
            self._failing.over()


__all__ = ["FOLDER", "RelationFiles"]
