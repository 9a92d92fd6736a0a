from __future__ import annotations

import json
from pathlib import Path

import pytest

from kuvasz.errors import StateError
from kuvasz.state.feed_file import FILE, FeedFile

FEEDS = {"shop_eu": frozenset({"shop.items", "archive.others"}), "shop_eu/*": frozenset[str]()}


def test_there_is_one_file_of_all_feeders(tmp_path: Path) -> None:
    FeedFile(tmp_path / "made" / "here").keep(FEEDS, {"shop_eu": "EU"})
    (file,) = (tmp_path / "made" / "here").iterdir()
    assert file.name == FILE
    assert json.loads(file.read_text()) == {
        "feeds": {"shop_eu": ["archive.others", "shop.items"], "shop_eu/*": []}, "sids": {"shop_eu": "EU"},
    }  # fmt: skip


def test_a_file_of_before_knows_no_sids(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"feeds": {"shop_eu": ["shop.items"]}}')
    assert FeedFile(tmp_path).sids() == {}
    FeedFile(tmp_path).keep({}, {"shop_eu": "EU"})
    assert (FeedFile(tmp_path).known(), FeedFile(tmp_path).sids()) == (
        {"shop_eu": frozenset({"shop.items"})}, {"shop_eu": "EU"},
    )  # fmt: skip


def test_a_file_that_says_so_already_is_left_alone(tmp_path: Path) -> None:
    FeedFile(tmp_path).keep(FEEDS)
    before = (tmp_path / FILE).stat().st_ino
    FeedFile(tmp_path).keep({"shop_eu": FEEDS["shop_eu"]})
    assert (tmp_path / FILE).stat().st_ino == before


@pytest.mark.parametrize("text", ["", "[]", '{"feeds": []}', '{"feeds": {"shop_eu": 5}}'])
def test_of_a_file_that_is_not_ours_nothing_is_known(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert FeedFile(tmp_path).known() == {}
    FeedFile(tmp_path).keep(FEEDS)
    assert FeedFile(tmp_path).known() == FEEDS


def test_what_cannot_be_kept_is_not_believed_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    FeedFile(tmp_path).keep(FEEDS)
    (tmp_path / "feeds.new").mkdir()  # where the next one would be written
    FeedFile(tmp_path).keep({"shop_eu": {"shop.items"}})
    assert FeedFile(tmp_path).known() == {}
    assert "which tables the sources feed could not be kept" in caplog.text


def test_what_was_known_is_not_unknown_because_the_file_cannot_be_read_now(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    feeds = FeedFile(tmp_path)
    for read in (feeds.known, feeds.sids, feeds.seen):
        with pytest.raises(StateError, match="cannot be read: is a directory"):
            read()
