"""The journal of an erasure: found again by what is asked, gone once the receipt is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kuvasz.errors import StateError
from kuvasz.lake.erasure.journal import FOLDER, Journal

ASKED = {"sid": "de", "database": None}


def test_whoever_asks_for_the_same_goes_on(tmp_path: Path) -> None:
    journal = Journal(tmp_path, ASKED)
    assert not journal.is_begun
    journal.told["begun_at"] = "now"
    journal.table("shop.items")["done"].append("look")
    journal.save()
    journal.keep("shop.items", ["a.parquet", "b.parquet"])
    again = Journal(tmp_path, dict(reversed(ASKED.items())))
    assert again.is_begun
    assert again.table("shop.items") == {"done": ["look"]}
    assert not Journal(tmp_path, {**ASKED, "sid": "fr"}).is_begun

    again.keep("shop.items", ["c.parquet"])
    assert again.kept("shop.items") == {"a.parquet", "b.parquet"}, "what there was at first"


def test_the_receipt_takes_its_place(tmp_path: Path) -> None:
    journal = Journal(tmp_path, ASKED)
    journal.table("shop.items")
    journal.save()
    journal.keep("shop.items", ["a.parquet"])
    path = journal.finish({"rows": 3}, "receipt-1")
    assert json.loads(path.read_text()) == {"rows": 3}
    assert list((tmp_path / FOLDER).iterdir()) == [path]
    assert not Journal(tmp_path, ASKED).is_begun


def test_a_journal_that_cannot_be_read_is_not_begun_anew(tmp_path: Path) -> None:
    journal = Journal(tmp_path, ASKED)
    journal.told["begun_at"] = "now"
    journal.save()
    (tmp_path / FOLDER / f"{journal.id}.json").write_text("{")
    with pytest.raises(StateError, match=r"the journal .* cannot be used"):
        Journal(tmp_path, ASKED)
