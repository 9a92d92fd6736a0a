from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.errors import StateError
from kuvasz.state.notes import FILE, Note, NoteFile

KEY = ("shop.items", "shop_eu")
NOTE = Note(paused_at=5.5, is_resync_due=True, failed_at=3.0, message="wrong\nvalue", hint=None)


def test_gives_back_what_was_saved(tmp_path: Path) -> None:
    file = NoteFile(tmp_path / "made" / "here")
    assert file.load() == {}
    file.save({KEY: NOTE, ("shop.others", "shop_eu"): Note()})
    assert file.load() == {KEY: NOTE}, "what says nothing is left out"
    file.save({})
    assert file.load() == {}
    assert [path.name for path in (tmp_path / "made" / "here").iterdir()] == [FILE]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"tables": [{}]}', '{"tables": [{"target": "a", "source": "b", "x": 1}]}']
)
def test_a_file_that_is_not_ours_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(StateError, match=r"tables\.json cannot be read: .*\nhint: restore it, or remove it"):
        NoteFile(tmp_path).load()


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=r"cannot be written: .*\nhint: make room"):
        NoteFile(tmp_path / "file").save({KEY: NOTE})
