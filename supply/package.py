"""A Python package of `requirements/*.lock`: its version, the hashes of its files, and who needs it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

_PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:\[[^]]*])?==(?P<version>[^\s;\\]+)(?:\s*;\s*(?P<marker>[^\\]+))?")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_VIA = re.compile(r"^ +# +(?:via +)?(?!via\b)(\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Package:
    """A pin of a lock.

    Attributes:
        name: In its canonical form.
        version: The one that is installed.
        marker: The environments it is for; empty: all.
        hashes: SHA-256 of each file of the release, any one of which may be installed.
        needed_by: Names of packages of the lock, and `kuvasz`; none: what builds.
    """

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]
    needed_by: tuple[str, ...]

    @property
    def purl(self) -> str:
        """Return the package URL."""
        return f"pkg:pypi/{self.name}@{self.version.replace('+', '%2B')}"


def read(text: str) -> tuple[Package, ...]:
    """Return the packages of a lock that uv wrote.

    Raises:
        ValueError: A line is no pin, or a pin has no hash.
    """
    blocks = re.split(r"^(?=[^\s#])", text, flags=re.MULTILINE)[1:]
    return tuple(_read_one(block) for block in blocks)


def _read_one(block: str) -> Package:
    first = block.splitlines()[0]
    pin, hashes = _PIN.match(first), tuple(sorted(_HASH.findall(block)))
    if pin is None or not hashes:
        raise ValueError(f"no pin with a hash: {first}")
    needed_by = sorted({re.split(r"[\[ (]", one)[0] for one in _VIA.findall(block)} - {"-r", "-c"})
    return Package(
        name=re.sub(r"[-_.]+", "-", pin["name"]).lower(),
        version=pin["version"],
        marker=(pin["marker"] or "").strip(),
        hashes=hashes,
        needed_by=tuple(needed_by),
    )


def of_folder(folder: Path) -> Mapping[Package, tuple[str, ...]]:
    """Return the packages of all locks of a folder, each with the names of the locks that have it."""
    found: dict[tuple[str, str], tuple[Package, tuple[str, ...]]] = {}
    for lock in sorted(folder.glob("*.lock")):
        for package in read(lock.read_text("utf-8")):
            known, names = found.get((package.name, package.version), (package, ()))
            needed_by = tuple(sorted({*known.needed_by, *package.needed_by}))
            found[package.name, package.version] = replace(known, needed_by=needed_by), (*names, lock.stem)
    return dict(found.values())


__all__ = ["Package", "of_folder", "read"]
