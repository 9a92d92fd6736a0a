"""The archive's manifest: what it has, what it has not and why."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kuvasz import __version__
from kuvasz.shown import escapes, figures
from kuvasz.verbs import text

if TYPE_CHECKING:
    from kuvasz.verbs.support.part import PartOutcome

FILE = "MANIFEST.txt"

_HEAD = """kuvasz {version}, `kuvasz support` at {at}

No secrets and no values of rows are meant to be in here: passwords are ***, texts in expressions are '…', errors that
may quote a row are left out. Names are: of hosts, databases, roles, tables, columns, files. Look before you send it.
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ManifestLine:
    """One part of the archive."""

    part: str
    what: str
    files: Mapping[str, int]  #: name -> bytes
    missing: tuple[str, ...]  #: in words

    def as_json(self) -> dict[str, Any]:
        """Return the line ready for JSON."""
        return {"part": self.part, "what": self.what, "files": dict(self.files), "missing": list(self.missing)}


def lines(found: Iterable[PartOutcome], files: Mapping[str, bytes]) -> list[ManifestLine]:
    """Return a line for each part.

    Args:
        found: The parts.
        files: Their files as they go into the archive.
    """
    return [
        ManifestLine(
            part=one.part.name,
            what=one.part.what,
            files={file: len(files[file]) for file in one.gathered.files},
            missing=(*one.gathered.notes, *([one.why_not] if one.why_not else [])),
        )
        for one in found
    ]


def render(found: Iterable[ManifestLine]) -> str:
    """Return the lines for people."""
    return text.table(("part", "", "what", "files, or what is missing"), [_row(one) for one in found])


def page(found: Iterable[ManifestLine], at: datetime.datetime) -> str:
    """Return the manifest itself."""
    return f"{_HEAD.format(version=__version__, at=at.isoformat(timespec='seconds'))}\n{render(found)}\n"


def _row(line: ManifestLine) -> tuple[str, str, str, str]:
    files = [f"{file} ({figures.size(size)})" for file, size in line.files.items()]
    verdict = "there" if not line.missing else "in part" if files else "MISSING"
    return line.part, verdict, line.what, escapes.one_line("; ".join([*files, *line.missing]))


__all__ = ["FILE", "ManifestLine", "lines", "page", "render"]
