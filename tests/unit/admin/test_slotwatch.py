from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.admin import slotwatch
from kuvasz.admin.slotwatch import SlotFacts, SlotWatch
from kuvasz.errors import SourceError

FACTS = SlotFacts(retained_bytes=10, safe_bytes=1000, status="reserved", wal_end=5000, asked_at=100.0)


def later(seconds: float, written: int) -> SlotFacts:
    return dataclasses.replace(FACTS, asked_at=FACTS.asked_at + seconds, wal_end=FACTS.wal_end + written)


def test_the_rate_is_what_was_written_since_and_is_smoothed() -> None:
    first = later(10, 500).after(FACTS)
    assert first.wal_rate == 50.0
    again = dataclasses.replace(first, asked_at=120.0, wal_end=6500, wal_rate=None).after(first)
    assert again.wal_rate == (100.0 + 50.0) / 2


@pytest.mark.parametrize(("seconds", "written"), [(0, 500), (-1, 500), (10, -500)])
def test_without_time_between_or_with_another_past_no_rate_is_known(seconds: float, written: int) -> None:
    assert later(seconds, written).after(FACTS).wal_rate is None


@pytest.mark.parametrize(
    ("safe", "rate", "left"), [(1000, 50.0, 20.0), (-5, 50.0, 0.0), (None, 50.0, None), (1000, None, None),
                               (1000, 0.0, None)],
)  # fmt: skip
def test_how_long_a_slot_lasts(safe: int | None, rate: float | None, left: float | None) -> None:
    assert dataclasses.replace(FACTS, safe_bytes=safe, wal_rate=rate).seconds_left == left


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> tuple[SlotWatch, list[Any]]:
    """A watch of one source, and the answers that it gets, the next one last."""
    answers: list[Any] = []

    def ask(_source: object) -> SlotFacts | None:
        answer = answers.pop()
        if isinstance(answer, Exception):
            raise answer
        found: SlotFacts | None = answer
        return found

    monkeypatch.setattr(slotwatch, "ask", ask)
    source: Any = SimpleNamespace(name="eu")
    return SlotWatch([source]), answers


def asked(watch: SlotWatch) -> dict[str, SlotFacts]:
    (source,) = watch._sources
    watch._ask(source)
    return watch.facts


def test_facts_are_those_of_the_last_answer(watch: tuple[SlotWatch, list[Any]]) -> None:
    made, answers = watch
    answers[:] = [None, later(10, 500), FACTS]
    assert asked(made) == {"eu": FACTS}
    assert asked(made)["eu"].wal_rate == 50.0
    assert asked(made) == {}, "the slot is gone"


def test_a_source_that_does_not_answer_is_unknown_and_left_alone(watch: tuple[SlotWatch, list[Any]]) -> None:
    made, answers = watch
    answers[:] = [SourceError("no answer"), FACTS]
    asked(made)
    assert made._is_due("eu")
    assert asked(made) == {}
    assert not made._is_due("eu")
