"""Rows wait in bounded memory; nobody waits for room, and what found none is counted."""

from __future__ import annotations

from kuvasz.lake.about.rows import WaitingRows


def test_rows_are_taken_by_table_in_their_order() -> None:
    waiting = WaitingRows()
    waiting.add("events", [{"n": 1}, {"n": 2}])
    waiting.add("sources", [{"n": 3}])
    waiting.add("events", [{"n": 4}])
    assert waiting.take("events") == [{"n": 1}, {"n": 2}, {"n": 4}]
    assert waiting.take("events") == []
    assert waiting.take("sources") == [{"n": 3}]


def test_what_finds_no_room_is_counted_once() -> None:
    waiting = WaitingRows(most=2)
    waiting.add("events", ({"n": n} for n in range(5)))
    assert waiting.take("events") == [{"n": 0}, {"n": 1}]
    assert (waiting.lost("events"), waiting.lost("events"), waiting.lost("sources")) == (3, 0, 0)


def test_what_could_not_be_written_waits_again_in_front() -> None:
    waiting = WaitingRows(most=2)
    waiting.add("events", [{"n": 1}, {"n": 2}])
    taken = waiting.take("events")
    waiting.add("events", [{"n": 3}])
    waiting.put_back("events", taken)
    waiting.add("events", [{"n": 4}])
    assert waiting.take("events") == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert waiting.lost("events") == 1


def test_whether_a_row_of_a_kind_waits() -> None:
    waiting = WaitingRows()
    waiting.add("events", [{"n": 1}, {"n": 2}])
    assert waiting.is_any("events", lambda row: row["n"] == 2)
    assert not waiting.is_any("events", lambda row: row["n"] == 3)
    assert not waiting.is_any("sources", lambda row: True)
