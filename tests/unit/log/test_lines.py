from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kuvasz import log
from kuvasz.log import lines

URL = "postgresql://u:hunter2secret@h/db"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    log.set_up("plain", [])


@pytest.fixture
def logger() -> logging.Logger:
    return logging.getLogger("kuvasz.some.part")


def test_json_lines_carry_the_facts(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    log.set_up("json", [])
    logger.info("committed", extra={"event": "committed", "rows": 3, "positions": {"eu": "0/1"}})
    logger.debug("not shown")
    (line,) = capsys.readouterr().err.splitlines()
    found = json.loads(line)
    assert found.pop("at").endswith("+00:00")
    assert found == {
        "level": "info",
        "message": "committed",
        "event": "committed",
        "rows": 3,
        "positions": {"eu": "0/1"},
    }


def test_plain_lines_put_errors_below(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    log.set_up("plain", [])
    logger.warning("a table stops", extra={"event": "failed", "table": "t", "error": "no\nhint: do this"})
    first, *rest = capsys.readouterr().err.splitlines()
    assert first[8:] == " warning a table stops table=t"
    assert rest == ["    no", "    hint: do this"]


@pytest.mark.parametrize("log_format", ["plain", "json"])
def test_tracebacks_are_shown(logger: logging.Logger, capsys: pytest.CaptureFixture[str], log_format: str) -> None:
    log.set_up(log_format, [])
    try:
        raise ZeroDivisionError("oops")
    except ZeroDivisionError:
        logger.exception("a bug")
    assert "ZeroDivisionError: oops" in capsys.readouterr().err


@pytest.mark.parametrize("log_format", ["plain", "json"])
def test_secrets_never_show(logger: logging.Logger, capsys: pytest.CaptureFixture[str], log_format: str) -> None:
    log.set_up(log_format, ["hunter2secret"])
    logger.warning("cannot reach %s", URL, extra={"error": f"at {URL}", "nested": {"url": [URL]}})
    try:
        raise ValueError(URL)
    except ValueError:
        logger.exception("failed")
    text = capsys.readouterr().err
    assert "hunter2secret" not in text
    assert "cannot reach" in text


def test_setting_up_again_replaces(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    log.set_up("plain", [])
    log.set_up("json", [])
    logger.info("once")
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("log_format", "is_tty", "live"), [("auto", True, True), ("auto", False, False), ("json", True, False)]
)
def test_live_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch, log_format: str, is_tty: bool, live: bool) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_tty)
    assert log.is_live(log_format) is live


def test_beside_live_lines_what_they_show_is_not_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(lines, "is_live", lambda _: True)
    log.set_up("auto", [])
    logger = logging.getLogger("kuvasz.app")
    logger.info("changes of a source", extra={"event": "changes"})
    logger.info("table copied", extra={"event": "copied"})
    told = capsys.readouterr().err
    assert "table copied" in told
    assert "changes" not in told


def test_a_file_has_all_lines_in_the_place_of_stderr(
    logger: logging.Logger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.set_up("auto", ["hunter2secret"], file=tmp_path / "kuvasz.log")
    logger.info("changes of a source", extra={"event": "changes", "url": URL})
    assert capsys.readouterr().err == ""
    (line,) = (tmp_path / "kuvasz.log").read_text().splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d info    changes of a source url=\S+", line)
    assert "hunter2secret" not in line


def test_beside_live_lines_the_news_are_on_the_terminal_too(
    monkeypatch: pytest.MonkeyPatch, logger: logging.Logger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lines, "is_live", lambda _: True)
    log.set_up("auto", [], file=tmp_path / "kuvasz.log")
    logger.info("changes of a source", extra={"event": "changes"})
    logger.info("table copied", extra={"event": "copied"})
    assert "changes" not in (err := capsys.readouterr().err)
    assert "table copied" in err
    assert len((tmp_path / "kuvasz.log").read_text().splitlines()) == 2


def test_nothing_below_the_level_is_told(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    log.set_up("plain", [], level="warning")
    logger.info("an end")
    log.set_level("debug")
    logger.debug("a commit")
    log.set_level("error")
    logger.warning("overcome")
    assert [line[17:] for line in capsys.readouterr().err.splitlines()] == ["a commit"]


def test_what_becomes_secret_later_never_shows_either(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    log.set_up("plain", [])
    log.hide({"another-one"})
    logger.warning("it is another-one")
    assert capsys.readouterr().err.endswith("it is ***\n")
