"""The life of a row: what each snapshot did to it, from where it lay in one snapshot after another. Pure."""

from __future__ import annotations

import collections
import dataclasses
import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kuvasz.model import TableType
from kuvasz.modes import system_columns
from kuvasz.verbs.lake.row_places import Place


class RowEventKind(enum.StrEnum):
    """What a snapshot did to a row."""

    THERE = "there"  #: the oldest snapshot that is left has it: it came before
    CAME = "came"
    CHANGED = "changed"
    MOVED = "moved"  #: to another file, as it was
    WENT = "went"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LakeRow:
    """A row of the lake. Equal ones are one and the same."""

    place: Place
    sid: str | None  #: of its source; None where rows have none
    member: str | None  #: whose rows its file has, see `kuvasz.lake.format.member`
    values: Mapping[str, Any] = dataclasses.field(compare=False)  #: by column, as they are called now

    @property
    def whose(self) -> tuple[str | None, str | None]:
        """Rows of one key are one row only within these."""
        return self.sid, self.member


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RowEvent:
    """What one snapshot did to one row."""

    what: RowEventKind
    step: int  #: the how-many-th snapshot, from 0
    row: LakeRow  #: as it is then; one that went, as it was
    before: LakeRow | None = None  #: of one that changed or moved
    changed: tuple[str, ...] = ()  #: columns


def lives(there: Sequence[Sequence[LakeRow]], kind: TableType, *, has_key: bool, is_whole: bool) -> list[RowEvent]:
    """Return what happened to rows of one key, oldest first.

    Args:
        there: The rows in each snapshot, oldest first.
        kind: The table's type, which says what makes two rows versions of one.
        has_key: The table has a key.
        is_whole: No earlier snapshot was expired, so that what the first one has came with it.
    """
    found: list[RowEvent] = []
    before: Sequence[LakeRow] = ()
    for step, rows in enumerate(there):
        if step == 0 and not is_whole:
            found += [RowEvent(what=RowEventKind.THERE, step=0, row=row) for row in rows]
        else:
            found += _between(step, before, rows, kind, has_key=has_key)
        before = rows
    return found


def _between(
    step: int, before: Sequence[LakeRow], after: Sequence[LakeRow], kind: TableType, *, has_key: bool
) -> Iterator[RowEvent]:
    gone = [row for row in before if row not in set(after)]
    for row in (row for row in after if row not in set(before)):
        earlier = next((old for old in gone if old.whose == row.whose and not _changed(old, row)), None)
        earlier = earlier or next((old for old in gone if _is_version(old, row, kind, has_key=has_key)), None)
        if earlier is None:
            yield RowEvent(what=RowEventKind.CAME, step=step, row=row)
            continue
        gone.remove(earlier)
        changed = _changed(earlier, row)
        what = RowEventKind.CHANGED if changed else RowEventKind.MOVED
        yield RowEvent(what=what, step=step, row=row, before=earlier, changed=changed)
    yield from (RowEvent(what=RowEventKind.WENT, step=step, row=row) for row in gone)


def _changed(old: LakeRow, new: LakeRow) -> tuple[str, ...]:
    """Return the columns that differ; what is no number equals itself here."""
    return tuple(name for name, value in new.values.items() if repr(old.values.get(name)) != repr(value))


def _is_version(old: LakeRow, new: LakeRow, kind: TableType, *, has_key: bool) -> bool:
    """Whether one row is another one's later version."""
    if old.whose != new.whose:
        return False
    if kind is TableType.HISTORY:  # a version that ends
        return bool(old.values[system_columns.START] == new.values[system_columns.START])
    return kind is TableType.CLONE and has_key


def by_row(found: Sequence[RowEvent]) -> Mapping[tuple[str | None, str | None], list[RowEvent]]:
    """Return what happened by sid and member, in their order."""
    parts: dict[tuple[str | None, str | None], list[RowEvent]] = collections.defaultdict(list)
    for one in found:
        parts[one.row.whose].append(one)
    return {whose: parts[whose] for whose in sorted(parts, key=lambda one: (one[0] or "", one[1] or ""))}


__all__ = ["LakeRow", "RowEvent", "RowEventKind", "by_row", "lives"]
