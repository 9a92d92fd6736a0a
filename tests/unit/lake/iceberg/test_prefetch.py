"""What is fetched and made beforehand, and that a start does without what could not be."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from kuvasz.lake.iceberg import prefetch
from kuvasz.lake.java import jars, versions
from kuvasz.lake.jvm import spark


class World:
    """A JVM that writes the archive that it is told to, or fails."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.fetched: list[Any] = []
        self.ran: list[list[str]] = []
        self.error: Exception | None = None
        monkeypatch.setattr(spark, "fetch", self.fetched.append)
        monkeypatch.setattr(jars, "class_path", lambda coordinates: f"path-{len(coordinates)}")
        monkeypatch.setattr(prefetch, "archive_of", lambda path: folder / f"classes-{path}.jsa")
        monkeypatch.setattr(prefetch, "option_to_make", lambda made: f"-make={made}")
        monkeypatch.setattr(prefetch.subprocess, "run", self._run)
        monkeypatch.setattr(prefetch, "__spec__", type("Spec", (), {"name": "prefetch"}), raising=False)

    def _run(self, command: list[str], env: dict[str, str], **_: Any) -> None:
        self.ran.append(command)
        Path(env["SPARK_SUBMIT_OPTS"].rpartition("-make=")[2]).write_text("half")
        if self.error is not None:
            raise self.error

    @property
    def archives(self) -> list[str]:
        return sorted(file.name for file in self.folder.iterdir())


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


CORE = f"classes-path-{len(versions.CORE)}.jsa"
BOTH = sorted([CORE, f"classes-path-{len(versions.CORE + versions.AWS)}.jsa"])


def test_jars_are_fetched_and_an_archive_made_for_each_class_path(world: World) -> None:
    prefetch.main([])
    assert (world.fetched, world.archives) == ([versions.CORE], [CORE])
    prefetch.main(["--aws"])
    assert world.fetched[-1] == versions.CORE + versions.AWS
    assert world.archives == BOTH


def test_an_archive_that_is_there_is_not_made_again(world: World) -> None:
    prefetch.main(["--aws"])
    prefetch.main(["--aws"])
    assert len(world.ran) == 2


def test_archives_of_other_jars_go(world: World) -> None:
    (world.folder / "classes-old.jsa").write_text("of jars that went")
    prefetch.main([])
    assert world.archives == [CORE]


@pytest.mark.parametrize("error", [OSError("no room"), subprocess.CalledProcessError(1, "java")])
def test_one_that_cannot_be_made_is_told_and_leaves_nothing(
    world: World, error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    world.error = error
    prefetch.main([])
    assert world.archives == []
    assert "no archive of classes was made, so a start takes longer: " in capsys.readouterr().err


def test_a_rehearsal_is_all_that_is_done_where_that_is_asked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    rehearsed: list[str] = []
    monkeypatch.setattr(prefetch, "rehearse", rehearsed.append)
    prefetch.main(["--rehearse", "a.jar"])
    assert (rehearsed, world.fetched) == (["a.jar"], [])
