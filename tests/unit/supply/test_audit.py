from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest

from supply import audit, jar
from supply.jar import Jar
from tests.support.hole_database import HoleDatabase, hole_database

TODAY = datetime.date(2026, 1, 31)
ENTRY = '[[accepted]]\nhole = "CVE-1"\npackage = "org.g:a"\nreason = "why"\nexpires = 2026-01-31\n'


@pytest.fixture
def database() -> Iterator[HoleDatabase]:
    with hole_database() as database:
        yield database


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of locks with one package and one jar."""
    one = Jar(holder="pyspark", group="org.g", artifact="a", version="1", sha256="a" * 64)
    (tmp_path / "run.lock").write_text(f"other==3 \\\n    --hash=sha256:{'a' * 64}\n")
    (tmp_path / "jars.txt").write_text(jar.write([one]))
    (tmp_path / "accepted.toml").write_text("")
    return tmp_path


@pytest.mark.process
def test_what_has_no_hole_is_good(folder: Path, database: HoleDatabase, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.run(folder, database.url, TODAY) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"asking {database.url} for 1 Python packages and 1 jars",
        "0 open, 0 expired, 0 accepted",
    ]
    assert sorted(database.asked) == [("Maven", "org.g:a", "1"), ("PyPI", "other", "3")]


@pytest.mark.process
def test_a_hole_fails_until_it_is_accepted_and_again_when_that_is_over(folder: Path, database: HoleDatabase) -> None:
    database.add("Maven", "org.g:a", "1", id="GHSA-1", aliases=["CVE-1"])
    assert audit.run(folder, database.url, TODAY) == 1
    (folder / "accepted.toml").write_text(ENTRY)
    assert audit.run(folder, database.url, TODAY) == 0
    assert audit.run(folder, database.url, TODAY + datetime.timedelta(days=1)) == 1


def test_a_database_that_is_not_reached_is_no_success(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.run(folder, "http://127.0.0.1:1/v1/query", TODAY) == 2
    message, hint = capsys.readouterr().err.splitlines()
    assert message.startswith(
        "error: the database of holes does not answer: http://127.0.0.1:1/v1/query: org.g:a 1: "
    )
    assert hint.startswith("hint: nothing is known of the packages now: ")


def test_an_entry_that_cannot_be_read_is_no_success(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "accepted.toml").write_text(ENTRY.replace("2026-01-31", "2036-01-31"))
    assert audit.run(folder, "http://127.0.0.1:1/v1/query", TODAY) == 2
    assert capsys.readouterr().err == (
        f"error: {folder} is not read: accepted entry 1 (org.g:a, CVE-1):"
        " expires is more than a year away: 2036-01-31\n"
    )


@pytest.mark.process
def test_the_command_asks_for_all_that_is_locked(database: HoleDatabase, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main(["--osv", database.url]) == 0
    assert ("Maven", "org.postgresql:postgresql") in {key[:2] for key in database.asked}
    asked = {(name, version) for ecosystem, name, version in database.asked if ecosystem == "PyPI"}
    locks = audit.FOLDER.glob("*.lock")
    pins = [line for lock in locks for line in lock.read_text("utf-8").splitlines() if line[:1].isalnum()]
    locked = {tuple(pin.split()[0].split("==")) for pin in pins}
    assert {(name.partition("[")[0], version) for name, version in locked} == asked
    assert capsys.readouterr().out.endswith("0 open, 0 expired, 0 accepted\n")
