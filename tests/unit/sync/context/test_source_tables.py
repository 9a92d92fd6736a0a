from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import pytest

from kuvasz.model import SourcePosition, TableName
from kuvasz.state.tables import State
from kuvasz.sync.context.source_tables import SourceTables
from tests.support.scene import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_tables_are_found_by_key_while_they_are_there(scene: Scene) -> None:
    source_tables = scene.source_tables
    assert source_tables.spec("shop.others") is scene.others
    assert source_tables.known(["shop.others", "shop.gone", "shop.others"]) == [scene.others]
    source_tables.source = dataclasses.replace(source_tables.source, tables=(scene.items,))
    assert source_tables.known(["shop.others", "shop.items"]) == [scene.items]


def test_a_collapse_is_no_table_until_it_is_known_what_it_takes_in(scene: Scene) -> None:
    config = scene.items.config.model_copy(update={"partitions_regex": "items_.*"})
    source = dataclasses.replace(scene.source, tables=(dataclasses.replace(scene.items, config=config), scene.others))
    source_tables = SourceTables(source, scene.lake, scene.states, scene.progress)
    assert source_tables.source.tables == (scene.others,)


def test_every_table_is_known_to_the_states_and_the_lake_by_one_name(scene: Scene) -> None:
    source_tables = scene.source_tables
    assert [(state.target, state.source) for state in scene.states.snapshot()] == [
        ("shop.items", scene.source.name), ("shop.others", scene.source.name),
    ]  # fmt: skip
    scene.copy(scene.items)
    assert (source_tables.position(scene.items), source_tables.position(scene.others)) == (
        SourcePosition(lsn=1000),
        None,
    )
    source_tables.set(scene.items, State.COPYING)
    assert (source_tables.state(scene.items), source_tables.is_copying) == (State.COPYING, True)
    source_tables.set(scene.items, State.STREAMING)
    assert (source_tables.is_streaming(scene.items), source_tables.is_copying) == (True, False)
    scene.states.pause("shop.items", scene.source.name)
    assert source_tables.is_paused(scene.items)
    assert not source_tables.is_paused(scene.others)
    source_tables.resync(scene.others, is_due=True, is_repair=True)
    assert (source_tables.look(scene.others).is_resync_due, source_tables.look(scene.others).is_repair) == (
        True,
        True,
    )
    source_tables.note(scene.others, retry_at=7.0)
    source_tables.note(scene.others, copies=1)
    assert (source_tables.look(scene.others).retry_at, source_tables.look(scene.others).copies) == (7.0, 1)


def test_a_renamed_table_is_the_same_under_its_new_name(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    source_tables, things = scene.source_tables, TableName(schema="public", name="things")
    state = lambda: (source_tables.look(scene.items).table, source_tables.look(scene.items).mapped)  # noqa: E731
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert source_tables.rename(scene.items, things).table == things
    assert [record.__dict__["event"] for record in caplog.records] == ["table_renamed"]
    assert (source_tables.spec("shop.items").table, source_tables.spec("shop.others")) == (things, scene.others)
    assert state() == ("public.things", "public.items")
    source_tables.update(scene.source)
    assert source_tables.spec("shop.items").table == things, "another look at the map's tables changes nothing"
    assert source_tables.mapped(source_tables.spec("shop.items")) == scene.items.table
    source_tables.rename(source_tables.spec("shop.items"), scene.items.table)
    assert source_tables.source.tables == scene.source.tables
    assert state() == ("public.items", "")


def test_a_held_table_holds_its_source(scene: Scene) -> None:
    scene.source_tables.hold(scene.items)
    assert scene.progress.held(scene.source.name) == {"shop.items"}
    scene.source_tables.release(scene.items)
    assert not scene.progress.held(scene.source.name)


def test_a_table_that_went_is_missed_by_its_key(scene: Scene) -> None:
    with pytest.raises(KeyError, match=r"shop\.gone"):
        scene.source_tables.spec("shop.gone")
