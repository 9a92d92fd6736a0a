from __future__ import annotations

import itertools
import sys
import threading

from kuvasz.errors import TableError
from kuvasz.lake.table.write_era import WriteEra
from kuvasz.model import SourcePosition
from tests.support.changes import TABLE


def test_sources_go_on_from_their_positions() -> None:
    era = WriteEra.begin({"eu": SourcePosition(lsn=100), "us": SourcePosition(lsn=7)})
    assert (era.accepted, era.error, era.events) == ({"eu": 100, "us": 7}, None, {})


def test_what_was_written_never_goes_back() -> None:
    era = WriteEra.begin({"eu": SourcePosition(lsn=100)})
    era.accept({"eu": 50, "us": 8})
    assert era.accepted == {"eu": 100, "us": 8}
    era.accept({"eu": 150})
    assert era.accepted == {"eu": 150, "us": 8}


def test_an_era_is_no_other_that_looks_like_it() -> None:
    positions = {"eu": SourcePosition(lsn=100)}
    assert WriteEra.begin(positions) != WriteEra.begin(positions)


def test_a_position_that_is_dropped_is_counted_and_begins_nothing() -> None:
    era = WriteEra.begin({"eu": SourcePosition(lsn=7)})
    era.drop("eu")
    era.drop("eu")
    assert (era.accepted, era.position_resets) == ({}, {"eu": 2})


def test_a_source_that_others_moved_goes_on_from_there_without_what_was_written_of_it() -> None:
    era = WriteEra.begin({"eu": SourcePosition(lsn=7), "us": SourcePosition(lsn=9)})
    era.accept({"us": 30})
    era.pass_over({"eu": 20, "us": 20})
    assert (era.accepted, era.position_resets) == ({"eu": 20, "us": 30}, {"eu": 1, "us": 1})


def test_a_source_that_is_refused_begins_again_at_its_position_and_others_go_on() -> None:
    era = WriteEra.begin({"eu": SourcePosition(lsn=10), "us": SourcePosition(lsn=20)})
    era.accept({"eu": 30, "us": 40})
    era.events = {("eu", TABLE): (30, 2), ("us", TABLE): (40, 3)}
    wrong = TableError("wrong")
    era.refuse({"us": wrong})
    assert era.events == {("eu", TABLE): (30, 2)}, "its transaction is counted from its beginning again"
    now = {"eu": SourcePosition(lsn=30), "us": SourcePosition(lsn=20)}
    assert era.resumed(None, now) is era
    assert era.resumed(TableError("another"), now).refused == {"us": wrong}
    assert era.resumed(wrong, now) is era, "what others have written is taken"
    assert (era.refused, era.accepted) == ({}, {"eu": 30, "us": 20})


def test_a_source_that_is_refused_and_has_no_position_any_more_is_accepted_from_none() -> None:
    era = WriteEra.begin({"us": SourcePosition(lsn=20)})
    wrong = TableError("wrong")
    era.refuse({"us": wrong})
    assert era.resumed(wrong, {}).accepted == {}


def test_a_source_may_be_refused_while_another_is_resumed() -> None:
    """By a worker that writes, while the loop of a source looks who was refused."""
    era = WriteEra(accepted={})
    wrong = TableError("wrong")
    era.refused = {f"s{number}": TableError("") for number in range(2000)}
    ended = threading.Event()

    def refuse() -> None:
        for number in itertools.count():
            era.refuse({f"u{number % 50_000}": wrong})
            if ended.is_set():
                return

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    other = threading.Thread(target=refuse)
    other.start()
    try:
        for _ in range(50):
            era.resumed(TableError("another"), {})
    finally:
        sys.setswitchinterval(before)
        ended.set()
        other.join()


def test_the_failure_of_all_sources_ends_the_era() -> None:
    wrong = TableError("wrong")
    era = WriteEra(accepted={}, error=wrong)
    after = era.resumed(wrong, {"us": SourcePosition(lsn=20)})
    assert (after.error, after.accepted, era.error) == (None, {"us": 20}, wrong)
