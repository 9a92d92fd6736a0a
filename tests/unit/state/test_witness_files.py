"""The positions that tables once had, in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.errors import StateError
from kuvasz.state.witness_files import FOLDER, WitnessFiles


def test_there_is_a_file_for_each_table_of_which_there_is_something_to_note(tmp_path: Path) -> None:
    witness = WitnessFiles(tmp_path)
    witness.known("shop.items")
    witness.note("shop.items", {})
    witness.drop("shop.items", "eu")
    assert not (tmp_path / FOLDER).exists(), "nothing to note"
    witness.note("shop.items", {"eu": 10})
    witness.note("shop.others/x", {"eu": 5})
    assert len(list((tmp_path / FOLDER).iterdir())) == 2


def test_what_cannot_be_read_or_written_is_no_witness(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    witness = WitnessFiles(tmp_path)
    witness.note("shop.items", {"eu": 10})
    (file,) = (tmp_path / FOLDER).iterdir()
    file.write_text("{")
    assert WitnessFiles(tmp_path).known("shop.items") == {}
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    cut_off = WitnessFiles(blocked)
    for number in range(10):  # of each commit of each table
        cut_off.note(f"shop.items{number % 2}", {"eu": 10 + number})
    assert [record.event for record in caplog.records] == ["witness_failed"]  # type: ignore[attr-defined]


def test_a_file_that_cannot_be_read_now_is_not_one_that_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """That a table was set back while kuvasz was stopped may be known by it alone."""
    WitnessFiles(tmp_path).note("shop.items", {"eu": 10})
    (file,) = (tmp_path / FOLDER).iterdir()
    file.rename(tmp_path / "aside")
    file.mkdir()
    witness = WitnessFiles(tmp_path)
    for ask in (witness.known, witness.given_up):
        with pytest.raises(StateError, match="cannot be read: is a directory"):
            ask("shop.items")
    witness.note("shop.items", {"eu": 5})
    witness.drop("shop.items", "eu")
    assert [record.event for record in caplog.records] == ["witness_failed"]  # type: ignore[attr-defined]
    file.rmdir()
    (tmp_path / "aside").rename(file)
    assert witness.known("shop.items") == {"eu": 10}
