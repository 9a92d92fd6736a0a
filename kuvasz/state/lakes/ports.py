"""What a record of whose tables are owes: `tests/contract/test_table_owners.py` holds both bodies to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Protocol

from kuvasz.errors import TableTaken, place_of

#: Between the names of a place.
SEPARATOR = "/"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LakeTablePlace:
    """A table as any catalog and any name of that has it."""

    target: str  #: what it is called where it is asked for
    uuid: str | None = None  #: Iceberg's; None: it is yet to be made
    place: str | None = None  #: where its files are, see `names.one_place`; None: nobody knows yet

    @property
    def above(self) -> Iterator[str]:
        """Where its files are, and all that lies in."""
        begin, found = (self.place or "").find("://") + 3, self.place or ""
        while len(found) > begin:
            yield found
            found = found.rpartition(SEPARATOR)[0]

    def is_in(self, other: LakeTablePlace) -> bool:
        """Whether it is the same table as another one, or the files of one lie among the other's."""
        if self.uuid is not None and self.uuid == other.uuid:
            return True
        return self.place in set(other.above) or other.place in set(self.above)


class TableOwners(Protocol):
    """The record, as one group of a log asks it. From any thread."""

    def claim(self, table: LakeTablePlace) -> None:
        """Have a table be this group's, unless it is another one's; in place of the one that it had by this name.

        Raises:
            TableTaken: It is another group's.
            StateTaken: This process applies no more.
            StateError: It is not known whose it is.
        """

    def taken(self, tables: Iterable[LakeTablePlace]) -> TableTaken | None:
        """Return that a table is another group's; None: none of these is.

        Raises:
            StateError: It is not known whose they are.
        """


def taken(table: LakeTablePlace, group: str | None, target: str) -> TableTaken:
    """Return the error of a table that another group has.

    Args:
        table: As it was asked for.
        group: Who has it; None: the first one.
        target: What it is called there.
    """
    whose = "the processes without a group" if group is None else f"group {group}"
    gone = "" if group is None else f"; `kuvasz cluster retire {group}` forgets that group, if it is gone"
    return TableTaken(
        f"{place_of(table=table.target)}: its lake is that of {whose}, whose table {target} is the same one, or lies"
        " in the same folder",
        hint="each group of a log needs a lake of its own: another `lake.uri` or `lake.namespace`, and another"
        f" `lake.warehouse` or `location`{gone}",
    )


__all__ = ["SEPARATOR", "LakeTablePlace", "TableOwners", "taken"]
