"""The file of what webhooks were told; what each store owes is in tests/contract/test_state.py."""

from __future__ import annotations

import concurrent.futures
from pathlib import Path

import pytest

from kuvasz.errors import StateError
from kuvasz.state.notices.notice_file import FILE, NoticeFile


@pytest.mark.parametrize("text", ["", "[]", '{"hook": 5}'])
def test_of_a_file_that_is_not_ours_nothing_is_known(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert NoticeFile(tmp_path).all() == {}


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    NoticeFile(tmp_path).put("hook", {"number": 1})
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0


def test_two_that_are_kept_at_once_are_both_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = NoticeFile(tmp_path)

    def keep(name: str) -> None:
        for number in range(100):
            file.put(name, {"number": number, "waiting": [name] * 50 * len(name)})

    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(keep, ["hook", "another hook"]))
    assert {name: told["number"] for name, told in NoticeFile(tmp_path).all().items()} == {
        "hook": 99, "another hook": 99,
    }  # fmt: skip
    assert caplog.records == []


def test_what_cannot_be_kept_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "state").write_text("a file in the folder's place")
    file = NoticeFile(tmp_path / "state")
    for number in range(10):  # each second
        file.put("hook", {"number": number})
    assert [record.event for record in caplog.records] == ["notices_unkept"]  # type: ignore[attr-defined]


def test_a_file_that_cannot_be_read_now_is_not_one_that_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(StateError, match="cannot be read: is a directory"):
        NoticeFile(tmp_path).all()
    NoticeFile(tmp_path).put("hook", {"number": 1})
    assert [record.event for record in caplog.records] == ["notices_unkept"]  # type: ignore[attr-defined]
    (tmp_path / FILE).rmdir()  # as the hint says
    NoticeFile(tmp_path).put("hook", {"number": 1})
    assert NoticeFile(tmp_path).all() == {"hook": {"number": 1}}
