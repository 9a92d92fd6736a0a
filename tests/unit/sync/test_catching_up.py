"""What has caught up with which goal, with sources that received what the test says."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.errors import SchemaError, TableError, TableStuck
from kuvasz.source.reading.facts import ReaderFacts, ReaderState
from kuvasz.state.tables import State
from kuvasz.sync.catching_up import CatchingUp
from kuvasz.sync.context.gap_starts import Evidence
from tests.support.scene import Scene


class World(Scene):
    """A scene whose source held WAL up to 500 at the start; `items` catches up."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.name, self.parked, self.is_hopeless = self.source.name, set[str](), False
        self.reader = SimpleNamespace(facts=ReaderFacts(state=ReaderState.STREAMING), received_lsn=0)
        self.put_off = set[str]()
        self.sync = SimpleNamespace(
            source=self.source, reader=self.reader, target_lsn=500, is_streaming=True,
            tables=SimpleNamespace(put_off={Evidence.FILE: self.put_off}),
        )  # fmt: skip
        sources: Any = SimpleNamespace(
            all=[self.sync], of=lambda _: self.sync, is_hopeless=lambda _: self.is_hopeless
        )  # fmt: skip
        lot: Any = SimpleNamespace(has=lambda target, _: target in self.parked)
        self.catching_up = CatchingUp(sources, self.states, self.progress, lot)
        self.states.activate("shop.items", self.name, 1)
        self.progress.restarted(self.name, 1)

    def receive(self, lsn: int, *, routed: int | None = None) -> None:
        """Have the source heard out up to an LSN; what was routed is under way."""
        if routed is not None:
            self.progress.routed(self.name, 0, routed)
        self.reader.received_lsn = lsn
        self.progress.received(self.name, lsn)

    @property
    def state(self) -> State:
        self.catching_up.promote()
        return self.states.get("shop.items", self.name).state


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_table_streams_when_it_has_what_its_source_held(world: World) -> None:
    world.receive(499)
    assert world.state is State.CATCHING_UP
    world.receive(500)
    assert world.state is State.STREAMING


def test_the_goal_is_where_the_source_was_heard_when_the_table_began(world: World) -> None:
    world.receive(800, routed=800)
    assert world.state is State.CATCHING_UP
    world.progress.durable(world.name, 0, 800, 1)
    world.receive(900, routed=900)
    assert world.state is State.STREAMING, "what came behind the goal is not waited for"


def test_what_is_under_way_is_not_there_yet(world: World) -> None:
    world.receive(600, routed=600)
    assert world.state is State.CATCHING_UP
    world.progress.durable(world.name, 0, 600, 1)
    assert world.state is State.STREAMING


def test_a_held_source_lets_a_table_catch_up_all_the_same(world: World) -> None:
    world.progress.hold(world.name, "shop.others")
    world.receive(600)
    assert world.state is State.STREAMING


def test_nothing_has_caught_up_without_a_stream_or_with_parked_changes(world: World) -> None:
    world.receive(600)
    world.reader.facts.state = ReaderState.WAITING
    assert world.state is State.CATCHING_UP
    world.reader.facts.state = ReaderState.STREAMING
    world.parked.add("shop.items")
    assert world.state is State.CATCHING_UP
    world.parked.clear()
    assert world.state is State.STREAMING


def test_everything_is_there_when_every_source_has_it(world: World) -> None:
    assert not world.catching_up.is_done
    world.receive(500, routed=500)
    assert not world.catching_up.is_done
    world.progress.durable(world.name, 0, 500, 1)
    assert world.catching_up.is_done
    world.sync.is_streaming = False
    assert not world.catching_up.is_done, "a table is being copied"
    world.is_hopeless = True
    assert world.catching_up.is_done, "nobody waits for a source that waits for a person"


def test_everything_is_not_there_while_a_table_is_in_an_error_that_passes(world: World) -> None:
    world.receive(500, routed=500)
    world.progress.durable(world.name, 0, 500, 1)
    world.states.set("shop.items", world.name, State.ERROR, TableStuck("its catalog does not answer"))
    assert not world.catching_up.is_done, "it is tried again, and what is parked of it comes"
    world.states.set("shop.items", world.name, State.ERROR, SchemaError("a column is missing", hint="add it"))
    assert world.catching_up.is_done, "nobody waits for a person"


def test_what_an_earlier_connection_brought_is_not_what_a_table_has_that_follows_the_next_one(world: World) -> None:
    """A table that was in error is taken up again: until the source reconnects nothing has come for it."""
    world.receive(600)
    world.states.set("shop.items", world.name, State.NEW)
    world.states.activate("shop.items", world.name, 2)
    assert world.state is State.CATCHING_UP
    assert not world.catching_up.is_done
    world.progress.restarted(world.name, 2)
    world.receive(600)
    assert world.state is State.STREAMING
    assert world.catching_up.is_done


def test_everything_is_not_there_while_a_look_is_put_off(world: World) -> None:
    world.receive(600)
    assert world.state is State.STREAMING
    (state,) = [one for one in world.states.snapshot() if one.target == "shop.items"]
    world.put_off.add(state.key)
    assert not world.catching_up.is_done
    world.put_off.clear()
    assert world.catching_up.is_done


def test_everything_is_not_there_if_a_look_ends_meanwhile_that_has_a_table_compared(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that the table begins anew, then that nobody has to wait for it; in a thread of its own."""
    world.receive(600)
    assert world.state is State.STREAMING
    (state,) = [one for one in world.states.snapshot() if one.target == "shop.items"]
    world.put_off.add(state.key)
    snapshot = world.states.snapshot

    def then_it_ends(source: str) -> Any:
        found = snapshot(source)
        world.states.set("shop.items", world.name, State.NEW)
        world.put_off.clear()
        return found

    monkeypatch.setattr(world.states, "snapshot", then_it_ends)
    assert not world.catching_up.is_done


def test_everything_is_not_there_while_a_table_lacks_what_is_parked_of_it(world: World) -> None:
    world.receive(500, routed=500)
    world.progress.durable(world.name, 0, 500, 1)
    world.parked.add("shop.items")
    assert not world.catching_up.is_done
    world.parked.clear()
    assert world.catching_up.is_done


def test_a_table_that_fails_as_it_catches_up_stays_in_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's thread may stop it between the look and the change of its state."""
    received_lsn = world.progress.received_lsn

    def then_fails(source: str) -> int:
        world.states.set("shop.items", source, State.ERROR, TableError("it is broken"))
        return received_lsn(source)

    world.receive(500)
    monkeypatch.setattr(world.progress, "received_lsn", then_fails)
    assert world.state is State.ERROR
