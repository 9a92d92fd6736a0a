"""What is installed is locked: every package with the hashes of its files, and every wish of pyproject.toml met."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = {"run": [], **PROJECT["optional-dependencies"]}


def _pins(lock: Path) -> dict[str, set[Version]]:
    pins: dict[str, set[Version]] = {}
    text = lock.read_text("utf-8")
    for name, version in re.findall(r"^([A-Za-z0-9._-]+)(?:\[.*])?==([^ ;\\]+)", text, re.MULTILINE):
        pins.setdefault(canonicalize_name(name), set()).add(Version(version))
    return pins


def test_there_is_a_lock_for_each_set_of_packages() -> None:
    assert {lock.stem for lock in LOCKS} == {"build", *EXTRAS}


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
