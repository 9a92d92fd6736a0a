"""The last events, without what may quote a row."""

from __future__ import annotations

from kuvasz.admin.about import EventRows
from kuvasz.admin.report.last_events import LastEvents
from kuvasz.admin.views import WITHHELD
from kuvasz.events import Event


def made(most: int = 10) -> LastEvents:
    return LastEvents(EventRows("", lambda text: text.replace("geheim", "***"), wall=lambda: 0.0), most)


def test_an_event_is_told_with_its_facts_and_without_secrets() -> None:
    events = made()
    events.hear(Event.COPIED, {"source": "eu", "table": "shop.items", "rows": 3, "url": "geheim"})
    assert events.all() == [
        {"at": "1970-01-01T00:00:00.000+00:00", "severity": "info", "event": "copied", "text": "table copied",
         "source": "eu", "table_name": "shop.items", "rows": 3, "url": "***"}
    ]  # fmt: skip


def test_an_error_is_told_where_it_quotes_no_row() -> None:
    events = made()
    events.hear(Event.TABLE_FAILED, {"table": "shop.items", "error": "column body: 'a value'"})
    events.hear(Event.SOURCE_FAILED, {"source": "eu", "error": "no connection"})
    assert [event["error"] for event in events.all()] == [WITHHELD, "no connection"]


def test_commits_and_what_engines_say_are_not_kept_and_of_the_others_the_last_alone() -> None:
    events = made(2)
    for event in (Event.COPIED, Event.COMMITTED, Event.CHANGES, Event.SPARK_SAID, Event.PARKED, Event.UNPARKED):
        events.hear(event, {"line": "a value"})
    assert [event["event"] for event in events.all()] == ["parked", "unparked"]


def test_of_an_exception_the_places_and_the_kind_are_kept() -> None:
    events = made()
    try:
        raise ValueError("a value")
    except ValueError:
        events.hear(Event.BUG_IN_WORKER, {})
    (event,) = events.all()
    assert event["stack"][-1] == "ValueError"
    assert "test_last_events.py" in event["stack"][0]
    assert "a value" not in str(event)
