from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.errors import ConfigError
from kuvasz.lake.java import runtime


def java(home: Path, release: str | None) -> Path:
    """Make a folder that looks like a Java's."""
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(mode=0o755)
    if release is not None:
        (home / "release").write_text(release)
    return home


GOOD = 'JAVA_VERSION="21.0.5"\nMODULES="java.base jdk.incubator.vector java.sql"\n'


@pytest.mark.parametrize(
    ("release", "found"), [(GOOD, "java 21"), (None, "java ?"), ('JAVA_VERSION="17"\n', "java 17")]
)
def test_a_java_that_will_do_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str | None, found: str
) -> None:
    home = java(tmp_path / "java", release)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert runtime.prove() == f"{found} in {home}"
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(home / "bin"))
    assert runtime.prove() == f"{found} in {home}"


@pytest.mark.parametrize(
    ("release", "message"),
    [
        ('JAVA_VERSION="11.0.2"\n', "java 11 in {home}: 17 or later is needed"),
        ('JAVA_VERSION="1.8.0_402"\n', "java 8 in {home}: 17 or later is needed"),
        ('JAVA_VERSION="17"\nMODULES="java.base"\n', "the java in {home} lacks the module jdk.incubator.vector"),
    ],
)
def test_a_java_that_will_not_do_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, message: str
) -> None:
    home = java(tmp_path / "java", release)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(ConfigError) as told:
        runtime.prove()
    assert told.value.message == message.format(home=home)
    assert told.value.hint.startswith("install Java 17 or 21 ")


def test_no_java_at_all_is_wrong_usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=f"^no java: JAVA_HOME is {tmp_path}, and has no bin/java\n"):
        runtime.prove()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"^no java: JAVA_HOME is not set, and PATH has none\n") as told:
        runtime.prove()
    assert told.value.exit_code == 2
