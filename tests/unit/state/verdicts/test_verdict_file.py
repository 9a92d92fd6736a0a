"""The file of the last verdicts; what each store owes is in tests/contract/test_state.py."""

from __future__ import annotations

from pathlib import Path

import pytest

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
