"""Transactions that come in parts."""

from __future__ import annotations

import numpy as np

from kuvasz.fold.keys import Keys
from kuvasz.index.positions import ABSENT
from kuvasz.lake.table.open_transactions import OpenTransaction


def test_a_truncate_within_it_forgets_rows_and_nothing_else() -> None:
    pending = OpenTransaction(0x1A2B)
    keys, rows = Keys(hi=np.ones(2, np.uint64), lo=np.arange(2, dtype=np.uint64)), np.arange(2, dtype=np.uint32)
    pending.overlay.insert(keys, 7, rows)
    pending.entries.append((keys, np.full(2, 7, np.uint32), rows))
    pending.changeset.delete(np.full(2, 7, np.uint32), rows)
    pending.truncates, pending.us, pending.sid = ("eu",), 5, "eu"
    pending.clear()
    assert (pending.entries, pending.changeset.deletes) == ([], {})
    assert (pending.overlay.lookup(keys)[0] == ABSENT).all()
    assert (pending.commit_lsn, pending.truncates, pending.us, pending.sid) == (0x1A2B, ("eu",), 5, "eu")
