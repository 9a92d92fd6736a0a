"""The part with what `kuvasz check` finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kuvasz.verbs import check
from kuvasz.verbs.support.part import PartFiles

if TYPE_CHECKING:
    from kuvasz.config.load import Loaded


def gather(loaded: Loaded) -> PartFiles:
    """Return the findings, for people and for programs; sources that do not answer are among them."""
    found = check.findings(loaded.config, loaded.place_of)
    return PartFiles(files={"check.txt": f"{check.render(found)}\n", "check.json": check.as_json(found)})


__all__ = ["gather"]
