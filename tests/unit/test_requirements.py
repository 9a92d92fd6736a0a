"""What is installed is locked: every package with the hashes of its files, and every wish of pyproject.toml met."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from kuvasz.lake.java import versions

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = {"run": [], **PROJECT["optional-dependencies"]}


#: Package -> the first version without the holes that are known of it; what is asked for may not be older.
WITHOUT_HOLES = {
    "aiohttp": "3.14",  # CVE-2025-53643 (3.12.14) and later ones; `kuvasz.admin.door` has its limits
    "pyarrow": "14.0.1",  # CVE-2023-47248
    "ruamel-yaml": "0.15",  # loads what the YAML says to
}


#: The same of jars.
JARS_WITHOUT_HOLES = {
    "org.postgresql:postgresql": "42.7.12",  # CVE-2026-42198 (42.7.11), CVE-2026-54291
    "org.xerial:sqlite-jdbc": "3.41.2.2",  # CVE-2023-32697
}


def _pins(lock: Path) -> dict[str, set[Version]]:
    pins: dict[str, set[Version]] = {}
    text = lock.read_text("utf-8")
    for name, version in re.findall(r"^([A-Za-z0-9._-]+)(?:\[.*])?==([^ ;\\]+)", text, re.MULTILINE):
        pins.setdefault(canonicalize_name(name), set()).add(Version(version))
    return pins


@pytest.mark.parametrize("name", WITHOUT_HOLES)
def test_nothing_older_than_a_hole_that_was_mended_is_asked_for(name: str) -> None:
    asked = [one for one in map(Requirement, PROJECT["dependencies"]) if canonicalize_name(one.name) == name]
    assert asked
    for requirement in asked:
        bounds = [Version(one.version) for one in requirement.specifier if one.operator in {">=", "=="}]
        assert bounds, f"{requirement} has no lower bound"
        assert max(bounds) >= Version(WITHOUT_HOLES[name])


def test_no_jar_is_older_than_a_hole_that_was_mended() -> None:
    found = dict(coordinate.rsplit(":", 1) for coordinate in versions.CORE)
    assert {name for name, first in JARS_WITHOUT_HOLES.items() if Version(found[name]) < Version(first)} == set()


def test_whatever_is_asked_for_has_a_lower_bound() -> None:
    bare = [one for one in map(Requirement, PROJECT["dependencies"]) if not any(
        bound.operator in {">=", "=="} for bound in one.specifier)]  # fmt: skip
    assert bare == []


def test_there_is_a_lock_for_each_set_of_packages() -> None:
    assert {lock.stem for lock in LOCKS} == {"build", "installer", *EXTRAS}


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_lock_has_what_the_project_asks_for(extra: str) -> None:
    pins = _pins(ROOT / "requirements" / f"{extra}.lock")
    for requirement in map(Requirement, PROJECT["dependencies"] + EXTRAS[extra]):
        found = pins.get(canonicalize_name(requirement.name), set())
        assert found, f"{requirement} is not locked: make lock KEEP=1"
        assert all(version in requirement.specifier for version in found), f"{requirement} is locked as {found}"


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_a_lock_names_hashes_and_no_index(lock: Path) -> None:
    blocks = re.split(r"^(?=[A-Za-z0-9])", lock.read_text("utf-8"), flags=re.MULTILINE)[1:]
    assert blocks
    assert [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block] == []
    assert re.search(r"://|index-url|find-links|trusted-host", lock.read_text("utf-8")) is None


def test_the_smaller_sets_have_the_versions_that_are_tested() -> None:
    tested = _pins(ROOT / "requirements" / "dev.lock")
    for lock in LOCKS:
        assert {name: pins for name, pins in _pins(lock).items() if tested.get(name, pins) != pins} == {}
