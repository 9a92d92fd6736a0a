"""The Java that Spark would run on: which it is, and whether it will do."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from kuvasz.errors import ConfigError

#: The oldest that Spark 4 runs on (its documentation, "Downloading").
OLDEST = 17

#: Spark has the JVM load it, and a JVM without it ends at once.
VECTOR = "jdk.incubator.vector"

_HINT = (
    "install Java 17 or 21 (Debian, Ubuntu: apt install openjdk-17-jre-headless or openjdk-21-jre-headless; elsewhere"
    " Temurin's), or set JAVA_HOME to the folder of one; the image has it"
)
_VERSION = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_MODULES = re.compile(r'^MODULES="([^"]*)"', re.MULTILINE)


def prove() -> str:
    """Find the Java that Spark's own scripts would take, and return what it is.

    What is asked is the file `release` of its folder (JEP 223, JEP 220): to run it would take half a second. One
    without that file is believed.

    Raises:
        ConfigError: There is none, or it will not do.
    """
    home = _home()
    release = home / "release"
    told = release.read_text(encoding="utf-8", errors="replace") if release.is_file() else ""
    version, modules = _VERSION.search(told), _MODULES.search(told)
    if version is not None and int(version[1]) < OLDEST:
        raise ConfigError(f"java {version[1]} in {home}: {OLDEST} or later is needed", hint=_HINT)
    if modules is not None and VECTOR not in modules[1].split():
        raise ConfigError(f"the java in {home} lacks the module {VECTOR}", hint=_HINT)
    return f"java {version[1] if version else '?'} in {home}"


def _home() -> Path:
    """Return the folder of Java as bin/spark-class chooses it."""
    if given := os.environ.get("JAVA_HOME"):
        if not os.access(Path(given) / "bin" / "java", os.X_OK):
            raise ConfigError(f"no java: JAVA_HOME is {given}, and has no bin/java", hint=_HINT)
        return Path(given)
    if (found := shutil.which("java")) is None:
        raise ConfigError("no java: JAVA_HOME is not set, and PATH has none", hint=_HINT)
    return Path(found).resolve().parent.parent


__all__ = ["OLDEST", "VECTOR", "prove"]
