from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kuvasz import private_folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def _open_handed() -> None:
    """A umask that keeps nothing to itself."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.parametrize("make", [private_folder.make, private_folder.make_state])
def test_nobody_else_sees_into_it(tmp_path: Path, make) -> None:
    make(tmp_path / "deep" / "er")
    assert mode(tmp_path / "deep" / "er") == 0o700
    make(tmp_path / "deep" / "er")


@pytest.mark.parametrize("make", [private_folder.make, private_folder.make_state])
def test_one_that_was_open_is_closed(tmp_path: Path, make) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    make(tmp_path / "open")
    assert mode(tmp_path / "open") == 0o700


def test_a_link_is_no_folder_of_ours(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match="somebody else's"):
        private_folder.make(tmp_path / "link")
    private_folder.make_state(tmp_path / "link")
    assert mode(tmp_path / "elsewhere") == 0o700


def test_a_strangers_folder_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made").mkdir(mode=0o777)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(PermissionError, match="somebody else's"):
        private_folder.make(tmp_path / "made")
    private_folder.make_state(tmp_path / "made")
    assert mode(tmp_path / "made") == 0o777


def test_what_its_owner_may_not_do_stays_so(tmp_path: Path) -> None:
    (tmp_path / "read").mkdir(mode=0o555)
    private_folder.make_state(tmp_path / "read")
    assert mode(tmp_path / "read") == 0o500


@pytest.mark.parametrize("is_durable", [True, False])
def test_a_file_holds_the_one_text_or_the_other(tmp_path: Path, is_durable: bool) -> None:
    file = tmp_path / "deep" / "notes.json"
    private_folder.exchange(file, "first", is_durable=is_durable)
    private_folder.exchange(file, "ö", is_durable=is_durable)
    assert (file.read_text("utf-8"), sorted(tmp_path.rglob("*.*"))) == ("ö", [file])


def test_a_durable_file_has_its_name_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[Path, bool]] = []
    file = tmp_path / "feeds.json"
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        sync(descriptor)
        synced.append((Path(f"/proc/self/fd/{descriptor}").resolve(), file.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    private_folder.exchange(file, "text")
    assert synced == [(tmp_path / "feeds.new", False), (tmp_path, True)]
    synced.clear()
    private_folder.exchange(file, "text", is_durable=False)
    assert synced == []


def test_a_text_that_cannot_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "notes.json"
    private_folder.exchange(file, "before")
    (tmp_path / "notes.new").mkdir()
    with pytest.raises(OSError, match=r"notes\.new"):
        private_folder.exchange(file, "after")
    assert file.read_text("utf-8") == "before"
