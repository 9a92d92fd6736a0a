"""Parking logs as the lake knows of them: one that is lost, or is another one, is found out."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.errors import LakeError, LakeRewound, ParkedLost
from kuvasz.parking.log_folder import LogFolder
from kuvasz.parking.logs import ParkingLogs
from kuvasz.state.tables import State
from kuvasz.sync.tables.source_logs import SourceLogs
from tests.support.changes import Sender, insert
from tests.support.scene import Scene

TARGET, SOURCE = "shop.items", "shop"


class World(Scene):
    """A source of which `items` was copied at LSN 1000."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder
        self.record: Any = SimpleNamespace(standing=SimpleNamespace(confirmed_lsn=0x2000))
        self.copy(self.items)
        self.logs = SourceLogs(self.context, self.record)
        self.sender = Sender(SOURCE)

    def restart(self) -> None:
        """Have another process begin, with the same lake and the same folder."""
        self.shared.lot.close()
        lot = ParkingLogs(LogFolder(self.folder), 0, self.progress.hold, self.progress.release)
        context: Any = SimpleNamespace(
            source=self.source, shared=SimpleNamespace(
                lot=lot, lake=self.lake, progress=self.progress, states=self.states,
                mask_secret=b"",
            ), troubles=self.context.troubles,
        )  # fmt: skip
        self.logs = SourceLogs(context, self.record)
        self.lot = lot

    def park(self) -> int:
        """Park a transaction; return its commit LSN."""
        self.shared.lot.most_bytes = 1 << 20
        segment = self.sender.one(insert(1))
        lsn = int(segment.transactions.commit_lsn[0])
        self.logs.begin(self.items, 1)
        self.shared.lot.park(TARGET, SOURCE, 1, [segment], lsn + 8, is_open=False)
        return lsn

    @property
    def noted(self) -> str | None:
        return self.lake.notes.parked(TARGET, SOURCE)

    def lose(self) -> None:
        """Have what is parked on disk be gone."""
        for found in self.folder.iterdir():
            if found.is_dir():
                shutil.rmtree(found)

    @property
    def is_held(self) -> bool:
        return TARGET in self.progress.held(SOURCE)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_lake_knows_of_a_log_before_anything_is_parked(world: World) -> None:
    assert not world.logs.has(TARGET)
    world.logs.open(world.items)
    assert world.logs.has(TARGET)
    assert world.noted == world.shared.lot.id_of(TARGET, SOURCE)
    assert world.logs.targets() == {TARGET}
    before = world.noted
    world.logs.open(world.items)
    assert world.noted == before, "one that is there stays"


def test_a_log_that_the_lake_could_not_be_told_of_is_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise LakeError("the catalog does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(world.lake.notes, "park", fail)
        with pytest.raises(LakeError):
            world.logs.open(world.items)
    assert (world.logs.has(TARGET), world.noted) == (False, None)


def test_the_next_process_finds_what_was_parked(world: World) -> None:
    world.logs.open(world.items)
    lsn = world.park()
    assert world.logs.last_lsn(TARGET) == lsn
    world.restart()
    world.logs.admit(world.items)
    assert (world.logs.has(TARGET), world.logs.last_lsn(TARGET)) == (True, lsn)


def test_a_log_that_is_gone_is_told_with_what_may_be_missing(world: World) -> None:
    world.logs.open(world.items)
    world.park()
    world.restart()
    world.lose()
    with pytest.raises(ParkedLost) as caught:
        world.logs.admit(world.items)
    assert caught.value.message.startswith(
        "source shop, table public.items: changes between 0/3E8 and 0/2000 may be missing: they were parked, and "
    )
    assert caught.value.hint == "copy the table again: kuvasz resync --table shop.items"
    assert world.logs.is_lost(TARGET)


def test_of_a_paused_table_the_hint_says_to_resume_it(world: World) -> None:
    world.logs.open(world.items)
    world.park()
    world.states.pause(TARGET, SOURCE)
    world.restart()
    world.lose()
    with pytest.raises(ParkedLost) as caught:
        world.logs.admit(world.items)
    assert caught.value.hint is not None
    assert caught.value.hint.endswith("and then kuvasz resume --table shop.items")


def test_where_the_lake_has_no_rows_a_copy_brings_all_of_it(world: World) -> None:
    world.logs.open(world.items)
    world.park()
    log_id = world.noted
    world.lake.forget(TARGET, SOURCE)
    world.lake.notes.park(TARGET, SOURCE, log_id)
    world.logs.admit(world.items)
    assert (world.logs.has(TARGET), world.noted) == (False, None)


def test_a_lake_that_knows_nothing_of_what_is_parked_was_set_back(world: World) -> None:
    world.logs.open(world.items)
    world.park()
    world.lake.notes.park(TARGET, SOURCE, None)
    world.restart()
    with pytest.raises(LakeRewound, match=r"its changes up to 0/44C were parked, and it knows nothing of that"):
        world.logs.admit(world.items)


def test_one_that_has_all_of_it_was_not(world: World) -> None:
    world.logs.open(world.items)
    world.park()
    world.lake.notes.park(TARGET, SOURCE, None)
    world.lake.forget(TARGET, SOURCE)
    world.copy(world.items, lsn=5000)
    world.restart()
    world.logs.admit(world.items)
    assert not world.logs.has(TARGET)


def test_a_log_that_goes_while_it_is_used_holds_its_source(world: World) -> None:
    world.logs.open(world.items)
    world.park()
    world.logs.check(world.items)
    assert not world.logs.is_lost(TARGET)
    world.lose()
    world.logs.check(world.items)
    assert (world.logs.is_lost(TARGET), world.logs.has(TARGET), world.is_held) == (True, False, True)
    assert isinstance(world.source_tables.look(world.items).error, ParkedLost)


def test_a_log_that_was_given_up_is_never_taken_for_whole_again(world: World, tmp_path: Path) -> None:
    world.logs.open(world.items)
    world.park()
    kept = tmp_path / "kept"
    folders = [found for found in tmp_path.iterdir() if found.is_dir()]
    for found in folders:
        shutil.copytree(found, kept / found.name)
    world.logs.abandon(world.items)
    noted = world.noted
    world.logs.abandon(world.items)
    assert world.noted == noted, "once is enough"
    world.restart()
    with pytest.raises(ParkedLost):
        world.logs.admit(world.items)


def test_a_log_is_removed_when_all_of_it_is_in_the_lake(world: World) -> None:
    world.logs.open(world.items)
    world.park()
    world.logs.close(TARGET)
    assert (world.logs.has(TARGET), world.noted, world.logs.last_lsn(TARGET)) == (False, None, 0)


def test_a_close_that_is_cut_off_is_no_loss(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is finished before the note goes, so the next process knows that nothing of it is needed."""
    world.logs.open(world.items)
    world.park()

    def fail(*_: object) -> None:
        raise LakeError("cut off")

    with monkeypatch.context() as patched:
        patched.setattr(world.logs, "drop", fail)
        with pytest.raises(LakeError):
            world.logs.close(TARGET)
    assert world.noted is None
    world.restart()
    world.logs.admit(world.items)
    assert not world.logs.has(TARGET)


def test_a_table_that_follows_and_has_a_log_is_being_replayed(world: World) -> None:
    world.logs.open(world.items)
    assert not world.logs.is_replaying
    world.states.activate(TARGET, SOURCE, 1)
    world.source_tables.set(world.items, State.STREAMING)
    assert world.logs.is_replaying
