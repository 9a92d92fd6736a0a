"""Which targets each source fed at the last start, and by which sid, in one file of the state folder, `feeds.json`.

It is written at a start whose map says otherwise than the file. Without it a target that left the map is found by the
namespaces that the map names, and one that is in the map again is believed.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from typing_extensions import override

from kuvasz import private_folder
from kuvasz.events import Event, EventLog
from kuvasz.state.ports import StoredFeeds

_log = EventLog(__name__)

FILE = "feeds.json"


class FeedFile(StoredFeeds):
    """The file.

    Args:
        folder: The state folder; made when there is something to keep.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE

    @override
    def known(self) -> Mapping[str, frozenset[str]]:
        """See `StoredFeeds.known`; of a file that cannot be read nothing is."""
        try:
            return {feeder: frozenset(targets) for feeder, targets in self._read()["feeds"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    @override
    def sids(self) -> Mapping[str, str | None]:
        """See `StoredFeeds.sids`; versions before kept none."""
        try:
            return dict(self._read()["sids"].items())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def _read(self) -> Any:  # noqa: ANN401 (JSON)
        return json.loads(self._file.read_text(encoding="utf-8"))

    @override
    def keep(self, feeds: Mapping[str, Collection[str]], sids: Mapping[str, str | None] | None = None) -> None:
        """See `StoredFeeds.keep`. After a crash the file is the old one or the new one."""
        before = self.known(), self.sids()
        all_feeds = {**before[0], **{feeder: frozenset(targets) for feeder, targets in feeds.items()}}
        all_sids = {**before[1], **(sids or {})}
        if (all_feeds, all_sids) == before:
            return
        try:
            self._write(all_feeds, all_sids)
        except OSError as error:
            _log.tell(Event.FEEDS_FAILED, file=str(self._file), error=str(error))
            with contextlib.suppress(OSError):
                self._file.unlink()  # an older one would lie

    def _write(self, feeds: Mapping[str, Collection[str]], sids: Mapping[str, str | None]) -> None:
        kept = {"feeds": {feeder: sorted(targets) for feeder, targets in sorted(feeds.items())}, "sids": sids}
        private_folder.exchange(self._file, json.dumps(kept))
        _sync(self._file.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


__all__ = ["FILE", "FeedFile"]
