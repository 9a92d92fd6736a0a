"""A jar of `requirements/jars.txt`: one that is delivered, or one whose classes lie in a delivered one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

#: Who brings a jar: Spark's own come in the wheel of pyspark, the others from Maven Central.
PYSPARK, KUVASZ, KUVASZ_S3 = "pyspark", "kuvasz", "kuvasz-s3"
HOLDERS = (KUVASZ, KUVASZ_S3, PYSPARK)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Jar:
    """A jar by its Maven coordinates.

    Attributes:
        holder: One of `HOLDERS`; for a jar inside of another the purl of that.
        sha256: Hexadecimal; empty for a jar inside of another, of which the classes alone are there.
    """

    holder: str
    group: str
    artifact: str
    version: str
    classifier: str = ""
    sha256: str = ""

    @property
    def name(self) -> str:
        """Return `group:artifact`, as databases of holes name it."""
        return f"{self.group}:{self.artifact}"

    @property
    def coordinate(self) -> str:
        """Return `group:artifact:version`."""
        return f"{self.name}:{self.version}"

    @property
    def purl(self) -> str:
        """Return the package URL."""
        suffix = f"?classifier={self.classifier}" if self.classifier else ""
        return f"pkg:maven/{self.group}/{self.artifact}@{self.version.replace('+', '%2B')}{suffix}"

    @property
    def is_inside(self) -> bool:
        """Whether it has no file of its own."""
        return self.holder not in HOLDERS

    @property
    def line(self) -> str:
        """Return its line in the lock."""
        return (
            f"{self.purl} in={self.holder}"
            if self.is_inside
            else f"{self.purl} sha256:{self.sha256} of={self.holder}"
        )


_HEAD = """\
# This file was made by the following command:
#    make jar-lock
# The jars that kuvasz runs with, and whose classes lie in them; of=pyspark: they come in its wheel.
"""
_LINE = re.compile(
    r"pkg:maven/(?P<group>[^\s/@?]+)/(?P<artifact>[^\s/@?]+)@(?P<version>[^\s/@?]+)(?:\?classifier=(?P<classifier>\S+))?"
    rf" (?:in=(?P<outer>pkg:maven/\S+)|sha256:(?P<sha256>[0-9a-f]{{64}}) of=(?P<holder>{'|'.join(HOLDERS)}))"
)


def write(jars: Iterable[Jar]) -> str:
    """Return the text of the lock."""
    return _HEAD + "".join(f"{jar.line}\n" for jar in sorted(jars))


def read(text: str) -> tuple[Jar, ...]:
    """Return the jars of the lock.

    Raises:
        ValueError: A line is not of its form.
    """
    return tuple(_read_one(line) for line in text.splitlines() if line and not line.startswith("#"))


def _read_one(line: str) -> Jar:
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError(f"no jar: {line}")
    return Jar(
        holder=found["outer"] or found["holder"],
        group=found["group"],
        artifact=found["artifact"],
        version=found["version"].replace("%2B", "+"),
        classifier=found["classifier"] or "",
        sha256=found["sha256"] or "",
    )


__all__ = ["HOLDERS", "KUVASZ", "KUVASZ_S3", "PYSPARK", "Jar", "read", "write"]
