"""What one Iceberg commit changes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableCommit:
    """Everything one commit changes. Files are given as ContentFileParser's JSON."""

    snapshot_id: int | None  #: that the deletes were resolved against
    properties: Mapping[str, str]
    summary: Mapping[str, str]
    data_files: Sequence[str] = ()
    added_deletes: Sequence[str] = ()
    removed_deletes: Sequence[str] = ()
    removed_files: Sequence[str] = ()
    is_rewrite: bool = False  #: the same rows in other files: readers of changes may pass over the snapshot
    sequence: int | None = None  #: of a rewrite: how old its files are, as Iceberg counts; None: they are new
    removed_properties: Sequence[str] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no row changes."""
        return not (self.data_files or self.added_deletes or self.removed_files)

    @property
    def is_swap(self) -> bool:
        """Whether files are exchanged in a snapshot of the operation `replace`: not if delete files only come."""
        return self.is_rewrite and bool(self.removed_deletes or not self.added_deletes)

    def existing(self) -> list[str] | None:
        """Return the data files that must still be there for their rows to die; None if no row of before does."""
        if self.snapshot_id is None or not (self.added_deletes or self.removed_files):
            return None
        new = {json.loads(text)["file-path"] for text in self.data_files}
        referenced = [json.loads(text)["referenced-data-file"] for text in self.added_deletes]
        return [path for path in referenced if path not in new]


__all__ = ["TableCommit"]
