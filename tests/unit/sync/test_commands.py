from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kuvasz.errors import EarlierError, OtherRule, SchemaHeld, StateError
from kuvasz.state.tables import State
from kuvasz.sync.commands import Commands
from tests.support.scene import Scene


class World(Scene):
    """A scene with its commands."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.approvals = self.context.approvals
        self.commands = Commands(self.context, self.approvals)

    def look_anew(self) -> list[str]:
        """Return which tables are to be looked at anew."""
        return asyncio.run(self.asked_anew())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_paused_table_holds_its_source_if_it_has_rows(world: World) -> None:
    world.copy(world.items)
    world.commands.pause("shop.items")
    world.commands.pause("shop.others")
    assert [world.source_tables.state(spec) for spec in world.source.tables] == [State.PAUSED, State.PAUSED]
    assert world.progress.held(world.source.name) == {"shop.items"}
    world.commands.resume("shop.items")
    assert world.source_tables.state(world.items) is State.NEW
    assert world.look_anew() == ["shop.items"]


def test_whoever_has_a_table_tried_again_agrees_to_what_keeps_it(world: World) -> None:
    assert world.approvals.target_of(world.items).on_schema_change == "agree"
    world.context.troubles.fail(world.items, SchemaHeld("its columns changed"))
    world.requests.send_later(world.items)
    world.commands.retry("shop.items")
    assert world.look_anew() == ["shop.items"]
    assert world.approvals.target_of(world.items).on_schema_change == "evolve"


def test_an_answer_before_the_first_look_is_kept_for_what_that_look_finds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a table stopped for before the start is known by its words alone until it is looked at."""
    monkeypatch.setattr(world.requests, "send", world.requests.add)
    world.source_tables.set(world.items, State.ERROR, EarlierError("the filter is another one", hint="retry"))
    world.commands.retry("shop.items")
    assert world.look_anew() == ["shop.items"]
    assert not world.approvals.target_of(world.items).keeps_rows
    world.context.troubles.refuse(world.items, OtherRule("the filter is another one", hint="retry"))
    assert world.look_anew() == ["shop.items"]
    assert world.approvals.target_of(world.items).keeps_rows


def test_a_table_is_copied_again_when_it_is_looked_at(world: World) -> None:
    world.copy(world.items)
    world.commands.resync("shop.items")
    look = world.source_tables.look(world.items)
    assert (look.is_resync_due, look.is_repair) == (True, False)
    assert world.source_tables.position(world.items) is not None, "its rows stay until the new ones are there"
    assert world.look_anew() == ["shop.items"]


def test_a_table_that_left_meanwhile_is_not_tried_again(world: World) -> None:
    world.commands.retry_later("shop.items/1234")
    world.commands.retry_later("shop.items")
    retries = [world.source_tables.look(spec).retry_at is not None for spec in world.source.tables]
    assert retries == [True, False]


def test_a_pause_that_is_refused_holds_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise StateError("no room")

    world.copy(world.items)
    world.states.activate("shop.items", world.source.name, 1)
    monkeypatch.setattr(world.states._notes, "put", refuse)
    with pytest.raises(StateError):
        world.commands.pause("shop.items")
    assert world.progress.held(world.source.name) == frozenset()
    assert world.source_tables.is_streaming(world.items)
    world.source_tables.hold(world.items)  # as a table has it that is about to rejoin
    with pytest.raises(StateError):
        world.commands.pause("shop.items")
    assert world.progress.held(world.source.name) == {"shop.items"}
