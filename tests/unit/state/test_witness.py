"""The positions that tables once had."""

from __future__ import annotations

from pathlib import Path

from kuvasz.state.witness import FOLDER, Witness


def test_it_remembers_over_restarts_until_it_is_told_to_forget(tmp_path: Path) -> None:
    witness = Witness(tmp_path)
    assert not (tmp_path / FOLDER).exists(), "nothing to note"
    witness.note("shop.items", {"eu": 10, "us": 20})
    witness.note("shop.items", {"eu": 11})
    witness.note("shop.others/x", {"eu": 5})
    again = Witness(tmp_path)
    assert again.known("shop.items") == {"eu": 11, "us": 20}
    again.drop("shop.items", "us")
    again.drop("shop.items", "nobody")
    assert Witness(tmp_path).known("shop.items") == {"eu": 11}
    assert Witness(tmp_path).known("shop.others/x") == {"eu": 5}


def test_what_cannot_be_read_or_written_is_no_witness(tmp_path: Path) -> None:
    witness = Witness(tmp_path)
    witness.note("shop.items", {"eu": 10})
    (file,) = (tmp_path / FOLDER).iterdir()
    file.write_text("{")
    assert Witness(tmp_path).known("shop.items") == {}
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    Witness(blocked).note("shop.items", {"eu": 10})
