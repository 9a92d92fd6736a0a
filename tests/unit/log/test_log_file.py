"""The log's file: who may read it, how it is rotated, and what happens where it cannot be written."""

from __future__ import annotations

import logging
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kuvasz import log
from kuvasz.errors import ConfigError

logger = logging.getLogger("kuvasz.some.part")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "logs" / "kuvasz.log"
    log.set_up("plain", [], file=made)
    yield made
    log.set_up("plain", [])


def said(file: Path) -> list[str]:
    return [line[28:] for line in file.read_text().splitlines()]


def test_its_owner_alone_reads_it(file: Path) -> None:
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_who_may_read_one_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "kuvasz.log"
    file.write_text("before\n")
    file.chmod(0o640)
    log.set_up("plain", [], file=file)
    logger.warning("more")
    log.set_up("plain", [])
    assert (stat.S_IMODE(file.stat().st_mode), len(file.read_text().splitlines())) == (0o640, 2)


def test_one_that_was_moved_away_is_made_anew(file: Path) -> None:
    logger.warning("one")
    file.rename(file.with_suffix(".1"))
    logger.warning("two")
    assert (said(file.with_suffix(".1")), said(file)) == (["one"], ["two"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_logrotate_made_in_its_place_is_written_on(file: Path) -> None:
    logger.warning("one")
    file.rename(file.with_suffix(".1"))
    file.touch(0o640)
    logger.warning("two")
    assert said(file) == ["two"]


def test_one_that_was_cut_off_goes_on_from_its_begin(file: Path) -> None:
    logger.warning("one")
    os.truncate(file, 0)  # as copytruncate does
    logger.warning("two")
    assert said(file) == ["two"]


def test_a_line_breaks_none_and_steers_no_terminal(file: Path) -> None:
    logger.warning("one", extra={"source": "a\n2026-11-26 00:00:00 error   forged\x1b[2J"})
    assert said(file) == [r"one source=a\n2026-11-26 00:00:00 error   forged\x1b[2J"]


def test_where_it_cannot_be_written_lines_go_to_stderr(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = file.parent
    file.rename(file.with_suffix(".1"))
    folder.rename(folder.with_name("away"))
    for text in ("one", "two"):
        logger.warning(text)
    told = [line[20:] for line in capsys.readouterr().err.splitlines() if not line.startswith(" ")]
    assert told == [
        "warning one",
        f"warning the log's file cannot be written: its lines go to stderr file={file}",
        "warning two",
    ]
    folder.mkdir()
    logger.warning("three")
    assert said(file) == ["three"]


def test_a_full_disk_stops_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    log.set_up("plain", [], file="/dev/full")
    for text in ("one", "two"):
        logger.warning(text)
    log.set_up("plain", [])
    assert "no space left on device" in capsys.readouterr().err


@pytest.mark.parametrize("stderr", [None, os.devnull])
def test_a_full_disk_and_a_stderr_that_is_gone_stop_nothing(
    monkeypatch: pytest.MonkeyPatch, stderr: str | None
) -> None:
    log.set_up("plain", [], file="/dev/full")
    with Path(os.devnull).open() as unwritable:
        monkeypatch.setattr(sys, "stderr", stderr and unwritable)
        logger.warning("one")
    monkeypatch.undo()
    log.set_up("plain", [])


def test_one_that_cannot_be_made_is_refused_at_the_start(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(ConfigError, match=r"^log\.file: \S+/file/kuvasz\.log cannot be written: ") as caught:
        log.set_up("plain", [], file=blocked / "kuvasz.log")
    assert caught.value.hint == "its folder has to be there, and be writable by the user of kuvasz"
    blocked.unlink()  # as the hint says
    log.set_up("plain", [], file=blocked / "kuvasz.log")
    log.set_up("plain", [])
    assert (blocked / "kuvasz.log").exists()
