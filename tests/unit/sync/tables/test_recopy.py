from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kuvasz.config.model import WhenParkedFull
from kuvasz.errors import ChangesLost, ParkedLost, TableGone
from kuvasz.state.tables import State
from kuvasz.sync.tables.recopy import PositionReset
from tests.support.scene import Scene


class Forgetful:
    """A `PositionReset`, and what it told others."""

    def __init__(self, scene: Scene) -> None:
        self.dropped: list[str] = []
        self.it = PositionReset(scene.context, drop_parked=self.dropped.append)


def test_a_table_is_forgotten_for_good(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    made = Forgetful(scene)
    scene.copy(scene.items)
    scene.source_tables.resync(scene.items, is_due=True)
    made.it.forget(scene.items)
    assert scene.source_tables.position(scene.items) is None
    assert scene.lake.notes.gap("shop.items", scene.source.name) is None
    assert not scene.source_tables.look(scene.items).is_resync_due, "the lake knows now"
    assert made.dropped == ["shop.items"]


def test_a_repair_leaves_a_gap(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.copy(scene.items)
    scene.source_tables.resync(scene.items, is_due=True, is_repair=True)
    Forgetful(scene).it.forget(scene.items)
    assert scene.source_tables.position(scene.items) is None
    assert scene.lake.notes.gap("shop.items", scene.source.name) is not None


def test_a_copy_of_all_that_is_asked_for_while_a_repair_is_noted_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path)
    scene.copy(scene.items)
    scene.source_tables.resync(scene.items, is_due=True, is_repair=True)
    forget = scene.lake.forget

    def asked(*args: Any, **options: Any) -> None:
        forget(*args, **options)
        scene.source_tables.resync(scene.items, is_due=True)

    monkeypatch.setattr(scene.lake, "forget", asked)
    Forgetful(scene).it.forget(scene.items)
    assert scene.source_tables.look(scene.items).is_resync_due


def test_who_agreed_to_a_gap_agreed_to_no_later_one(tmp_path: Path) -> None:
    """Whatever made up his mind: a `resync` before the table went on has it copied."""
    scene = Scene(tmp_path)
    scene.copy(scene.items)
    scene.context.approvals.give(scene.items.key, ChangesLost("its changes are lost"))
    scene.source_tables.resync(scene.items, is_due=True)
    Forgetful(scene).it.forget(scene.items)
    assert not scene.context.approvals.is_gap_accepted(scene.items)


def test_who_else_feeds_a_table_that_is_gone_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path)
    for other in ("us", "idle"):
        scene.states.add("shop.items", other, "public.items")
    scene.states.activate("shop.items", "us", 1)

    def gone(*_: object, **__: object) -> None:
        raise TableGone("someone dropped it")

    monkeypatch.setattr(scene.lake, "forget", gone)
    Forgetful(scene).it.forget(scene.items)
    assert scene.states.get("shop.items", "us").state is State.ERROR
    assert scene.progress.held("us") == {"shop.items"}
    assert scene.states.get("shop.items", "idle").state is State.NEW
    assert not scene.progress.held(scene.source.name)


@pytest.mark.parametrize(("on_slot_lost", "gaps"), [("resync", [False, False]), ("repair", [False, True])])
def test_a_copy_that_a_person_wants_is_no_repair(tmp_path: Path, on_slot_lost: str, gaps: list[bool]) -> None:
    scene = Scene(tmp_path, on_slot_lost=on_slot_lost)
    for spec in scene.source.tables:
        scene.copy(spec)
    scene.source_tables.resync(scene.items, is_due=True)
    Forgetful(scene).it.forget_all()
    assert [scene.source_tables.position(spec) for spec in scene.source.tables] == [None, None]
    found = [scene.lake.notes.gap(spec.identifier, scene.source.name) is not None for spec in scene.source.tables]
    assert found == gaps


def test_a_full_log_is_dropped_only_if_the_map_says_so(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    made = Forgetful(scene)
    scene.copy(scene.items)
    made.it.make_room(scene.items)
    assert (made.dropped, scene.settled) == ([], [])
    assert scene.source_tables.position(scene.items) is not None


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_table_whose_log_was_dropped_is_copied_again(tmp_path: Path, is_paused: bool) -> None:
    async def run() -> tuple[Scene, Forgetful, list[str]]:
        scene = Scene(tmp_path, when_parked_full=WhenParkedFull.RESYNC)
        made = Forgetful(scene)
        scene.lifetime.begin()
        scene.copy(scene.items)
        scene.source_tables.hold(scene.items)
        if is_paused:
            scene.states.pause("shop.items", scene.source.name)
        await asyncio.to_thread(made.it.make_room, scene.items)
        return scene, made, await scene.asked_anew()

    scene, made, asked = asyncio.run(run())
    assert asked == made.dropped == scene.settled == ["shop.items"]
    assert scene.source_tables.position(scene.items) is None
    assert not scene.progress.held(scene.source.name)
    error = scene.source_tables.look(scene.items).error
    assert isinstance(error, ParkedLost) is is_paused
