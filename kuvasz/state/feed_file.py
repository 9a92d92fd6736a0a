"""Which targets each source fed at the last start, by which sid, and what its patterns were matched with.

All of it is in one file of the state folder, `feeds.json`.

It is written at a start whose map says otherwise than the file. Without it a target that left the map is found by the
namespaces that the map names, and one that is in the map again is believed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from kuvasz import private_folder
from kuvasz.errors import StateError, unreadable
from kuvasz.events import Event, EventLog
from kuvasz.state.ports import StoredFeeds

_log = EventLog(__name__)

FILE = "feeds.json"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _FeedRecord:
    """What the file has."""

    feeds: Mapping[str, frozenset[str]]
    sids: Mapping[str, str | None]
    tables: Mapping[str, Sequence[tuple[str, bool, int]]]


class FeedFile(StoredFeeds):
    """The file.

    Args:
        folder: The state folder; made when there is something to keep.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._writing = threading.Lock()  # a source that begins and one that was looked at write what both know

    @override
    def known(self) -> Mapping[str, frozenset[str]]:
        """See `StoredFeeds.known`; nothing of a file that is none of ours."""
        with contextlib.suppress(TypeError):
            return {feeder: frozenset(targets) for feeder, targets in self._part("feeds").items()}
        return {}

    @override
    def sids(self) -> Mapping[str, str | None]:
        """See `StoredFeeds.sids`; versions before kept none."""
        return dict(self._part("sids").items())

    @override
    def seen(self) -> Mapping[str, Sequence[tuple[str, bool, int]]]:
        """See `StoredFeeds.seen`; versions before kept none."""
        with contextlib.suppress(TypeError, ValueError):
            return {
                source: tuple((str(table), bool(has_key), int(since)) for table, has_key, since in tables)
                for source, tables in self._part("tables").items()
            }
        return {}

    def _part(self, name: str) -> Mapping[str, Any]:
        """Return a part of what is there; nothing of a file that is missing, or none of ours.

        Raises:
            StateError: It cannot be read now.
        """
        try:
            found = json.loads(self._file.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        except OSError as error:
            raise unreadable(self._file, error) from error
        part = found.get(name) if isinstance(found, dict) else None
        return part if isinstance(part, dict) else {}

    @override
    def keep(self, feeds: Mapping[str, Collection[str]], sids: Mapping[str, str | None] | None = None) -> None:
        """See `StoredFeeds.keep`. After a crash the file is the old one or the new one."""
        with self._writing:
            kept = self._kept()
            all_feeds = {**kept.feeds, **{feeder: frozenset(targets) for feeder, targets in feeds.items()}}
            self._replace(kept, dataclasses.replace(kept, feeds=all_feeds, sids={**kept.sids, **(sids or {})}))

    @override
    def see(self, tables: Mapping[str, Sequence[tuple[str, bool, int]]]) -> None:
        """See `StoredFeeds.see`."""
        with self._writing:
            kept = self._kept()
            seen = {source: tuple(found) for source, found in tables.items()}
            self._replace(kept, dataclasses.replace(kept, tables={**kept.tables, **seen}))

    def _kept(self) -> _FeedRecord:
        """Return what is kept; nothing of a file that cannot be read: it is exchanged for what is known now."""
        with contextlib.suppress(StateError):
            return _FeedRecord(feeds=self.known(), sids=self.sids(), tables=self.seen())
        return _FeedRecord(feeds={}, sids={}, tables={})

    def _replace(self, before: _FeedRecord, kept: _FeedRecord) -> None:
        if kept == before:
            return
        try:
            self._write(kept)
        except OSError as error:
            _log.tell(Event.FEEDS_FAILED, file=str(self._file), error=str(error))
            with contextlib.suppress(OSError):
                self._file.unlink()  # an older one would lie

    def _write(self, kept: _FeedRecord) -> None:
        tables = {"tables": kept.tables} if kept.tables else {}
        feeds = {feeder: sorted(targets) for feeder, targets in sorted(kept.feeds.items())}
        private_folder.exchange(self._file, json.dumps({"feeds": feeds, "sids": kept.sids, **tables}))


__all__ = ["FILE", "FeedFile"]
