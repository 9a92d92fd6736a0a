"""The positions that tables once had, in files."""

from __future__ import annotations

from pathlib import Path

import pytest

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
