"""The version of kuvasz before this one, taken from the history of the repository, run by the same Python.

It is the newest tag before this commit, or the commit below while there is no tag; BEFORE= names another one.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support import scratch

ROOT = Path(__file__).parents[2]

#: Of a time without tags: what users had before notes of hidden defaults, reaches of parking logs and sealing.
_COMMIT = "ce24d8edf9ab911d598c482b919f025f363214b5"


def _git(*arguments: str) -> bytes | None:
    """Return what git says; None: it refuses, or is not there."""
    try:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def name() -> str:
    """Return what git calls the version before."""
    tag = _git("describe", "--tags", "--abbrev=0", "HEAD^")
    return os.environ.get("BEFORE") or (_COMMIT if tag is None else tag.decode().strip())


@pytest.fixture(scope="session")
def version_before() -> Iterator[Mapping[str, str]]:
    """The environment in which `python -m kuvasz` is the version before."""
    packed = _git("archive", name(), "kuvasz")
    if packed is None:
        pytest.skip(f"this is no whole clone of the repository: it has no {name()}")
    folder = scratch.new_folder("kuvasz-before-")
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    environment = {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}  # without the folder that the tests run in
    asked = [sys.executable, "-c", "import kuvasz; print(kuvasz.__file__)"]
    found = subprocess.run(asked, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    assert found.stdout == f"{folder / 'kuvasz' / '__init__.py'}\n"
    yield environment
    shutil.rmtree(folder)


__all__ = ["name", "version_before"]
