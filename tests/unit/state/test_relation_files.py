from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.errors import StateError
from kuvasz.state.ports import KnownFile
from kuvasz.state.relation_files import FOLDER, RelationFiles

FILES = {
    16384: KnownFile(file=16390, horizon=1 << 33, truncated=(5, 7)),
    16400: KnownFile(file=16400, horizon=9, toast=16402, named=(16500, 16501)),
}


def test_there_is_one_file_of_each_source(tmp_path: Path) -> None:
    RelationFiles(tmp_path / "made", "shop_eu").put(FILES)
    (file,) = (tmp_path / "made" / FOLDER).iterdir()
    assert file.name == "shop_eu.json"
    assert RelationFiles(tmp_path / "made", "shop_us").all() == {}


def test_what_an_earlier_version_kept_is_known(tmp_path: Path) -> None:
    """It knew neither TOAST tables nor names."""
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "eu.json").write_text('{"16384": {"file": 16390, "horizon": 9, "truncated": [5]}}')
    assert RelationFiles(tmp_path, "eu").all() == {16384: KnownFile(file=16390, horizon=9, truncated=(5,))}


def test_a_file_that_says_so_already_is_left_alone(tmp_path: Path) -> None:
    RelationFiles(tmp_path, "eu").put(FILES)
    before = (tmp_path / FOLDER / "eu.json").stat().st_ino
    RelationFiles(tmp_path, "eu").put({16384: FILES[16384]})
    assert (tmp_path / FOLDER / "eu.json").stat().st_ino == before


@pytest.mark.parametrize("text", ["", "[]", '{"5": []}', '{"5": {"file": 5}}', '{"x": {}}'])
def test_of_a_file_that_is_not_ours_nothing_is_known(tmp_path: Path, text: str) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "eu.json").write_text(text)
    assert RelationFiles(tmp_path, "eu").all() == {}


def test_what_cannot_be_kept_is_told_and_known_meanwhile(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FOLDER).write_text("")
    files = RelationFiles(tmp_path, "eu")
    files.put(FILES)
    assert files.all() == FILES
    for horizon in range(10):  # as each look finds another one
        files.put({16384: KnownFile(file=16390, horizon=horizon)})
    assert [record.event for record in caplog.records] == ["relation_files_failed"]  # type: ignore[attr-defined]


def test_a_file_that_cannot_be_read_now_is_not_one_that_is_missing(tmp_path: Path) -> None:
    """Rows that came without WAL while kuvasz was stopped are known by it alone."""
    RelationFiles(tmp_path, "eu").put(FILES)
    file = tmp_path / FOLDER / "eu.json"
    file.rename(tmp_path / "aside")
    file.mkdir()
    files = RelationFiles(tmp_path, "eu")
    with pytest.raises(StateError, match="cannot be read: is a directory"):
        files.all()
    with pytest.raises(StateError, match="cannot be read: is a directory"):
        files.put({5: FILES[16384]})
    file.rmdir()
    (tmp_path / "aside").rename(file)
    assert files.all() == FILES
