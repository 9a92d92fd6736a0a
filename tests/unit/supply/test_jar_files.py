"""What jars say of themselves, and that the lock has all that are delivered, byte for byte."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import re
import zipfile
from pathlib import Path

import pytest

from kuvasz.lake.java import versions
from supply import jar, jar_files
from supply.jar import Jar

LOCKED = jar.read(jar_files.LOCK.read_text("utf-8"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A jar into which another was put."""
    made = tmp_path / "core-1.2-shaded.jar"
    with zipfile.ZipFile(made, "w") as archive:
        for group, artifact, version in (("org.g", "core", "1.2"), ("org.h", "other", "3"), ("org.s", "unused", "1")):
            text = f"#a date\nartifactId={artifact}\ngroupId={group}\nversion={version}\n"
            archive.writestr(f"META-INF/maven/{group}/{artifact}/pom.properties", text)
    return made


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_a_jar_says_whose_it_is_and_what_lies_in_it(file: Path) -> None:
    own = Jar(
        holder="pyspark", group="org.g", artifact="core", version="1.2", classifier="shaded", sha256=sha256(file)
    )
    assert list(jar_files.jars_of(file, "pyspark", {})) == [
        own,
        Jar(holder=own.purl, group="org.h", artifact="other", version="3"),
    ]


def test_a_jar_that_says_nothing_keeps_the_group_that_is_known(tmp_path: Path) -> None:
    file = tmp_path / "a_2.13-1.0-b.jar"
    with zipfile.ZipFile(file, "w"):
        pass
    found = list(jar_files.jars_of(file, "pyspark", {"a": "org.no", "a_2.13": "org.yes", "a_2.13-x": "org.no"}))
    assert found == [Jar(holder="pyspark", group="org.yes", artifact="a_2.13", version="1.0-b", sha256=sha256(file))]
    with pytest.raises(ValueError, match=re.escape("a_2.13-1.0-b.jar does not say its group")):
        list(jar_files.jars_of(file, "pyspark", {"a": "org.no"}))


def test_the_lock_has_the_jars_that_kuvasz_names() -> None:
    assert {one.coordinate: one.sha256 for one in LOCKED if one.holder.startswith("kuvasz")} == versions.SHA256
    assert {one.coordinate for one in LOCKED if one.holder == jar.KUVASZ_S3} == {*versions.AWS}


def test_the_lock_has_the_jars_of_spark() -> None:
    """By what the wheel says of its files. `make jar-lock` writes the lock anew."""
    files = importlib.metadata.files("pyspark")
    assert files is not None
    found = {
        base64.urlsafe_b64decode(f"{one.hash.value}=").hex()
        for one in files
        if one.suffix == ".jar" and "jars" in one.parts and one.hash is not None
    }
    assert len(found) > 200
    assert {one.sha256 for one in LOCKED if one.holder == jar.PYSPARK} == found


def test_the_lock_has_what_lies_in_the_jars_that_were_fetched() -> None:
    found = set(jar_files.of_kuvasz(versions.CORE, jar.KUVASZ))
    holders = {jar.KUVASZ, *(one.purl for one in found if not one.is_inside)}
    assert {one for one in LOCKED if one.holder in holders} == found
    assert any(one.is_inside for one in found)
