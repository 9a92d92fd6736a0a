from __future__ import annotations

import logging

import pytest

from kuvasz.model import SourcePosition
from kuvasz.ports import Receipt
from kuvasz.worker.receipts import Receipts


def test_a_commit_is_one_line_at_debug_and_reaches_whoever_wants_to_hear(caplog: pytest.LogCaptureFixture) -> None:
    receipts, heard = Receipts(), list[Receipt]()
    receipts.observe(heard.append)
    made = Receipt(
        target="shop.items", positions={"eu": SourcePosition(lsn=0x500)}, rows=3, snapshot_id=7, seconds=0.5
    )
    with caplog.at_level(logging.INFO):
        receipts.tell(made)
    assert caplog.records == [], "a summary once a minute says what came"
    with caplog.at_level(logging.DEBUG):
        receipts.tell(made)
    (record,) = caplog.records
    facts = {name: record.__dict__[name] for name in ("event", "table", "rows", "snapshot", "positions", "seconds")}
    assert facts == {
        "event": "committed", "table": "shop.items", "rows": 3, "snapshot": 7, "positions": {"eu": "0/500"},
        "seconds": 0.5,
    }  # fmt: skip
    assert heard == [made, made]


def test_changes_that_cancelled_out_are_no_commit(caplog: pytest.LogCaptureFixture) -> None:
    receipts, heard = Receipts(), list[Receipt]()
    receipts.observe(heard.append)
    with caplog.at_level(logging.DEBUG):
        receipts.tell(Receipt(target="shop.items", positions={}, rows=2, snapshot_id=None))
    assert (caplog.records, len(heard)) == ([], 1)
