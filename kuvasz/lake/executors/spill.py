"""Lists of rows that do not fit into memory: in files on local disk, a file for each group of keys and side."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from kuvasz.fold.difference import Listing
from kuvasz.fold.events import Events
from kuvasz.fold.keys import Keys

_ROW = np.dtype(
    [("key_hi", "<u8"), ("key_lo", "<u8"), ("hi", "<u8"), ("lo", "<u8"), ("file", "<u4"), ("place", "<u4")]
)
_EVENT = np.dtype([*_ROW.descr, ("first", "<i8"), ("second", "<i8"), ("is_end", "?")])


class Spill:
    """The files of one comparison. `close` removes them.

    Args:
        folder: Where they go.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / uuid.uuid4().hex
        self._folder.mkdir(parents=True)

    def close(self) -> None:
        """Remove all files."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def add_rows(self, side: str, group: int, listing: Listing) -> None:
        """Append rows to a group; one thread at a time."""
        self._add(side, group, _records(listing, _ROW))

    def add_events(self, side: str, group: int, events: Events) -> None:
        """Append events to a group; one thread at a time."""
        records = _records(events.rows, _EVENT)
        records["first"], records["second"], records["is_end"] = events.first, events.second, events.is_end
        self._add(side, group, records)

    def rows(self, side: str, group: int) -> Listing:
        """Return the rows of a group."""
        return _listing(self._load(side, group, _ROW))

    def events(self, side: str, group: int) -> Events:
        """Return the events of a group."""
        records = self._load(side, group, _EVENT)
        first, second, is_end = (np.ascontiguousarray(records[name]) for name in ("first", "second", "is_end"))
        return Events(rows=_listing(records), first=first, second=second, is_end=is_end)

    def remove(self, groups: Iterable[int], sides: Iterable[str]) -> None:
        """Remove the files of some groups."""
        for group in groups:
            for side in sides:
                self._file(side, group).unlink(missing_ok=True)

    def _file(self, side: str, group: int) -> Path:
        return self._folder / f"{side}-{group}"

    def _add(self, side: str, group: int, records: np.ndarray) -> None:
        with self._file(side, group).open("ab") as stream:
            stream.write(records.tobytes())

    def _load(self, side: str, group: int, kind: np.dtype) -> np.ndarray:
        file = self._file(side, group)
        return np.fromfile(file, kind) if file.exists() else np.empty(0, kind)


def _records(listing: Listing, kind: np.dtype) -> np.ndarray:
    records = np.empty(len(listing), kind)
    records["key_hi"], records["key_lo"] = listing.keys.hi, listing.keys.lo
    records["hi"], records["lo"] = listing.prints.hi, listing.prints.lo
    records["file"], records["place"] = listing.files, listing.places
    return records


def _listing(records: np.ndarray) -> Listing:
    column = {name: np.ascontiguousarray(records[name]) for name in _ROW.names or ()}
    return Listing(
        keys=Keys(hi=column["key_hi"], lo=column["key_lo"]), prints=Keys(hi=column["hi"], lo=column["lo"]),
        files=column["file"], places=column["place"],
    )  # fmt: skip


__all__ = ["Spill"]
