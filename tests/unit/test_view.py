from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

from kuvasz.errors import SourceError
from kuvasz.source.reading.facts import ReaderFacts, ReaderState
from kuvasz.state.progress import Progress
from kuvasz.view import SourceView, source_view


def seen(*, is_ended: bool = False, **facts: Any) -> SourceView:
    source = SimpleNamespace(name="eu")
    sync: Any = SimpleNamespace(source=source, **{"reader": None, "error": None, "retry_at": None} | facts)
    return source_view(sync, Progress(), is_ended=is_ended)


def reader(**changed: Any) -> Any:
    good = ReaderFacts(
        state=ReaderState.STREAMING, confirmed_lsn=100, last_message_at=3.0, is_paused=True, retry_at=9.0
    )
    facts = dataclasses.replace(good, **changed)
    return SimpleNamespace(facts=facts, received_lsn=300, rows=7, epoch=2, commit_us=5, error=facts.error)


def test_a_source_without_a_stream_starts_waits_or_has_ended() -> None:
    error = SourceError("it is gone")
    assert (seen().state, seen().error, seen().received_lsn, seen().epoch) == ("starting", None, 0, 0)
    waiting = seen(error=error, retry_at=4.0)
    assert (waiting.state, waiting.error, waiting.retry_at) == ("waiting", str(error), 4.0)
    assert seen(error=error, is_ended=True).state == "error"


def test_a_source_with_a_stream_shows_what_its_reader_knows() -> None:
    view = seen(reader=reader())
    assert (view.state, view.error, view.rows, view.epoch) == ("streaming", None, 7, 2)
    assert (view.received_lsn, view.confirmed_lsn, view.commit_us) == (300, 100, 5)
    assert (view.is_paused, view.retry_at, view.last_message_at) == (True, 9.0, 3.0)


def test_what_the_source_says_goes_before_what_its_reader_says() -> None:
    broken = reader(error=SourceError("cut"), state=ReaderState.WAITING)
    assert (seen(reader=broken).state, seen(reader=broken).error) == ("waiting", "cut")
    assert seen(reader=broken, error=SourceError("refused")).error == "refused"


def test_a_commit_is_never_newer_than_the_lsn_that_is_seen_with_it() -> None:
    """The reader goes on between two looks at it."""
    order: list[str] = []

    class Reader:
        facts = ReaderFacts(state=ReaderState.STREAMING)
        rows = 7
        error = None

        def __getattr__(self, name: str) -> int:
            order.append(name)
            return 1

    seen(reader=Reader())
    assert order == ["commit_us", "received_lsn", "epoch"]
