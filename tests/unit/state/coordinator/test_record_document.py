from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from kuvasz.errors import StateError
from kuvasz.state.coordinator.record_document import RecordDocument, RecordWriter
from kuvasz.state.ports import SourceRecord
from tests.support.scene import Scene
from tests.support.slow_documents import SlowDocuments
from tests.support.waiting import wait_until

FIRST, SECOND, THIRD = (SourceRecord(system_id="7", looked_lsn=at) for at in (100, 200, 300))


@pytest.fixture
def documents() -> SlowDocuments:
    return SlowDocuments()


def record_of(documents: SlowDocuments, source: str = "eu", writer: RecordWriter | None = None) -> RecordDocument:
    found = RecordDocument(documents, source, writer)  # type: ignore[arg-type]
    assert found.standing == SourceRecord()
    return found


def test_nobody_waits_and_of_what_comes_meanwhile_the_last_is_written(documents: SlowDocuments) -> None:
    record = record_of(documents)
    documents.stop()
    record.update_soon(FIRST)
    wait_until(lambda: documents.under_way == 1, "it is being written")
    assert not record.is_settled
    for standing in (SECOND, THIRD):
        record.update_soon(standing)
    record.confirming(500)
    assert (record.standing.looked_lsn, record.standing.confirmed_lsn) == (300, 500)
    assert documents.under_way == 1, "one at a time"
    documents.go()
    wait_until(lambda: len(documents.written) == 2, "both are written")
    assert documents.looked("eu") == [100, 300]
    assert documents.most_under_way == 1
    record.confirming(501)
    assert documents.written[-1]["eu"]["confirmed"] == "0/0", "a process that is killed leaves nothing of that"


def test_who_may_wait_finds_it_written(documents: SlowDocuments) -> None:
    record = record_of(documents)
    record.update(FIRST)
    assert documents.looked("eu") == [100]
    documents.stop()
    assert record.is_settled
    record.update_soon(SECOND)
    assert not record.is_settled
    threading.Timer(0.05, documents.go).start()
    record.settle()
    assert record.is_settled
    assert documents.looked("eu") == [100, 200]
    record.settle()
    assert len(documents.written) == 2


def test_what_is_confirmed_is_written_last_and_nothing_behind_it(documents: SlowDocuments) -> None:
    record = record_of(documents)
    documents.stop()
    record.update_soon(FIRST)
    wait_until(lambda: documents.under_way == 1, "it is being written")
    record.update_soon(SECOND)
    record.confirming(500)
    threading.Timer(0.05, documents.go).start()
    record.close()
    assert documents.written[-1]["eu"] == record.standing.as_json()
    assert record.standing.confirmed_lsn == 500
    count = len(documents.written)
    record.close()
    time.sleep(0.05)
    assert len(documents.written) == count


def test_what_could_not_be_written_is_written_with_the_next_confirmation(documents: SlowDocuments) -> None:
    record = record_of(documents)
    documents.error = StateError("the coordinator does not answer")
    record.update(FIRST)
    record.settle()
    assert documents.written == []
    documents.error = None
    record.confirming(500)
    wait_until(lambda: documents.looked("eu") == [100], "it is written")
    documents.error = StateError("again")
    record.update_soon(SECOND)
    documents.error = None
    record.close()
    assert documents.written[-1]["eu"] == record.standing.as_json()


def test_many_are_written_one_after_another(documents: SlowDocuments) -> None:
    writer = RecordWriter()
    records = [record_of(documents, name, writer) for name in ("eu", "us", "de")]
    documents.stop()
    for record in records:
        record.update_soon(FIRST)
    wait_until(lambda: documents.under_way == 1, "the first one is being written")
    documents.go()
    wait_until(lambda: len(documents.written) == 3, "all are written")
    assert (sorted(name for one in documents.written for name in one), documents.most_under_way) == (
        ["de", "eu", "us"], 1,
    )  # fmt: skip


def test_a_mistake_of_ours_keeps_no_other_record_from_being_written(documents: SlowDocuments) -> None:
    writer = RecordWriter()
    record, other = record_of(documents, "eu", writer), record_of(documents, "us", writer)
    documents.error = ValueError("a mistake")
    record.update_soon(FIRST)
    wait_until(lambda: not writer._is_running, "its thread has ended")
    documents.error = None
    other.update_soon(SECOND)
    wait_until(lambda: documents.looked("us") == [200], "it is written")


def test_a_look_that_is_noted_holds_no_other_source_up(documents: SlowDocuments, tmp_path: Path) -> None:
    from kuvasz.sync.context.slot import Slot

    record = RecordDocument(documents, "eu")  # type: ignore[arg-type]
    slot = Slot(Scene(tmp_path).context, record, parked_lsn=lambda _: 0)
    assert slot.timeline == 0
    documents.stop()
    slot.looked(1100)
    assert documents.written == [], "a coordinator that is slow"
    documents.go()
    wait_until(lambda: documents.looked("eu") == [1100], "it is written")
