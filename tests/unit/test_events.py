from __future__ import annotations

import collections
import logging

import pytest

from kuvasz.events import Event, EventLimit, EventLog, heard_by


def test_events_of_one_code_stand_together_and_differ_in_their_messages() -> None:
    messages = collections.defaultdict(set)
    for event in Event:
        messages[event.code].add(event.message)
    assert sum(map(len, messages.values())) == len(Event)
    codes = [event.code for event in Event]
    assert codes == sorted(codes, key=codes.index)


def test_an_event_is_told_with_its_facts_by_the_module_it_is_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        EventLog("kuvasz.some.part").tell(Event.SLOT_WAITS, source="eu", blockers=["a"])
        EventLog("kuvasz.some.part").tell(Event.WRITTEN, worker=0)
    (record,) = caplog.records
    assert (record.name, record.levelname, record.getMessage()) == (
        "kuvasz.some.part", "WARNING", "the slot waits for transactions to end")  # fmt: skip
    facts = {name: value for name, value in vars(record).items() if name in {"event", "source", "blockers"}}
    assert list(facts.items()) == [("event", "slot_waits"), ("source", "eu"), ("blockers", ["a"])]
    assert (record.funcName, record.exc_info) == (
        "test_an_event_is_told_with_its_facts_by_the_module_it_is_of", None)  # fmt: skip


def test_an_event_of_our_own_code_has_the_traceback(caplog: pytest.LogCaptureFixture) -> None:
    bug = LookupError("x")
    try:
        raise bug
    except LookupError:
        EventLog("kuvasz.worker").tell(Event.BUG_IN_WORKER, worker=1)
    exc_info = caplog.records[0].exc_info
    assert exc_info is not None
    assert exc_info[1] is bug


def test_whoever_listens_hears_all_that_is_told_meanwhile_printed_or_not() -> None:
    heard: list[tuple[Event, dict]] = []
    log = EventLog("kuvasz.some.part")
    with heard_by(lambda event, facts: heard.append((event, dict(facts)))):
        log.tell(Event.SLOT_WAITS, source="eu")
        log.tell(Event.WRITTEN, worker=0)
    log.tell(Event.CAUGHT_UP)
    assert heard == [(Event.SLOT_WAITS, {"source": "eu"}), (Event.WRITTEN, {"worker": 0})]


def test_what_happens_again_and_again_is_told_as_it_begins_and_once_an_hour() -> None:
    now = 1000.0
    repeated = EventLimit(lambda: now)

    def told(seconds: float) -> bool:
        nonlocal now
        now += seconds
        return repeated.is_news()

    assert [told(0), told(1), told(3598), told(1), told(1)] == [True, False, False, True, False]
    repeated.over()
    assert [told(1), told(57), told(1)] == [False, False, True], "it comes and goes"
    now += 100
    repeated.over()
    assert told(0)
