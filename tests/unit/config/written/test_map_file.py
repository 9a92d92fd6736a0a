"""The map's file exchanged as a whole, or not at all."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from kuvasz.config.written.map_file import MapFile
from kuvasz.errors import ConfigError, MapUnwritten

OLD = "# é\r\ndatabases: []\r\n"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "map.yaml"
    found.write_bytes(OLD.encode())
    found.chmod(0o640)
    return found


def test_the_version_before_stays_beside_the_new_one_with_its_mode(path: Path) -> None:
    file = MapFile(path)
    assert file.text(digest(OLD)) == OLD
    file.exchange("new", digest(OLD))
    file.exchange("newer", digest("new"))
    assert (path.read_text(), file.before.read_text()) == ("newer", "new")
    assert [one.stat().st_mode & 0o777 for one in (path, file.before)] == [0o640, 0o640]
    assert sorted(one.name for one in path.parent.iterdir()) == ["map.yaml", "map.yaml.before"]


def test_what_a_link_leads_to_is_exchanged(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.yaml"
    link.symlink_to(path)
    MapFile(link).exchange("new", digest(OLD))
    assert (link.is_symlink(), path.read_text()) == (True, "new")


def test_a_file_that_has_something_else_by_now_stays(path: Path) -> None:
    path.write_text("mine")
    with pytest.raises(ConfigError, match="somebody changed it since it was read"):
        MapFile(path).exchange("new", digest(OLD))
    assert path.read_text() == "mine"


def test_a_file_that_cannot_be_written_stays(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MapUnwritten, match="no space left on device"):
        MapFile(path).exchange("new", digest(OLD))
    assert path.read_bytes() == OLD.encode()
    monkeypatch.undo()
    MapFile(path).exchange("new", digest(OLD))
    assert path.read_text() == "new", "what the first attempt left behind is in nobody's way"
