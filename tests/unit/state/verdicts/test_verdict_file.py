"""The file of the last verdicts; what each store owes is in tests/contract/test_state.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.errors import StateError
from kuvasz.state.verdicts.verdict import Verdict
from kuvasz.state.verdicts.verdict_file import FILE, VerdictFile


@pytest.mark.parametrize("text", ["", "[]", '{"tables": 5}', '{"tables": [{"target": "shop.items"}]}'])
def test_of_a_file_that_is_not_ours_nothing_is_known(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert VerdictFile(tmp_path).all() == {}


def test_what_cannot_be_kept_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "state").write_text("a file in the folder's place")
    VerdictFile(tmp_path / "state").put({("shop.items", "eu"): Verdict(at=1.0)})
    assert [record.event for record in caplog.records] == ["verdicts_failed"]  # type: ignore[attr-defined]


def test_a_file_that_cannot_be_read_now_is_not_one_that_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """That a table differs from its source is told on after a restart."""
    differs = {("shop.items", "eu"): Verdict(at=1.0, differences=3, left=3)}
    VerdictFile(tmp_path).put(differs)
    file = tmp_path / FILE
    file.rename(tmp_path / "aside")
    file.mkdir()
    with pytest.raises(StateError, match="cannot be read: is a directory"):
        VerdictFile(tmp_path).all()
    VerdictFile(tmp_path).put({("shop.others", "eu"): Verdict(at=1.0)})
    assert [record.event for record in caplog.records] == ["verdicts_failed"]  # type: ignore[attr-defined]
    file.rmdir()
    (tmp_path / "aside").rename(file)
    assert VerdictFile(tmp_path).all() == differs
