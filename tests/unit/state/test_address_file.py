from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from kuvasz.errors import ConfigError
from kuvasz.state.address_file import FILE, AddressFile
from kuvasz.state.ports import ServerAddress

ADDRESS = ServerAddress(url="http://127.0.0.1:8000", token="geheim")


def test_the_file_is_a_new_one_that_nobody_else_can_read(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("mine")
    (tmp_path / FILE).symlink_to(tmp_path / "elsewhere")
    AddressFile(tmp_path).leave(ADDRESS)
    file = tmp_path / FILE
    assert not file.is_symlink()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text()) == {"url": "http://127.0.0.1:8000", "token": "geheim", "pid": os.getpid()}
    assert (tmp_path / "elsewhere").read_text() == "mine"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"url": "x"}'])
def test_a_file_that_is_not_ours_says_nothing_and_stays(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    file = AddressFile(tmp_path)
    assert file.find() is None
    file.remove(ADDRESS)
    assert (tmp_path / FILE).exists()


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ConfigError, match=r"^pipeline\.state: cannot write .*server\.json: .*\nhint: choose a folder"
    ):
        AddressFile(tmp_path / "file").leave(ADDRESS)
