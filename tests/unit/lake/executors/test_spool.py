from __future__ import annotations

import os
import pickle
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


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_sealed_parts_are_read_with_the_key_that_travels_beside_them(tmp_path: Path, scheme: str) -> None:
    spool = Spool(f"{scheme}{tmp_path}", {})
    parts = [b"lengths", b"Zq7 a value", b"lengths of others", memoryview(b"clear"), b"", bytearray(b"Zq7")]
    path, slices = spool.write(parts, {1, 4, 5})
    written = Path(path.removeprefix(scheme)).read_bytes()
    assert b"Zq7" not in written
    assert b"clear" in written
    assert [one.seal is not None for one in slices] == [False, True, False, False, True, True]
    travelled = pickle.loads(pickle.dumps(slices))
    assert [one.read({}) for one in travelled] == parts
    assert repr(travelled[1].seal).find(str(travelled[1].seal.key)) < 0


def test_a_sealed_part_that_changed_is_an_error_that_may_pass(tmp_path: Path) -> None:
    path, (one,) = Spool(str(tmp_path), {}).write([b"Zq7"], {0})
    data = bytearray(Path(path).read_bytes())
    data[-1] ^= 1
    Path(path).write_bytes(data)
    with pytest.raises(OSError, match="its seal does not fit"):
        one.read({})


def test_no_two_spools_have_one_key(tmp_path: Path) -> None:
    """A process that starts again has another one: what a kill left is unreadable for good."""
    (first,), (second,) = (Spool(str(tmp_path), {}).write([b"x"], {0})[1] for _ in range(2))
    assert first.seal != second.seal


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
