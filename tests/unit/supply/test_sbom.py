"""The bill of materials: it is CycloneDX, has all that is locked, and is the same each time."""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from kuvasz.lake.java import versions
from supply import sbom

pytestmark = pytest.mark.text


@pytest.fixture(scope="module")
def text() -> str:
    """The bill: it takes two seconds, so each worker that has none of these tests does without."""
    return sbom.bill(sbom.ROOT)


@pytest.fixture(scope="module")
def document(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.fixture(scope="module")
def components(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["purl"]: one for one in document["components"]}


def hashes(one: dict[str, Any]) -> set[str]:
    return {found["content"] for found in one.get("hashes", []) if found["alg"] == "SHA-256"}


def test_it_is_what_cyclonedx_says(text: str) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


@pytest.mark.parametrize("lock", sbom.LOCKS)
def test_every_locked_package_is_in_it_with_its_hashes(lock: str, components: dict[str, dict[str, Any]]) -> None:
    locked = (sbom.ROOT / "requirements" / f"{lock}.lock").read_text("utf-8")
    blocks = re.split(r"^(?=[A-Za-z0-9])", locked, flags=re.MULTILINE)[1:]
    assert blocks
    for block in blocks:
        name, version = re.split(r"==|[\s;]", re.sub(r"\[.*?]", "", block))[:2]
        one = components[f"pkg:pypi/{name}@{version}"]
        (files,) = one["externalReferences"]
        assert hashes(files) == set(re.findall(r"sha256:([0-9a-f]{64})", block)), name
        assert {"name": "kuvasz:lock", "value": lock} in one["properties"]


def test_every_jar_is_in_it_with_its_digest(components: dict[str, dict[str, Any]]) -> None:
    for coordinate, digest in versions.SHA256.items():
        group, artifact, version = coordinate.split(":")
        assert hashes(components[f"pkg:maven/{group}/{artifact}@{version}"]) == {digest}
    of_spark = [one for one in components.values() if {"name": "kuvasz:of", "value": "pyspark"} in one["properties"]]
    assert len(of_spark) > 200
    assert all(len(hashes(one)) == 1 for one in of_spark)


def test_nothing_is_in_it_that_only_develops(components: dict[str, dict[str, Any]]) -> None:
    assert not {one["name"] for one in components.values()} & {"pytest", "moto", "pip-audit"}


def test_everything_is_there_for_something(document: dict[str, Any], components: dict[str, dict[str, Any]]) -> None:
    needs = {one["ref"]: one.get("dependsOn", []) for one in document["dependencies"]}
    reached: set[str] = set()
    left = [document["metadata"]["component"]["bom-ref"]]
    while left:
        one = left.pop()
        if one not in reached:
            reached.add(one)
            left += needs.get(one, [])
    assert {one["bom-ref"] for one in components.values()} - reached == set()


@pytest.mark.process
def test_it_is_the_same_in_another_process_and_says_a_time_only_if_it_is_told(
    tmp_path: Path, text: str, document: dict[str, Any]
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    file = tmp_path / "new" / "bill.json"
    command = [sys.executable, "-m", "supply.sbom", str(file)]
    subprocess.run(command, cwd=sbom.ROOT, env=environment | {"PYTHONHASHSEED": "7"}, check=True, capture_output=True)
    assert file.read_text("utf-8") == text
    assert "timestamp" not in document["metadata"]
    told = json.loads(sbom.bill(sbom.ROOT, datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)))
    assert told["metadata"].pop("timestamp") == "2026-01-02T00:00:00+00:00"
    assert told == document
