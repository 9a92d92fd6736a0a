from __future__ import annotations

import json
from pathlib import Path

import pytest

from kuvasz.errors import StateError
from kuvasz.state.note_file import FILE, NoteFile
from kuvasz.state.ports import Note

KEY, OTHER = ("shop.items", "shop_eu"), ("shop.others", "shop_eu")
NOTE = Note(paused_at=5.5, is_resync_due=True, failed_at=3.0, message="wrong\nvalue", hint=None)


def test_there_is_one_file_with_what_says_something(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    file = NoteFile(folder)
    file.put({OTHER: Note(is_repair=True), KEY: NOTE})
    file.put({OTHER: Note()})
    assert [path.name for path in folder.iterdir()] == [FILE]
    assert json.loads((folder / "tables.json").read_text()) == {"tables": [{
        "target": "shop.items", "source": "shop_eu", "paused_at": 5.5, "is_resync_due": True, "is_repair": False,
        "failed_at": 3.0, "message": "wrong\nvalue", "hint": None,
    }]}  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "[]", '{"tables": [{}]}', '{"tables": [{"target": "a", "source": "b", "x": 1}]}']
)
def test_a_file_that_is_not_ours_is_refused_and_stays(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    refused = pytest.raises(StateError, match=r"tables\.json cannot be read: .*\nhint: restore it, or remove it")
    with refused:
        NoteFile(tmp_path).all()
    with refused:
        NoteFile(tmp_path).put({KEY: NOTE})
    assert (tmp_path / FILE).read_text() == text


def test_a_file_that_was_read_is_replaced_whatever_becomes_of_it(tmp_path: Path) -> None:
    file = NoteFile(tmp_path)
    file.put({KEY: NOTE})
    (tmp_path / FILE).write_text("{")
    file.put({OTHER: NOTE})
    assert NoteFile(tmp_path).all() == {KEY: NOTE, OTHER: NOTE}


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=r"cannot be written: .*\nhint: make room"):
        NoteFile(tmp_path / "file")._write({KEY: NOTE})
