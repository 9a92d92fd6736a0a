"""The part with the state folder: what is noted there of tables and sources, and which files it has; never theirs."""

from __future__ import annotations

import datetime
import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kuvasz import lsn
from kuvasz.admin.views import WITHHELD
from kuvasz.config import sources as config_sources
from kuvasz.errors import StateError
from kuvasz.state.store import state_of
from kuvasz.verbs import text
from kuvasz.verbs.support.part import PartFiles

if TYPE_CHECKING:
    from kuvasz.config.model import Config
    from kuvasz.state.ports import Note, SourceRecord

#: Files that are listed.
_MOST = 20_000


def gather(config: Config) -> PartFiles:
    """Return what the state folder has.

    Raises:
        StateError: It is not there, or cannot be read.
    """
    store = state_of(config)
    if not store.is_there:
        raise StateError(f"there is no state folder {store.place}", hint="no kuvasz has run with this map here")
    feeds, folder = store.feeds, config.pipeline.state_folder
    names = [source.name for source in config_sources.resolve(config)]
    listed = list(itertools.islice(_files(folder), _MOST + 1))
    told = {
        "tables": [
            {"target": target, "source": source, **_noted(note)}
            for (target, source), note in store.notes.all().items()
        ],
        "sources": {name: _record(store.record(name).standing) for name in names},
        "feeds": {feeder: sorted(targets) for feeder, targets in feeds.known().items()},
    }
    listing = text.table(("mode", "changed", "bytes", "file"), listed[:_MOST])
    notes = (f"of its files the first {_MOST:,} alone",) if len(listed) > _MOST else ()
    return PartFiles(files={"state.json": told, "state-folder.txt": f"{folder}\n{listing}\n"}, notes=notes)


def _noted(note: Note) -> dict[str, Any]:
    return {
        "paused_at": note.paused_at,
        "is_resync_due": note.is_resync_due,
        "is_repair": note.is_repair,
        "failed_at": note.failed_at,
        "message": WITHHELD if note.message else None,
    }


def _record(standing: SourceRecord) -> dict[str, Any]:
    return {
        "system_id": standing.system_id,
        "timeline": standing.timeline,
        "confirmed_lsn": lsn.render(standing.confirmed_lsn),
        "proved_lsn": lsn.render(standing.proved_lsn),
        "looked_lsn": lsn.render(standing.looked_lsn),
    }


def _files(folder: Path) -> Iterator[tuple[str, str, str, str]]:
    for place, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted([*files, *folders]):
            path = Path(place, name)
            try:
                found = path.lstat()
            except OSError:  # it went meanwhile
                continue
            changed = datetime.datetime.fromtimestamp(found.st_mtime, datetime.UTC).isoformat(timespec="seconds")
            size = "" if stat.S_ISDIR(found.st_mode) else str(found.st_size)
            yield stat.filemode(found.st_mode), changed, size, str(path.relative_to(folder))


__all__ = ["gather"]
