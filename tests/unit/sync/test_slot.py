from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.errors import SlotLost, SourceError
from kuvasz.model import Position
from kuvasz.source import introspect, publication, slots
from kuvasz.state.standing import Standing, StandingFile
from kuvasz.sync.slot import Slot
from kuvasz.sync.targets import feed_of, target_of
from tests.unit.sync.scene import Scene

OURS = 7


class World(Scene):
    """A scene with its slot, and the server's answers."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder)
        self.standing = StandingFile(folder, self.source.name)
        self.parked: dict[str, int] = {}
        self.dropped: list[str] = []
        self.slot = Slot(self.basis, self.standing, parked_lsn=lambda target: self.parked.get(target, 0))
        self.found: slots.SlotState | None = self.state()
        self.is_published = True
        monkeypatch.setattr(slots, "describe", lambda *_: self.found)
        monkeypatch.setattr(slots, "drop", lambda _, name: self.dropped.append(name))
        monkeypatch.setattr(slots, "user", lambda *_: "pid 99")
        monkeypatch.setattr(introspect, "wal_end", lambda _: 9000)
        monkeypatch.setattr(publication, "load", lambda *_: self if self.is_published else None)

    def state(self, **facts: Any) -> slots.SlotState:
        values: dict[str, Any] = {
            "name": self.slot.name, "plugin": "pgoutput", "database": "shop", "is_temporary": False,
            "active_pid": None, "confirmed_flush_lsn": 1500, "restart_lsn": 1000, "wal_status": "reserved",
            "safe_wal_bytes": None, "retained_bytes": 0,
        }  # fmt: skip
        return slots.SlotState(**(values | facts))

    def check(self) -> bool:
        facts: Any = SimpleNamespace(system_identifier=OURS, timeline=1, version=180000, is_in_recovery=False)
        return self.slot.check(None, self.source.tables, facts)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_the_source_goes_on_in_its_slot(world: World) -> None:
    world.copy(world.items, 1200)
    assert world.check()
    assert world.standing.standing == Standing(system_id="7", confirmed_lsn=1500)


def test_without_a_slot_the_source_is_new(world: World) -> None:
    world.found = None
    assert not world.check()


def test_a_slot_that_is_lost_is_dropped_only_if_nothing_was_copied(world: World) -> None:
    world.found = world.state(wal_status="lost")
    assert not world.check()
    assert world.dropped == [world.slot.name]
    world.dropped.clear()
    world.copy(world.items)
    with pytest.raises(SlotLost):
        world.check()
    assert world.dropped == []


def test_rows_of_another_cluster_stop_it(world: World) -> None:
    feed = feed_of(world.source, world.items)
    world.lake.prepare(target_of(world.items), feed, world.table(world.items).relation)
    position = Position(lsn=1000, system_id="8")
    world.lake.copy(feed, world.table(world.items).relation, [], position, lambda *_: None)
    with pytest.raises(SlotLost, match=r"cluster 7 answers, but table shop.items holds rows of cluster 8"):
        world.check()


def test_a_slot_of_something_else_is_not_touched(world: World) -> None:
    world.found = world.state(plugin="test_decoding")
    with pytest.raises(SlotLost, match="cannot be used"):
        world.check()
    assert world.dropped == []


def test_a_missing_publication_is_a_gap(world: World) -> None:
    world.is_published = False
    assert world.check(), "nothing was copied"
    world.copy(world.items)
    with pytest.raises(SlotLost, match="was dropped: changes after"):
        world.check()


def test_a_slot_in_use_is_waited_for(world: World) -> None:
    world.found = world.state(active_pid=99)
    with pytest.raises(SourceError, match="is in use by pid 99"):
        world.check()


def test_what_was_confirmed_of_an_earlier_slot_counts_for_no_new_source(world: World) -> None:
    world.standing.update(Standing(system_id="7", confirmed_lsn=5000))
    assert world.check()
    assert world.standing.standing.confirmed_lsn == 1500


def test_what_is_parked_counts_as_applied(world: World) -> None:
    assert world.slot.applied_lsn() == 0
    world.copy(world.items, 1200)
    world.copy(world.others, 1100)
    assert world.slot.applied_lsn() == 1200
    world.parked["shop.others"] = 1300
    assert world.slot.applied_lsn() == 1300


def test_snapshots_of_single_tables_have_slots_of_their_own(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, bool]] = []

    def create(_: str, name: str, *, temporary: bool, failover: bool, on_waiting: Any) -> Any:
        made.append((name, temporary))
        if len(made) == 2:
            world.lifetime.end()
        on_waiting(())
        return SimpleNamespace(consistent_point=2000)

    monkeypatch.setattr(slots, "create", create)
    world.slot.snapshot(world.items)
    with pytest.raises(SourceError, match="stopped while the slot was being created"):
        world.slot.snapshot(world.items)
    (first, is_temporary), (second, _) = made
    assert is_temporary
    assert len({first, second, world.slot.name}) == 3
    assert first.startswith(f"{world.slot.name}_copy_")
