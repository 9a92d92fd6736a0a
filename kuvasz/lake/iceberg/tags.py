"""Tags of the lake's tables: names of snapshots, which are kept as long as they."""

from __future__ import annotations

from typing_extensions import override

from kuvasz.errors import LakeError, place_of
from kuvasz.lake.iceberg.tables import Tables
from kuvasz.ports import Tags


class IcebergTags(Tags):
    """The tags.

    Args:
        tables: The tables.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    @override
    def add(self, target: str, name: str, keep_s: float) -> int | None:
        """See `kuvasz.ports.Tags.add`: it names what the catalog has now, which others may have committed to."""
        table = self._tables.get(target)
        if table is None:
            hint = "it has left the map, or another process has it: see `kuvasz status`, and make the cut again"
            raise LakeError(f"{place_of(table=target)}: it is not loaded here", hint=hint)
        with table.lock:
            table.look()
            if ahead := table.ahead:
                what = f"another process has committed changes of source {', '.join(sorted(ahead))}"
                raise LakeError(f"{place_of(table=target)}: {what}", hint="run one kuvasz per map, and cut again")
            return table.table.snapshots.tag(name, round(keep_s * 1000))

    @override
    def remove(self, target: str, name: str) -> None:
        """See `kuvasz.ports.Tags.remove`; of a table that was let go of since by a handle of its own."""
        table = self._tables.get(target)
        if table is None:
            if (found := self._tables.found(target)) is not None:
                found.snapshots.untag(name)
            return
        with table.lock:
            table.table.snapshots.untag(name)


__all__ = ["IcebergTags"]
