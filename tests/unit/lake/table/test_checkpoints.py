"""Indexes are kept with the files that their numbers mean."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from pyroaring import BitMap64

from kuvasz.index import seed as index_seed
from kuvasz.index.positions import PositionIndex
from kuvasz.lake.format.schema import LakeSchema
from kuvasz.lake.table import checkpoints
from kuvasz.lake.table.checkpoints import Checkpoints
from kuvasz.lake.table.notes import SET_BACK_PROPERTY
from tests.support.lake_table import World, keys_of


def filled(tmp_path: Path, key: tuple[str, ...] = ("id",)) -> World:
    """A table of two files, with an index that was not saved yet."""
    world = World(tmp_path, key=key)
    world.add("a", 1, 2)
    world.add("b", 3, 4)
    assert world.table.index.places
    return world


def test_what_was_kept_is_not_read_again(tmp_path: Path) -> None:
    world = filled(tmp_path)
    before = world.places(1, 2, 3, 4)
    world.table.close()
    world.add("c", 5)
    world.read.clear()
    world.start()
    assert world.places(1, 2, 3, 4) == before
    assert world.read == ["c"]
    numbers = {entry.path: entry.number for entry in world.table.index.files}
    assert world.places(5) == [(numbers["c"], 0)]
    assert len(set(numbers.values())) == 3, "no number is given twice"


def test_without_a_checkpoint_all_is_read(tmp_path: Path) -> None:
    world = filled(tmp_path)
    world.read.clear()
    world.start()
    assert world.table.index.places
    assert sorted(world.read) == ["a", "b"]


def test_what_was_hashed_with_another_seed_is_read_again(tmp_path: Path) -> None:
    world = filled(tmp_path)
    world.table.close()
    (tmp_path / index_seed.NAME).unlink()  # a state folder of which somebody took a part, or an earlier version's
    world.read.clear()
    world.start()
    assert world.table.index.places
    assert sorted(world.read) == ["a", "b"]


def test_what_is_from_before_the_table_was_set_back_is_read_again(tmp_path: Path) -> None:
    """Whatever snapshots can still be seen: another machine may have noticed it long ago."""
    world = filled(tmp_path)
    for word, expected in (("one", ["a", "b"]), ("one", []), ("another", ["a", "b"])):
        world.table.close()
        world.iceberg.properties = {**world.iceberg.properties, SET_BACK_PROPERTY: word}
        world.read.clear()
        world.start()
        assert world.table.index.places
        assert sorted(world.read) == expected


def test_whole_rows_are_hashed_anew_when_they_have_other_columns(tmp_path: Path) -> None:
    world = filled(tmp_path, key=())
    assert world.table.definition.is_bag
    world.table.close()
    world.iceberg.now = LakeSchema(schema_id=1, fields=world.iceberg.now.fields)
    world.read.clear()
    world.start()
    assert world.table.index.places
    assert sorted(world.read) == ["a", "b"]


def test_a_disk_without_room_is_told_and_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: PositionIndex, tag: dict) -> None:
        raise OSError("no room")

    world = filled(tmp_path)
    monkeypatch.setattr(PositionIndex, "checkpoint", full)
    with caplog.at_level(logging.WARNING):
        world.table.index.save()
    (record,) = caplog.records
    assert (record.event, record.table, record.error) == ("index_unsaved", "shop.items", "no room")


def test_after_many_files_it_is_saved_however_few_rows_they_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_FILES", 4)
    world = filled(tmp_path)
    index = world.table.index
    index.note(1, 1)
    assert index.places.tag is None
    index.note(1, 1)
    assert index.places.tag is not None
    world.add("c", 5)
    world.read.clear()
    world.start()  # as after a kill
    assert world.table.index.places
    assert world.read == ["c"]


def test_files_that_were_read_again_count_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_FILES", 3)
    world = filled(tmp_path)
    world.table.index.note(1, 1)
    assert world.table.index.places.tag is not None


def test_of_a_table_with_many_files_many_have_to_be_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_FILES", 1)
    monkeypatch.setattr(checkpoints, "_PART_OF_FILES", 1)
    world = World(tmp_path)
    for number in range(5):
        world.add(f"f{number}", number)
    world.table.index.read()
    world.table.index.save()
    index = world.table.index
    index.places.insert(keys_of(9), 1, np.zeros(1, np.uint32))
    entries = index.places.entries
    index.note(1, 4)
    world.start()
    assert world.table.index.read().entries == entries - 1
    world.table.index.places.insert(keys_of(9), 1, np.zeros(1, np.uint32))
    world.table.index.note(1, 5)
    world.start()
    assert world.table.index.read().entries == entries


def test_after_many_entries_it_is_saved_and_forgets_keys_that_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_ENTRIES", 10)
    world = filled(tmp_path)
    index, mine = world.table.index.places, Checkpoints(world.table.definition, world.table.index.files)
    for number in range(100, 130):
        index.insert(keys_of(number), 999, np.zeros(1, np.uint32))  # a file that went
    world.table.index.files.find("a").dead = BitMap64([0])
    index.mark()
    mine.count(index, 9, 1, 1, 0)
    assert index.entries == 34
    mine.count(index, 1, 1, 1, 0)
    assert index.entries == 3, "row 0 of a is dead, too"
    assert index.tag["files"] == {str(entry.number): entry.path for entry in world.table.index.files}
    index.insert(keys_of(200), 999, np.zeros(1, np.uint32))
    mine.count(index, 9, 1, 1, 0)
    assert index.entries == 4, "it counts from the last one on"
