from __future__ import annotations

import numpy as np

from kuvasz.modes.transaction_facts import Facts

FACTS = Facts.of(np.array([[100, 5, 7, 2, 40], [200, 6, 8, 5, 0]], np.int64))


def test_runs_and_ordinals_of_rows() -> None:
    assert FACTS.runs().tolist() == [0, 0, 1, 1, 1]
    assert FACTS.ordinals().tolist() == [40, 41, 0, 1, 2]


def test_of_some_rows_each_keeps_its_number() -> None:
    some = FACTS.of_rows(np.array([1, 2, 4], np.int32))
    assert some.ordinals().tolist() == [41, 0, 2]
    assert some.commit_lsn[some.runs()].tolist() == [100, 200, 200]
    assert FACTS.of_rows(np.empty(0, np.int32)).runs().tolist() == []


def test_they_come_back_from_bytes() -> None:
    again = Facts.from_bytes(FACTS.to_bytes())
    for name in ("commit_lsn", "commit_us", "xid", "row_end", "ordinal"):
        assert getattr(again, name).tolist() == getattr(FACTS, name).tolist()
