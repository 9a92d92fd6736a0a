"""Erasures that were asked for are known until they are done, and after that, over every end of kuvasz."""

from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.admin.erasures.erasure_book import ErasureBook, ErasureOrder
from kuvasz.errors import StateError

ROW = ErasureOrder(sid="de", table="shop.items", key=("4711", "x"), with_tags=True, with_unclear=True)


def test_one_is_due_until_it_has_ended(tmp_path: Path) -> None:
    assert (ErasureBook(tmp_path).all(), ErasureBook(tmp_path).due()) == ([], [])
    noted = ErasureBook(tmp_path).note(ROW, "ann")
    name = noted["id"]
    assert (noted["state"], noted["by"], noted["table"], "key" in noted) == ("waiting", "ann", "shop.items", False)
    assert ErasureBook(tmp_path).due() == [name]
    assert ErasureBook(tmp_path).begin(name) == ROW
    assert ErasureBook(tmp_path).begin(name) == ROW, "kuvasz was killed meanwhile"
    assert ErasureBook(tmp_path).due() == [name]
    ErasureBook(tmp_path).done(name, {"is_clean": True})
    assert ErasureBook(tmp_path).due() == []
    (listed,), found = ErasureBook(tmp_path).all(), ErasureBook(tmp_path).find(name)
    assert found is not None
    assert (found["state"], found["receipt"], "receipt" in listed) == ("done", {"is_clean": True}, False)
    assert listed["ended_at"] >= listed["asked_at"]


def test_the_key_of_a_row_is_on_the_disk_only_as_long_as_it_takes(tmp_path: Path) -> None:
    def texts() -> str:
        return "".join(path.read_text() for path in tmp_path.rglob("*.json"))

    book = ErasureBook(tmp_path)
    name = book.note(ROW, "ann")["id"]
    assert "4711" in texts()
    assert {path.stat().st_mode & 0o077 for path in tmp_path.rglob("*.json")} == {0}
    book.failed(name, "no such row", "look again")
    assert "4711" not in texts()
    found = book.find(name)
    assert found is not None
    assert (found["state"], found["error"], found["hint"]) == ("failed", "no such row", "look again")


def test_an_id_names_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "erasures").mkdir()
    (tmp_path / "erasures" / "receipt.json").write_text("{}")
    assert ErasureBook(tmp_path).find("../receipt") is None
    assert ErasureBook(tmp_path).find("20261127T093000-5f0c2a91") is None


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    book = ErasureBook(tmp_path)
    book.note(ROW, "ann")
    (file,) = (tmp_path / "erasures" / "asked").iterdir()
    file.write_text("{")
    with pytest.raises(StateError, match=file.name):
        book.due()
