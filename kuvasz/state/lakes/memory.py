"""The record in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from kuvasz.state.lakes.ports import LakeTablePlace, TableOwners, taken

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kuvasz.errors import TableTaken


class MemoryTableOwners(TableOwners):
    """The record.

    Args:
        group: Who asks; None: the first one.
        known: What all groups have, by group and target: the same object for all of them.
    """

    def __init__(self, group: str | None, known: dict[tuple[str | None, str], LakeTablePlace]) -> None:
        self._group = group
        self._known = known

    @override
    def claim(self, table: LakeTablePlace) -> None:
        """See `TableOwners.claim`."""
        if (error := self.taken([table])) is not None:
            raise error
        self._known[self._group, table.target] = table

    @override
    def taken(self, tables: Iterable[LakeTablePlace]) -> TableTaken | None:
        """See `TableOwners.taken`."""
        others = {name: one for name, one in self._known.items() if name[0] != self._group}
        return next(
            (taken(table, *name) for table in tables for name, one in others.items() if table.is_in(one)), None
        )  # fmt: skip


__all__ = ["MemoryTableOwners"]
