"""What looks at the catalog showed of a source table's columns, one after another, and when. Pure.

A column is its number *and* the time in which it had its name. The newest look alone does not tell what a row of a
backlog meant: a column may have come, gone and been renamed since. Between two looks, a column whose row in
``pg_attribute`` is the same (xmin) had one name and one type all the time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kuvasz.model import Column, Relation, Seen

#: Looks that are kept of a table: of one with many columns fewer, for they stand in a property of its.
_LEAST, _MOST, _MOST_COLUMNS = 3, 12, 4000


class SeenColumn(NamedTuple):
    """One column as a look showed it."""

    name: str
    type_oid: int
    typmod: int
    version: int  #: as `Relation.version_of`
    is_sent: bool  #: whether messages have it


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """All live columns of a table, by number."""

    seen: Seen
    columns: Mapping[int, SeenColumn]
    file: int = 0  #: as `Relation.file`
    attributes: int = 0  #: as `Relation.attributes`
    list_version: int = 0  #: as `Relation.list_version`

    def shows_the_same(self, other: Sight) -> bool:
        """Whether nothing changed between two looks."""
        mine = (self.columns, self.file, self.attributes, self.list_version)
        return mine == (other.columns, other.file, other.attributes, other.list_version)

    def shows(self, commit_lsn: int, xid: int = 0) -> bool:
        """Whether a transaction is in what was seen."""
        return commit_lsn < self.seen.lsn and xid not in self.seen.running


def of(relation: Relation) -> Sight | None:
    """Return what a look at the catalog showed; None if nobody knows when that was."""
    if relation.seen is None:
        return None
    columns = {column.attnum: _face(column, relation, is_ordinary=True) for column in relation.columns}
    columns |= {column.attnum: _face(column, relation, is_ordinary=False) for column in relation.generated}
    return Sight(
        seen=relation.seen, columns=dict(sorted(columns.items())), file=relation.file,
        attributes=relation.attributes, list_version=relation.list_version,
    )  # fmt: skip


def _face(column: Column, relation: Relation, *, is_ordinary: bool) -> SeenColumn:
    is_sent = is_ordinary if relation.sent is None else column.attnum in relation.sent
    return SeenColumn(column.name, column.pg_type.oid, column.typmod, relation.version_of(column), is_sent)


def added(before: Sequence[Sight], sight: Sight | None, from_lsn: int | None) -> tuple[Sight, ...]:
    """Return looks with another one behind them, if it is news, and without those that no row needs any more.

    Args:
        before: The looks until now.
        sight: The newest.
        from_lsn: Rows that committed before it are in the lake; None: not known.
    """
    sights = [*before]
    if sight is not None and not (sights and sights[-1].shows_the_same(sight)):
        sights.append(sight)
    old = [place for place, one in enumerate(sights) if from_lsn is not None and one.seen.until <= from_lsn]
    sights = sights[old[-1] if old else 0 :]
    most = max(_LEAST, min(_MOST, _MOST_COLUMNS // max(1, len(sights[-1].columns) if sights else 1)))
    while len(sights) > most:
        del sights[1]  # what was in between tells less than where it began
    return tuple(sights)


__all__ = ["SeenColumn", "Sight", "added", "of"]
