from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.errors import StateError
from kuvasz.parking.reach import Reach, ReachFile

FIRST, SECOND = Reach("f" * 32, 0x1100), Reach("e" * 32, 7)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "reach" / "eu" / "items.json"


def test_the_last_note_counts_and_the_next_process_finds_it(path: Path) -> None:
    kept = ReachFile(path)
    assert kept.read() is None
    for reach in (FIRST, SECOND, FIRST):
        kept.note(reach)
        assert ReachFile(path).read() == reach
    kept.note(SECOND)
    kept.remove()
    kept.remove()
    assert ReachFile(path).read() is None


@pytest.mark.parametrize("text", ["", "\0" * 128, "[]", '{"log": "a"}', '{"log": "a", "last": "x"}', "\udcff"])
def test_what_nobody_can_make_sense_of_says_nothing(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert ReachFile(path).read() is None
    kept = ReachFile(path)
    kept.note(FIRST)
    assert kept.read() == FIRST


def test_what_cannot_be_noted_ends_nothing(path: Path) -> None:
    path.parent.parent.write_text("no folder")
    kept = ReachFile(path)
    kept.note(FIRST)
    assert kept.read() is None
    kept.remove()


def test_what_cannot_be_read_or_removed_is_told(path: Path) -> None:
    path.mkdir(parents=True)
    kept = ReachFile(path)
    with pytest.raises(StateError, match=r"items\.json cannot be read: is a directory"):
        kept.read()
    with pytest.raises(StateError, match=r"items\.json cannot be removed"):
        kept.remove()
