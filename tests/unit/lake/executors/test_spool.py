from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.errors import LakeError
from kuvasz.lake.executors.spool import Spool


@settings(deadline=None)  # a busy machine is no fault of ours
@given(parts=st.lists(st.binary(max_size=50), max_size=6))
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_parts_are_read_back(tmp_path_factory: pytest.TempPathFactory, scheme: str, parts: list[bytes]) -> None:
    folder = tmp_path_factory.mktemp("spool")
    spool = Spool(f"{scheme}{folder}", {})
    path, slices = spool.write([memoryview(part) for part in parts])
    assert [one.read({}) for one in slices] == parts
    assert {one.path for one in slices} <= {path}
    spool.remove(path)
    spool.remove(path)
    assert list(folder.iterdir()) == []


def test_what_an_earlier_process_left_is_cleared(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "deep" / "er"), {})
    path, _ = spool.write([b"x"])
    other = Path(path).with_name("notes.txt")
    other.touch()
    spool.clear()
    assert not Path(path).exists()
    assert other.exists()


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_whoever_erases_rows_leaves_nothing_in_it_however_new_it_is(tmp_path: Path, scheme: str) -> None:
    spool = Spool(f"{scheme}{tmp_path}", {})
    path, _ = spool.write([b"x"])
    if scheme:
        assert spool.clear() == 0, "it may be that of another process"
    assert spool.clear(is_all=True) == 1
    assert not Path(path.removeprefix(scheme)).exists()


def test_no_room_is_an_error_that_may_pass(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "spool"), {})
    (tmp_path / "spool").rmdir()
    with pytest.raises(LakeError, match="cannot spool changes to"):
        spool.write([b"x"])


def test_nobody_else_can_read_what_is_on_its_way(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path, _ = Spool(str(tmp_path / "spool"), {}).write([b"x"])
    finally:
        os.umask(before)
    assert (Path(path).stat().st_mode & 0o777, Path(path).parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_strangers_folder_takes_nothing(tmp_path: Path) -> None:
    (tmp_path / "spool").symlink_to(tmp_path)
    with pytest.raises(PermissionError, match="somebody else's"):
        Spool(str(tmp_path / "spool"), {})
