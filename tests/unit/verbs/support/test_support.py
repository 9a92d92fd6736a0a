"""The verb where nothing runs and nothing answers: there is an archive all the same, soon."""

from __future__ import annotations

import json
import tarfile
import time
from pathlib import Path

import pytest

from kuvasz import cli
from kuvasz.state.ports import ServerAddress
from kuvasz.state.store import state_of
from kuvasz.verbs.support import findings, support
from kuvasz.verbs.support.part import PartFiles
from tests.support.maps import SHOP, loaded

MAP = "server: {address: '127.0.0.1:1'}\n" + SHOP.replace("eu1/", "127.0.0.1:1/")


def contents(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {Path(one.name).name: archive.extractfile(one).read().decode() for one in archive}  # type: ignore[union-attr]


def test_everything_is_away_and_the_archive_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    loaded(tmp_path, MAP)
    with pytest.raises(SystemExit) as end:
        cli.main(["support", "--config", "map.yaml", "--json", "--output", "here.tar.gz"])
    assert not end.value.code
    told = json.loads(capsys.readouterr().out)
    assert told["path"] == "here.tar.gz"
    missing = {part["part"] for part in told["parts"] if not part["files"]}
    assert missing == {"running", "metrics", "stacks", "java", "log", "state"}
    files = contents(tmp_path / "here.tar.gz")
    assert "MISSING" in files["MANIFEST.txt"]
    assert "geheim" not in json.dumps(files)
    assert not (tmp_path / ".kuvasz").exists(), "nothing is made by being looked at"


def test_the_log_that_the_map_names_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "kuvasz.log").write_text("2026-11-26 00:00:00 info    serving url=http://127.0.0.1:1\n")
    made = support.run(loaded(tmp_path, f"log: {{file: kuvasz.log}}\n{MAP}"), tmp_path / "one.tar.gz")
    assert contents(made.path)["log.txt"].endswith("serving url=http://127.0.0.1:1\n")


def test_the_token_is_taken_out_wherever_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = loaded(tmp_path, MAP)
    state_of(given.config).address.leave(ServerAddress(url="http://127.0.0.1:1", token="a-Token-of-24"))
    monkeypatch.setattr(findings, "gather", lambda _: PartFiles(files={"check.txt": "a-Token-of-24 and geheim-1"}))
    made = support.run(given, tmp_path / "one.tar.gz")
    assert "a-Token-of-24" not in json.dumps(contents(made.path))


def test_what_hangs_is_left_and_the_command_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = loaded(tmp_path, MAP)
    monkeypatch.setattr(support, "_ANSWER_S", 2.0)
    monkeypatch.setattr(findings, "gather", lambda _: time.sleep(8))
    begin = time.monotonic()
    made = support.run(given, tmp_path / "one.tar.gz")
    assert time.monotonic() - begin < 7.5
    assert made.is_under_way
    assert "check" in support.render(made)
    (line,) = [line for line in made.lines if line.part == "check"]
    assert line.missing == ("it was not there within 2 s",)
