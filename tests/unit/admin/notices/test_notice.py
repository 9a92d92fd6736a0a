from __future__ import annotations

import datetime
import hashlib
import hmac
import json

from kuvasz.admin.about import EventRows
from kuvasz.admin.notices import notice
from kuvasz.config.model import NoticeKind
from kuvasz.events import Event

AT = datetime.datetime(2026, 11, 26, 20, tzinfo=datetime.UTC)
COMMIT = {
    "target": "shop.items", "snapshot_id": 7, "sequence": 3, "committed_at": AT, "kind": "stream",
    "positions": [("shop_eu", "0/10")], "inserts": 1, "updates": 0, "deletes": 0, "added_rows": 1, "files": 1,
}  # fmt: skip


def test_what_happens_is_told_by_its_kind() -> None:
    assert notice.kind_of(Event.TABLE_FAILED) is NoticeKind.ERROR
    assert notice.kind_of(Event.SOURCE_FAILED) is NoticeKind.ERROR
    assert notice.kind_of(Event.SCHEMA_CHANGED) is NoticeKind.SCHEMA
    assert notice.kind_of(Event.CUT) is NoticeKind.CUT
    assert notice.kind_of(Event.ROWS_REJECTED) is NoticeKind.REJECT
    assert notice.kind_of(Event.COMMITTED) is None
    assert notice.kind_of(Event.NOTICES_FAILED) is None, "a webhook that fails is not told of it again and again"


def test_a_commit_is_told_with_its_snapshot_and_positions() -> None:
    told = notice.of_commit(COMMIT, 0)
    assert told == {
        "what": "commit", "at": "2026-11-26T20:00:00.000+00:00", "table": "shop.items", "snapshot_id": 7,
        "sequence": 3, "kind": "stream", "inserts": 1, "updates": 0, "deletes": 0, "added_rows": 1,
        "positions": {"shop_eu": "0/10"},
    }  # fmt: skip
    assert notice.of_commit(COMMIT, 4)["missed"] == 4


def test_an_event_is_told_without_what_may_quote_a_row() -> None:
    rows = EventRows("_kuvasz", lambda text: text.replace("geheim", "***"))
    (row,) = rows.of(Event.TABLE_FAILED, {"table": "shop.items", "error": "value 'x' of row 1", "why": "geheim"})
    told = notice.of_event(NoticeKind.ERROR, row)
    assert (told["what"], told["event"], told["table"], told["number"]) == ("error", "table_failed", "shop.items", 1)
    assert told["fields"]["why"] == "***"
    assert "value" not in json.dumps(told)


def test_a_request_is_signed_with_its_time() -> None:
    body = notice.body_of("hook", 5, [notice.of_commit(COMMIT, 0)])
    assert json.loads(body)["number"] == 5
    stamp, _, digest = notice.signature("0123456789abcdef", 1000, body).partition(",v1=")
    assert stamp == "t=1000"
    assert digest == hmac.new(b"0123456789abcdef", b"1000." + body, hashlib.sha256).hexdigest()
