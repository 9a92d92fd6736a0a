"""Objects in a folder. That they are in a store, too, is `contract/test_iceberg`'s way of reaching one."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kuvasz.lake.files import object_folder
from kuvasz.lake.files.object_folder import ObjectFolder


@pytest.fixture
def folder(tmp_path: Path) -> ObjectFolder:
    return ObjectFolder(f"file://{tmp_path}/log", {})


def test_what_is_put_is_read_in_ranges_and_removed(folder: ObjectFolder, tmp_path: Path) -> None:
    assert folder.names() == []
    folder.put("a.log", b"0123456789")
    folder.put("b.log", b"x" * 100)
    assert sorted(folder.names()) == ["a.log", "b.log"]
    assert (folder.get("a.log", 0, 10), folder.get("a.log", 3, 4)) == (b"0123456789", b"3456")
    assert folder.place == f"{tmp_path}/log"
    folder.put("a.log", b"again")
    assert folder.get("a.log", 0, 5) == b"again"
    assert folder.remove([]) == []
    assert folder.remove(["a.log", "gone.log"]) == ["a.log", "gone.log"]
    assert folder.names() == ["b.log"]
    with pytest.raises(FileNotFoundError):
        folder.get("a.log", 0, 1)


def test_nobody_else_can_read_it(folder: ObjectFolder, tmp_path: Path) -> None:
    folder.put("a.log", b"row")
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "log" / "a.log").stat().st_mode) == 0o600


def test_what_was_cut_off_is_no_object_that_anybody_names(folder: ObjectFolder, tmp_path: Path) -> None:
    folder.put("a.log", b"row")
    (tmp_path / "log" / "b.log.part").write_bytes(b"ro")
    assert sorted(folder.names()) == ["a.log", "b.log.part"], "it is removed as a stray"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OSError, match="denied"):
        ObjectFolder(f"file://{tmp_path}/log", {}).put("a.log", b"row")


def test_files_go_there_and_come_back_piece_by_piece(
    folder: ObjectFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_folder, "_PIECE", 3)
    (tmp_path / "file").write_bytes(b"0123456789")
    with (tmp_path / "file").open("rb") as file:
        folder.upload("a.run", file)
    assert folder.get("a.run", 0, 20) == b"0123456789"
    folder.download("a.run", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"0123456789"
    with pytest.raises(FileNotFoundError):
        folder.download("gone.run", tmp_path / "back")
