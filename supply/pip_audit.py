"""Has pip-audit ask for the holes of Python packages.

It skips pins of other platforms and takes one version of a package at a time. So it is handed bare pins, and is
called once more where the locks have two versions of one package.
"""

from __future__ import annotations

import collections
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from supply.hole import DatabaseUnreachableError, Hole
from supply.osv import URL
from supply.package import Package

_SECONDS = 600


def holes_of(packages: Mapping[Package, Sequence[str]], url: str = URL) -> tuple[Hole, ...]:
    """Return the holes of packages, which come with the names of their locks.

    Raises:
        DatabaseUnreachableError: The database did not answer for all of them.
    """
    found = []
    for layer in layers(packages):
        answers = _ask(layer, url)
        found += [hole for package in layer for hole in _holes(package, packages[package], answers, url)]
    return tuple(found)


def layers(packages: Mapping[Package, Sequence[str]]) -> Iterator[list[Package]]:
    """Yield packages so that no two versions of one are together."""
    by_name = collections.defaultdict(list)
    for package in sorted(packages):
        by_name[package.name].append(package)
    for depth in range(max(map(len, by_name.values()), default=0)):
        yield [versions[depth] for versions in by_name.values() if depth < len(versions)]


def _ask(packages: Sequence[Package], url: str) -> Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]:
    with tempfile.TemporaryDirectory(prefix="kuvasz-audit-") as folder:
        pins = Path(folder) / "pins.txt"
        pins.write_text("".join(f"{one.name}=={one.version}\n" for one in packages), "utf-8")
        command = [
            sys.executable, "-m", "pip_audit", "--requirement", str(pins), "--no-deps", "--disable-pip",
            "--vulnerability-service", "osv", "--osv-url", url, "--format", "json", "--desc", "on", "--aliases", "on",
            "--progress-spinner", "off", "--cache-dir", folder,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    try:
        told = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError) as error:
        last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "it said nothing")
        raise DatabaseUnreachableError(
            f"{url}: pip-audit ended with {done.returncode}: {last.strip()[-300:]}"
        ) from error
    return {(one["name"], one["version"]): one["vulns"] for one in told if "skip_reason" not in one}


def _holes(
    package: Package,
    locks: Sequence[str],
    answers: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]],
    url: str,
) -> Iterator[Hole]:
    if (package.name, package.version) not in answers:
        raise DatabaseUnreachableError(f"{url}: pip-audit has no answer for {package.name} {package.version}")
    for told in answers[package.name, package.version]:
        yield Hole(
            package=package.name,
            version=package.version,
            names=tuple(sorted({told["id"], *told.get("aliases", [])})),
            summary=" ".join(str(told.get("description") or "no summary").split())[:200],
            fixed=tuple(told.get("fix_versions", ())),
            places=tuple(f"{lock}.lock" for lock in locks),
        )


__all__ = ["holes_of", "layers"]
