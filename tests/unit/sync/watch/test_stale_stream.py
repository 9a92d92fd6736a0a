from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kuvasz.source.catalog import partitions
from kuvasz.source.catalog.partitions import Partition
from kuvasz.sync.watch import stale_stream
from kuvasz.sync.watch.partition_notes import PartitionNotes
from kuvasz.sync.watch.stale_stream import StaleStream
from tests.support.partitions import KNOWN, A, B
from tests.support.scene import Scene


class World(Scene):
    """A scene with a stream that is confirmed up to 7000 of 8000."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.wal_lsn = 8000
        self.are_seen = False
        self.notes = PartitionNotes(self.context)
        self.stale = StaleStream(self.context, self.notes)
        self.confirmed_lsn = 7000

    def waits(self, *found: Partition) -> bool:
        connection: Any = self
        return self.stale.may_be_stale(connection, self.items, KNOWN, found)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(partitions, "are_seen", lambda scene: scene.are_seen)
    monkeypatch.setattr(stale_stream, "end_to_send", lambda scene: scene.wal_lsn)
    monkeypatch.setattr(partitions, "is_confirmed", lambda scene, _, at_lsn: scene.confirmed_lsn >= at_lsn)
    return World(tmp_path)


def test_what_hangs_as_before_makes_no_stream_stale(world: World) -> None:
    assert not world.waits(A, B)
    assert not world.stale.take()


def test_a_stream_that_sees_it_is_not_stale(world: World) -> None:
    world.are_seen = True
    assert not world.waits(A)
    assert not world.stale.take()


def test_a_partition_that_went_is_waited_for_until_all_before_is_confirmed(world: World) -> None:
    assert world.waits(A)
    world.wal_lsn = 9000
    assert world.waits(A)
    assert not world.stale.take()
    world.confirmed_lsn = 8000
    assert not world.waits(A)
    assert world.stale.take()
    assert not world.waits(A)
    assert not world.stale.take(), "it is another connection now"


def test_one_that_went_meanwhile_is_waited_for_as_well(world: World) -> None:
    assert world.waits(A)
    world.confirmed_lsn = 8000
    world.wal_lsn = 9000
    assert world.waits()
    world.confirmed_lsn = 9000
    assert not world.waits()
    assert world.stale.take()


def test_the_lsns_of_another_past_are_forgotten(world: World) -> None:
    assert world.waits(A)
    world.stale.clear()
    world.wal_lsn = 500
    world.confirmed_lsn = 600
    assert not world.waits(A)
    assert world.stale.take()
