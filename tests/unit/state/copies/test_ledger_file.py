"""The ledger of a copy: what is on the disk after each part, and what counts for nothing."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from kuvasz.errors import StateError
from kuvasz.state.copies import ledger_file
from kuvasz.state.copies.ledger_file import FOLDER, FRESH_S, LedgerFile, parts_of
from kuvasz.state.ports import LedgerDocument

HEAD = {"lsn": 7, "made_for": "x"}


def ledger(folder: Path, target: str = "shop.items", source: str = "eu") -> LedgerFile:
    return LedgerFile(folder, target, source)


def entries(found: LedgerDocument | None) -> tuple[int, dict[int, str], float]:
    assert found is not None
    return found.head["lsn"], dict(found.parts), found.seconds


def the_file(folder: Path) -> Path:
    (file,) = (folder / FOLDER).glob("*.jsonl")
    return file


def begun(folder: Path) -> LedgerFile:
    one = ledger(folder)
    one.begin(HEAD, {})
    one.note(3, "three\n", 1.5)
    one.note(0, "zero", 2.25)
    return one


def test_what_was_noted_is_there_for_the_next_process(tmp_path: Path) -> None:
    assert (ledger(tmp_path).read(), ledger(tmp_path).is_there) == (None, False)
    begun(tmp_path)
    assert entries(ledger(tmp_path).read()) == (7, {3: "three\n", 0: "zero"}, 2.25)
    again = ledger(tmp_path)
    again.go_on()
    again.note(5, "five", 9.0)
    assert entries(ledger(tmp_path).read()) == (7, {3: "three\n", 0: "zero", 5: "five"}, 9.0)
    assert ledger(tmp_path, source="us").read() is None
    assert ledger(tmp_path, target="shop.others").read() is None


def test_one_that_begins_anew_says_nothing_of_before(tmp_path: Path) -> None:
    begun(tmp_path)
    one = ledger(tmp_path)
    one.begin({"lsn": 8}, {1: "one"}, 4.0)
    assert entries(ledger(tmp_path).read()) == (8, {1: "one"}, 4.0)


def test_one_that_was_removed_takes_no_notes(tmp_path: Path) -> None:
    mine, other = begun(tmp_path), ledger(tmp_path)
    other.remove()
    mine.note(4, "four", 3.0)
    assert list((tmp_path / FOLDER).iterdir()) == []
    mine.remove()
    mine.note(4, "four", 3.0)
    assert ledger(tmp_path).read() is None


def test_a_line_that_is_torn_counts_for_nothing(tmp_path: Path) -> None:
    begun(tmp_path)
    whole = the_file(tmp_path).read_text()
    the_file(tmp_path).write_text(whole[:-6])
    one = ledger(tmp_path)
    assert entries(one.read())[1] == {3: "three\n"}
    one.go_on()
    one.note(1, "one", 3.0)  # it ends up on the torn line
    one.note(2, "two", 3.0)
    assert entries(one.read())[1] == {3: "three\n", 2: "two"}


@pytest.mark.parametrize("head", ["", "{", "[]", "7", '{"version": 2, "target": "shop.items", "source": "eu"}'])
def test_a_file_of_something_else_counts_for_nothing(tmp_path: Path, head: str) -> None:
    begun(tmp_path)
    lines = the_file(tmp_path).read_text().split("\n")
    the_file(tmp_path).write_text("\n".join([head, *lines[1:]]))
    assert ledger(tmp_path).read() is None
    begun(tmp_path)
    assert ledger(tmp_path).read() is not None


def test_a_file_that_nobody_wrote_to_for_a_week_counts_for_nothing(tmp_path: Path) -> None:
    begun(tmp_path)
    assert list(parts_of(tmp_path, "shop.items")) == ["three\n", "zero"]
    before = time.time() - FRESH_S - 60
    os.utime(the_file(tmp_path), (before, before))
    assert (ledger(tmp_path).is_there, ledger(tmp_path).read()) == (False, None)
    assert list(parts_of(tmp_path, "shop.items")) == []


def test_parts_are_those_of_all_sources_of_a_table(tmp_path: Path) -> None:
    assert list(parts_of(tmp_path, "shop.items")) == []
    for source, target in (("eu", "shop.items"), ("us", "shop.items"), ("eu", "shop.others")):
        one = ledger(tmp_path, target, source)
        one.begin(HEAD, {})
        one.note(0, f"{source} {target}", 0.0)
    (tmp_path / FOLDER / "junk.jsonl").write_text(json.dumps([1]))
    assert sorted(parts_of(tmp_path, "shop.items")) == ["eu shop.items", "us shop.items"]


def test_a_disk_without_room_costs_notes_and_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = begun(tmp_path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(ledger_file.os, "fsync", full)
        one.note(4, "four", 3.0)
        ledger(tmp_path, source="us").begin(HEAD, {})
    one.note(5, "five", 3.0)
    found = entries(ledger(tmp_path).read())[1]
    assert 5 not in found, "nothing comes behind a line that may be torn"
    assert {3, 0} <= found.keys()


def test_one_that_cannot_be_removed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = begun(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(StateError, match="cannot be removed: permission denied"):
        one.remove()
