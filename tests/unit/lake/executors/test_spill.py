"""Lists on disk come back as they went, group by group."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kuvasz.fold.difference import Listing
from kuvasz.fold.events import Events
from kuvasz.fold.keys import Keys
from kuvasz.lake.executors.spill import Spill


def listing(*numbers: int) -> Listing:
    words = np.array(numbers, np.uint64)
    small = words.astype(np.uint32)
    prints = Keys(hi=words + np.uint64(2), lo=words + np.uint64(3))
    return Listing(
        keys=Keys(hi=words, lo=words + np.uint64(1)), prints=prints, files=small, places=small + np.uint32(4)
    )


def columns(rows: Listing) -> list[list[int]]:
    parts = (rows.keys.hi, rows.keys.lo, rows.prints.hi, rows.prints.lo, rows.files, rows.places)
    return [part.tolist() for part in parts]


def test_rows_and_events_come_back(tmp_path: Path) -> None:
    spill = Spill(tmp_path)
    spill.add_rows("source", 1, listing(1, 2))
    spill.add_rows("source", 1, listing(3))
    spill.add_rows("source", 2, listing(9))
    assert columns(spill.rows("source", 1)) == columns(listing(1, 2, 3))
    assert columns(spill.rows("lake", 1)) == columns(listing())
    times = np.array([-5, 7], np.int64)
    events = Events(rows=listing(4, 5), first=times, second=times * 2, is_end=np.array([True, False]))
    spill.add_events("lake", 1, events)
    found = spill.events("lake", 1)
    assert columns(found.rows) == columns(listing(4, 5))
    assert (found.first.tolist(), found.second.tolist(), found.is_end.tolist()) == ([-5, 7], [-10, 14], [True, False])
    spill.remove([1], ["source", "lake"])
    assert columns(spill.rows("source", 1)) == columns(listing())
    spill.close()
    assert list(tmp_path.iterdir()) == []
