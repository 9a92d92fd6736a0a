from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kuvasz.lake.java.class_archive import archive_of


def java(folder: Path, version: str) -> Path:
    folder.mkdir()
    (folder / "release").write_text(f'JAVA_VERSION="{version}"')
    return folder


def test_an_archive_belongs_to_its_class_path_and_lies_in_the_environment() -> None:
    archive = archive_of(os.pathsep.join(["/cache/a.jar", "/other/b.jar"]))
    assert archive.is_relative_to(sys.prefix)
    assert archive != archive_of(os.pathsep.join(["/cache/a.jar", "/other/c.jar"]))


def test_an_archive_belongs_to_the_jars_as_they_were(tmp_path: Path) -> None:
    jar = tmp_path / "a.jar"
    jar.write_text("one")
    old = archive_of(str(jar))
    assert archive_of(str(jar)) == old
    os.utime(jar, (1, 1))
    assert archive_of(str(jar)) != old


def test_an_archive_belongs_to_one_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    its_own = archive_of("/a.jar")
    (tmp_path / "jars").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    other = archive_of("/a.jar")
    (tmp_path / "jars" / "more.jar").touch()
    os.utime(tmp_path / "jars", (1, 1))
    assert len({its_own, other, archive_of("/a.jar")}) == 3


def test_an_archive_belongs_to_one_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "17", "17.0.1")))
    old = archive_of("/a.jar")
    (tmp_path / "17" / "release").write_text('JAVA_VERSION="17.0.2"')
    updated = archive_of("/a.jar")
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "21", "17.0.2")))
    assert len({old, updated, archive_of("/a.jar")}) == 3


def test_java_is_found_as_spark_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = java(tmp_path / "17", "17.0.1")
    (home / "bin").mkdir()
    (home / "bin" / "java").touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    named = archive_of("/a.jar")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(home / "bin"))
    assert archive_of("/a.jar") == named
    monkeypatch.setenv("PATH", str(tmp_path))
    assert archive_of("/a.jar") != named, "and without any nothing is wrong yet"
