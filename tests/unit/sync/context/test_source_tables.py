from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import pytest

from kuvasz.errors import SchemaError, SchemaHeld
from kuvasz.model import Position, TableName
from kuvasz.state.tables import State
from kuvasz.sync.context.source_tables import Roster
from tests.unit.sync.scene import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_tables_are_found_by_key_while_they_are_there(scene: Scene) -> None:
    roster = scene.roster
    assert roster.spec("shop.others") is scene.others
    assert roster.known(["shop.others", "shop.gone", "shop.others"]) == [scene.others]
    roster.source = dataclasses.replace(roster.source, tables=(scene.items,))
    assert roster.known(["shop.others", "shop.items"]) == [scene.items]


def test_a_collapse_is_no_table_until_it_is_known_what_it_takes_in(scene: Scene) -> None:
    config = scene.items.config.model_copy(update={"partitions_regex": "items_.*"})
    source = dataclasses.replace(scene.source, tables=(dataclasses.replace(scene.items, config=config), scene.others))
    roster = Roster(source, scene.lake, scene.states, scene.progress)
    assert roster.source.tables == (scene.others,)


def test_every_table_is_known_to_the_states_and_the_lake_by_one_name(scene: Scene) -> None:
    roster = scene.roster
    assert [(state.target, state.source) for state in scene.states.snapshot()] == [
        ("shop.items", scene.source.name), ("shop.others", scene.source.name),
    ]  # fmt: skip
    scene.copy(scene.items)
    assert (roster.position(scene.items), roster.position(scene.others)) == (Position(lsn=1000), None)
    roster.set(scene.items, State.COPYING)
    assert (roster.state(scene.items), roster.is_copying) == (State.COPYING, True)
    roster.set(scene.items, State.STREAMING)
    assert (roster.is_streaming(scene.items), roster.is_copying) == (True, False)
    scene.states.pause("shop.items", scene.source.name)
    assert roster.is_paused(scene.items)
    assert not roster.is_paused(scene.others)
    roster.resync(scene.others, is_due=True, is_repair=True)
    assert (roster.look(scene.others).is_resync_due, roster.look(scene.others).is_repair) == (True, True)
    roster.retry_at(scene.others, 7.0)
    roster.note(scene.others, copies=1)
    assert (roster.look(scene.others).retry_at, roster.look(scene.others).copies) == (7.0, 1)


def test_a_renamed_table_is_the_same_under_its_new_name(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    roster, things = scene.roster, TableName(schema="public", name="things")
    state = lambda: (roster.look(scene.items).table, roster.look(scene.items).mapped)  # noqa: E731
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert roster.rename(scene.items, things).table == things
    assert [record.__dict__["event"] for record in caplog.records] == ["table_renamed"]
    assert (roster.spec("shop.items").table, roster.spec("shop.others")) == (things, scene.others)
    assert state() == ("public.things", "public.items")
    roster.take(scene.source)
    assert roster.spec("shop.items").table == things, "another look at the map's tables changes nothing"
    assert roster.mapped(roster.spec("shop.items")) == scene.items.table
    roster.rename(roster.spec("shop.items"), scene.items.table)
    assert roster.source.tables == scene.source.tables
    assert state() == ("public.items", "")


def test_a_held_table_holds_its_source(scene: Scene) -> None:
    scene.roster.hold(scene.items)
    assert scene.progress.held(scene.source.name) == {"shop.items"}
    scene.roster.release(scene.items)
    assert not scene.progress.held(scene.source.name)


def test_an_error_is_told_once_until_it_was_mended(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    roster, error = scene.roster, SchemaError("no such table")
    with caplog.at_level(logging.ERROR):
        roster.fail(scene.items, error)
        roster.fail(scene.items, error)
        assert len(caplog.records) == 1
        assert roster.state(scene.items) is State.ERROR
        roster.fail(scene.items, SchemaHeld("its columns changed"))
        assert len(caplog.records) == 2
        assert roster.state(scene.items) is State.PAUSED, "it waits for a person"
        roster.mended(scene.items)
        roster.fail(scene.items, SchemaHeld("its columns changed"))
        assert len(caplog.records) == 3
    assert {record.__dict__["event"] for record in caplog.records} == {"table_failed"}
