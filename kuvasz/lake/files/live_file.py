"""A data file that readers of a table see now."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LiveFile:
    """A data file of the current snapshot with the delete files that apply to it, as Iceberg's own JSON."""

    data: Mapping[str, Any]
    deletes: tuple[Mapping[str, Any], ...]
    sequence: int = 0  #: of the commit that brought it

    @property
    def age(self) -> tuple[int, str]:
        """Older files come first; those of one commit by name (see `kuvasz.lake.format.naming`)."""
        return self.sequence, self.data["file-path"].rpartition("/")[2]


__all__ = ["LiveFile"]
