"""What fails again and again is told of as it begins, once an hour, and when it is over."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from kuvasz.admin.about import EventRows
from kuvasz.admin.notices import notice
from kuvasz.admin.notices.alarms import AGAIN_S, SETTLED_S, Alarms
from kuvasz.config.model import NoticeKind
from kuvasz.events import Event

REFUSED = "connection refused"


class World:
    """Alarms, and the hours that pass."""

    def __init__(self) -> None:
        self.alarms, self.now, self.rows = Alarms(), 1000.0, EventRows("_kuvasz")

    def hear(self, event: Event, error: str = REFUSED, source: str = "eu", table: str | None = None) -> bool:
        """Have something happen; return whether it is told."""
        name = "reason" if event is Event.STREAM_FAILED else "error"
        facts: dict[str, Any] = {"source": source, "table": table, name: error}
        (row,) = self.rows.of(event, facts)
        assert notice.kind_of(event) is NoticeKind.ERROR
        return self.alarms.is_news(notice.of_event(NoticeKind.ERROR, row), self.now)

    def over(self) -> list[tuple[str, str]]:
        return [(one["event"], one["source"]) for one in self.alarms.over(self.now)]

    def day(self, *events: Event, table: str | None = None) -> int:
        """Return how often is told in a day what happens every half a minute."""
        told = 0
        for event in itertools.islice(itertools.cycle(events), 2880):
            told += self.hear(event, table=table)
            self.now += 30
            assert self.over() == []
        return told


@pytest.fixture
def world() -> World:
    return World()


def test_a_source_that_fails_all_day_is_told_of_once_an_hour(world: World) -> None:
    assert world.day(Event.SOURCE_FAILED) == 24


def test_a_mistake_of_ours_that_a_source_meets_again_and_again_is_one_more(world: World) -> None:
    assert world.day(Event.SOURCE_UNFORESEEN, Event.SOURCE_FAILED) == 48


def test_a_table_that_is_tried_again_all_day_is_told_of_once_an_hour(world: World) -> None:
    assert world.day(Event.TABLE_FAILED, table="shop.items") == 24


def test_a_source_that_streams_for_a_moment_between_its_failures_goes_on_failing(world: World) -> None:
    assert world.day(Event.SOURCE_FAILED, Event.STREAM_BEGUN) == 24


def test_another_reason_is_news_and_other_numbers_are_none(world: World) -> None:
    assert world.hear(Event.SOURCE_FAILED, "slot is in use by pid 4711")
    assert not world.hear(Event.SOURCE_FAILED, "slot is in use by pid 4712")
    assert world.hear(Event.SOURCE_FAILED, "password authentication failed")
    assert not world.hear(Event.SOURCE_FAILED, "slot is in use by pid 4713")


def test_not_more_than_some_reasons_are_told_within_an_hour(world: World) -> None:
    assert sum(world.hear(Event.SOURCE_FAILED, f"what is {letter}?") for letter in "abcdefghijklmn") == 8
    world.now += AGAIN_S
    assert world.hear(Event.SOURCE_FAILED, "what is z?")


def test_others_are_told_of_by_themselves(world: World) -> None:
    assert world.hear(Event.SOURCE_FAILED)
    assert world.hear(Event.SOURCE_FAILED, source="us")
    assert world.hear(Event.TABLE_FAILED, table="shop.items")
    assert world.hear(Event.TABLE_FAILED, table="shop.others")


def test_it_is_over_when_the_source_has_streamed_for_a_while_and_news_after_that(world: World) -> None:
    assert world.hear(Event.SOURCE_FAILED)
    assert not world.hear(Event.STREAM_BEGUN)
    world.now += SETTLED_S - 1
    assert world.over() == []
    world.now += 1
    assert world.over() == [("reader.streaming", "eu")]
    assert world.over() == []
    assert world.hear(Event.SOURCE_FAILED)


def test_a_source_that_is_well_is_nothing_to_tell(world: World) -> None:
    assert not world.hear(Event.STREAM_BEGUN)
    world.now += SETTLED_S
    assert world.over() == []
    assert not world.hear(Event.SOURCE_RELEASED)


def test_a_stream_that_is_lost_is_told_of_when_it_does_not_come_back_in_a_while(world: World) -> None:
    for _ in range(2):
        assert not world.hear(Event.STREAM_FAILED)
        world.now += SETTLED_S - 1
        assert not world.hear(Event.STREAM_FAILED)
        assert not world.hear(Event.STREAM_BEGUN)
        world.now += SETTLED_S
        assert world.over() == []
    assert [world.hear(Event.STREAM_FAILED)] == [False]
    world.now += SETTLED_S
    assert world.hear(Event.STREAM_FAILED)
    assert world.day(Event.STREAM_FAILED) == 23
    assert not world.hear(Event.STREAM_BEGUN)
    world.now += SETTLED_S
    assert world.over() == [("reader.streaming", "eu")]


def test_what_a_person_has_tried_again_is_news(world: World) -> None:
    for command in (Event.RETRY, Event.RESYNC, Event.RESUME):
        assert world.hear(Event.TABLE_FAILED, table="shop.items")
        assert not world.hear(Event.TABLE_FAILED, table="shop.items")
        assert not world.hear(command, table="shop.items")
        assert world.hear(Event.TABLE_FAILED, table="shop.items")
        assert not world.hear(command, table="shop.items/events_1"), "a member of it"


def test_a_source_that_fails_and_leaves_the_map_is_told_of(world: World) -> None:
    assert world.hear(Event.SOURCE_FAILED)
    assert world.hear(Event.SOURCE_RELEASED)
    assert not world.hear(Event.SOURCE_RELEASED)
    assert world.hear(Event.SOURCE_FAILED)


def test_what_is_no_failure_that_lasts_is_always_told(world: World) -> None:
    assert world.hear(Event.TABLE_DIFFERS, table="shop.items")
    assert world.hear(Event.TABLE_DIFFERS, table="shop.items")


def test_it_is_kept_over_restarts_and_a_table_is_forgotten(world: World) -> None:
    assert world.hear(Event.SOURCE_FAILED)
    assert world.hear(Event.TABLE_FAILED, table="shop.items")
    world.alarms = Alarms(json.loads(json.dumps(world.alarms.as_json())))
    assert not world.hear(Event.SOURCE_FAILED)
    assert not world.hear(Event.TABLE_FAILED, table="shop.items")
    world.now += AGAIN_S
    assert world.over() == []
    assert [*world.alarms.as_json()["eu"]] == [""]


def test_a_clock_that_was_set_back_has_it_told_again(world: World) -> None:
    assert world.hear(Event.SOURCE_FAILED)
    world.now -= 500
    assert world.hear(Event.SOURCE_FAILED)
