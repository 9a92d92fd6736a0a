from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.errors import ExpressionRefused, LakeError, MapMismatch, ParkedLost, SchemaError, TableError
from kuvasz.evolve.known import KnownColumn, SourceColumns
from kuvasz.lake.table.write_era import WriteEra
from kuvasz.state.tables import State
from kuvasz.sync.context.approvals import Approvals
from kuvasz.sync.tables.preparation import Preparation
from kuvasz.sync.tables.recopy import PositionReset
from tests.support.changes import ITEMS
from tests.support.scene import Scene


class Parking:
    """Has lost what was parked, if told so."""

    def __init__(self) -> None:
        self.error: ParkedLost | None = None

    def admit(self, _: object) -> None:
        if self.error is not None:
            raise self.error


class World(Scene):
    """A scene with its admission."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self.parking = Parking()
        self.approvals = Approvals(b"")
        members: Any = SimpleNamespace(note=lambda *_: None)
        parking: Any = self.parking
        resets = PositionReset(self.context, drop_parked=lambda _: None)
        self.preparation = Preparation(self.context, self.approvals, members, parking, resets)

    def prepare(self) -> bool:
        return self.preparation.prepare(self.items, self.table(self.items), 1000)

    def refuse(self, monkeypatch: pytest.MonkeyPatch, error: TableError) -> None:
        """Have the lake refuse tables."""

        def prepare(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr(self.lake, "prepare", prepare)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_table_that_is_not_there_is_refused_and_looked_at_later(world: World) -> None:
    preparation = world.preparation
    assert preparation.usable(world.items, {}) is None
    state = world.source_tables.look(world.items)
    assert (state.state, state.retry_at is not None) == (State.ERROR, True)
    assert "there is no such table" in str(state.error)
    assert set(preparation.unfit) == {"shop.items"}
    found = world.table(world.items)
    assert preparation.usable(world.items, {world.items.table: found}) is found
    assert not preparation.unfit


def test_rows_of_a_table_that_was_not_logged_are_missed(world: World) -> None:
    unlogged = world.table(world.items, is_logged=False, why_unsupported="it is unlogged")
    assert world.preparation.usable(world.items, {world.items.table: unlogged}) is None
    assert not world.source_tables.look(world.items).is_resync_due, "the lake has none of its rows"
    world.copy(world.items)
    assert world.preparation.usable(world.items, {world.items.table: unlogged}) is None
    state = world.source_tables.look(world.items)
    assert (state.is_resync_due, state.is_repair) == (True, True)
    assert "SET LOGGED" in str(state.error)


def test_what_nobody_thought_of_stops_the_table_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(*_: object, **__: object) -> None:
        raise ZeroDivisionError("nobody thought of it")

    with monkeypatch.context() as patched:
        patched.setattr(world.lake, "prepare", prepare)
        assert not world.prepare()
    state = world.source_tables.look(world.items)
    assert (state.state, state.retry_at is not None) == (State.ERROR, True)
    assert "ZeroDivisionError: nobody thought of it" in str(state.error)
    assert world.prepare()


def test_a_lake_that_closes_under_the_last_look_is_no_table_s_fault(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(*_: object, **__: object) -> None:
        raise RuntimeError("cannot schedule new futures after shutdown")

    monkeypatch.setattr(world.lake, "prepare", prepare)
    before = world.source_tables.look(world.items)
    world.lifetime.end()
    with pytest.raises(LakeError, match="ends while a table is looked at: cannot schedule new futures"):
        world.prepare()
    assert world.source_tables.look(world.items) == before


def test_why_a_table_is_copied_again_is_shown_until_it_follows(world: World) -> None:
    assert world.prepare()
    world.copy(world.items)
    assert world.prepare()
    assert world.source_tables.look(world.items).why_copy == "", "it is as the map says"
    other = world.items.config.model_copy(update={"filter": "n > 5"})
    spec, table = dataclasses.replace(world.items, config=other), world.table(world.items)
    assert world.preparation.prepare(spec, table, 1000)
    assert world.source_tables.position(world.items) is None
    why = "its rows are copied again: `filter` of the map is another one than the one that its rows were made by"
    assert world.source_tables.look(world.items).why_copy == why


def test_who_saw_a_table_go_knows_more_of_it(world: World) -> None:
    renamed = SchemaError("it was renamed to goods")
    world.context.troubles.fail(world.items, renamed)
    world.preparation.usable(world.items, {})
    assert world.source_tables.look(world.items).error is renamed


def test_a_prepared_table_begins_anew(world: World) -> None:
    world.context.troubles.fail(world.items, TableError("it was broken"))
    assert world.prepare()
    assert (world.source_tables.state(world.items), world.source_tables.look(world.items).error) == (State.NEW, None)
    assert world.lake.rows("shop.items").num_rows == 0


def test_a_copy_that_is_due_is_kept_for_later_while_the_table_is_paused(world: World) -> None:
    world.copy(world.items)
    world.states.pause("shop.items", world.source.name)
    world.source_tables.resync(world.items, is_due=True)
    assert world.prepare()
    assert world.source_tables.position(world.items) is not None
    world.states.unpause("shop.items", world.source.name)
    assert world.prepare()
    assert world.source_tables.position(world.items) is None


def test_what_the_lake_has_of_a_refused_table_is_unknown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        world.refuse(patch, SchemaError("a column has another type"))
        assert not world.prepare()
    assert world.preparation.is_unknown(world.items)
    assert world.source_tables.state(world.items) is State.ERROR
    assert world.prepare()
    assert not world.preparation.is_unknown(world.items)


def test_a_member_is_known_when_another_one_told_of_their_target(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = dataclasses.replace(world.items, member="7")
    world.states.add(member.identifier, world.source_tables.name(member), "public.items_7")
    world.copy(world.items)
    with monkeypatch.context() as patch:
        world.refuse(patch, SchemaError("a column has another type"))
        assert not world.preparation.prepare(member, world.table(world.items), 1000)
        assert not world.prepare()
    assert not world.preparation.is_unknown(member)
    assert world.preparation.is_unknown(world.items)


def test_an_expression_that_does_not_fit_ends_the_first_start_only(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.refuse(monkeypatch, ExpressionRefused("no column m", option="filter"))
    with pytest.raises(MapMismatch, match="no column m"):
        world.prepare()
    world.lifetime.has_started = True
    assert not world.prepare()
    assert world.source_tables.state(world.items) is State.ERROR


def test_a_map_that_did_fit_stops_the_table_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.copy(world.items)
    known = SourceColumns(oid=ITEMS.oid, columns={1: KnownColumn(number=1, names=("m",))})
    monkeypatch.setattr(type(world.lake.notes), "columns", lambda *_: known)
    world.refuse(monkeypatch, ExpressionRefused("no column m", option="mask"))
    assert not world.prepare()
    assert world.source_tables.state(world.items) is State.ERROR


@pytest.mark.parametrize(("on_slot_lost", "is_copied"), [("stop", False), ("repair", False), ("resync", True)])
def test_lost_parked_changes_are_copied_only_if_the_map_says_so(
    tmp_path: Path, on_slot_lost: str, is_copied: bool
) -> None:
    world = World(tmp_path, on_slot_lost=on_slot_lost)
    world.copy(world.items)
    world.parking.error = ParkedLost("the log is gone")
    assert world.prepare() is is_copied
    assert (world.source_tables.position(world.items) is None) is is_copied


def test_a_failure_is_settled_before_the_lake_goes_on(world: World) -> None:
    world.copy(world.items)
    world.lake._tables["shop.items"].era = WriteEra(accepted={}, error=TableError("it was broken"))

    async def run() -> None:
        world.lifetime.begin()
        await asyncio.to_thread(world.prepare)

    asyncio.run(run())
    assert (world.settled, world.lake.failure("shop.items")) == (["shop.items"], None)
