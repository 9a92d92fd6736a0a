"""What happened to a source table since it was last looked at: remembered columns against the catalog's. Pure.

The catalog shows what a table is, not how it became so. Where that leaves open whether rows which the lake has show
other values at the source now, the change says that a copy is needed: a copy is always right. What tells that nothing
of the kind happened is the table's file (``pg_relation_filenode``): while it is the same, no row was rewritten.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator

from kuvasz.evolve import sights
from kuvasz.evolve.known import KnownColumn, SourceColumns, are_other, missing_of
from kuvasz.model import Column, Relation
from kuvasz.typemap import numeric_modifier

_NUMERIC, _TEXT, _VARCHAR = 1700, 25, 1043
_UNSENT = "messages of its table may have left it out"
_LAPSED = "while there was none, several rows may have had one value"
_CONSTANT = "rows that were there before have its default"


class ChangeKind(enum.Enum):
    """Kinds of changes."""

    ADD = "added"
    DROP = "dropped"
    RENAME = "renamed"
    RETYPE = "given another type"
    REWRITE = "rewritten"
    REKEY = "made a key anew"
    REDEFINE = "shown in other words, for its type was altered"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One column's change."""

    kind: ChangeKind
    number: int  #: the column's
    name: str  #: as it is now; of a dropped column, as it was
    before: str = ""  #: of a RENAME
    why_copy: str = ""  #: why rows that the lake has may show other values now; empty if they do not
    is_constant: bool = False  #: all of them show the same value in it, `Column.missing`
    is_asked: bool = False  #: of a RETYPE: the map asks for another type, at the source nothing changed

    def describe(self) -> str:
        """Return it in words."""
        if self.kind is ChangeKind.RENAME:
            return f"column {self.before} was renamed to {self.name}"
        return f"column {self.name} was {self.kind.value}"


def compare(known: SourceColumns, relation: Relation) -> list[Change]:
    """Return the changes from what is remembered to what the catalog shows, renames first.

    Both are of the same table (OID).
    """
    changes = [*_changes(known, relation), *_key_changes(known, relation)]
    return sorted(changes, key=lambda change: change.kind is not ChangeKind.RENAME)


def _changes(known: SourceColumns, relation: Relation) -> Iterator[Change]:
    is_rewritten = _is_other(known.file, relation.file)
    is_written_anew = is_rewritten or _is_other(known.leaf_files, relation.leaf_files)
    numbers = set()
    unsent = _unsent(known, relation)
    for column in relation.columns:
        numbers.add(column.attnum)
        before = known.columns.get(column.attnum)
        if before is None or not before.is_live:
            why = _why_values(known, column, relation, is_rewritten=is_rewritten)
            why = _UNSENT if column.attnum in unsent and not why else why
            yield Change(
                kind=ChangeKind.ADD,
                number=column.attnum,
                name=column.name,
                why_copy=why,
                is_constant=why == _CONSTANT,
            )
            continue
        if before.name != column.name:
            yield Change(kind=ChangeKind.RENAME, number=column.attnum, name=column.name, before=before.name)
        is_retyped = (before.type_oid, before.typmod) != (column.pg_type.oid, column.typmod)
        if before.type_oid and is_retyped:
            is_known = 0 not in (known.file, relation.file)
            keeps = not is_rewritten and (_is_same(before, column) if is_known else _is_wider(before, column))
            why = "" if keeps else "the source has rewritten its values"
            yield Change(kind=ChangeKind.RETYPE, number=column.attnum, name=column.name, why_copy=why)
        elif before.type_oid and not set(before.facts) <= set(column.facts):
            why = "rows that nobody touched read otherwise at the source"
            yield Change(kind=ChangeKind.REDEFINE, number=column.attnum, name=column.name, why_copy=why)
        elif is_written_anew and before.version and before.version != relation.version_of(column):
            # ALTER COLUMN TYPE to the type it has, USING an expression, shows in no other way.
            why = "the table was rewritten and the column altered"
            yield Change(kind=ChangeKind.REWRITE, number=column.attnum, name=column.name, why_copy=why)
        elif _is_another(known, before, column, relation):
            why = "a column with its number was lost with an earlier primary"
            yield Change(kind=ChangeKind.REWRITE, number=column.attnum, name=column.name, why_copy=why)
        elif column.attnum in unsent:
            yield Change(kind=ChangeKind.REWRITE, number=column.attnum, name=column.name, why_copy=_UNSENT)
        if before.type_oid and before.asked != column.asked and not is_retyped:
            yield Change(kind=ChangeKind.RETYPE, number=column.attnum, name=column.name, is_asked=True)
    for number, before in known.columns.items():
        if before.is_live and number not in numbers:
            yield Change(kind=ChangeKind.DROP, number=number, name=before.name)


def _key_changes(known: SourceColumns, relation: Relation) -> Iterator[Change]:
    """Yield that of a key which there may not have been all the time: names of columns do not tell."""
    if known.uniqueness.lapsed(relation.uniqueness):
        for column in relation.columns:
            if column.is_key:
                yield Change(kind=ChangeKind.REKEY, number=column.attnum, name=column.name, why_copy=_LAPSED)


def _is_other(before: int, now: int) -> bool:
    """Whether two files are known and differ."""
    return 0 not in (before, now) and before != now


def _is_another(known: SourceColumns, before: KnownColumn, column: Column, relation: Relation) -> bool:
    """Whether rows show what they could not had the column been altered only: a standby that lagged took over."""
    is_same_file = 0 != known.file == relation.file
    return is_same_file and are_other(before.missing, missing_of(column))


def _unsent(known: SourceColumns, relation: Relation) -> set[int]:
    """Return the columns whose values may be missing in messages, for a publication has or had a column list."""
    before, now = known.sights[-1] if known.sights else None, sights.of(relation)
    if before is None or now is None:
        return set()
    is_other = before.list_version not in (0, now.list_version)
    return {
        number for number, face in now.columns.items()
        if face.is_sent and (is_other or (number in before.columns and not before.columns[number].is_sent))
    }  # fmt: skip


def _why_values(known: SourceColumns, column: Column, relation: Relation, *, is_rewritten: bool) -> str:
    """Say why a new column may have values in rows that were there before it; empty if it is NULL in them."""
    if column.name in known.live and column.attnum != known.live[column.name].number:
        return "a column of its name was there before"
    if column.attnum in known.columns or 0 < column.attnum <= known.attributes:
        return "it was there before, generated or left out"
    if known.attributes and any(known.attributes < number < column.attnum for number in relation.dropped):
        return "another column came and went before it, perhaps by its name"
    if column.missing is not None:
        return _CONSTANT
    if is_rewritten:
        return "the source has rewritten the table"
    is_sure = 0 not in (known.file, relation.file)  # a default that is not constant rewrites the table
    if not is_sure and (column.has_default or not column.is_nullable):
        return "rows that were there before may have its default"
    return ""


def _is_same(before: KnownColumn, column: Column) -> bool:
    """Whether values that were not rewritten have the same text in both types."""
    return before.type_oid == column.pg_type.oid or {before.type_oid, column.pg_type.oid} <= {_TEXT, _VARCHAR}


def _is_wider(before: KnownColumn, column: Column) -> bool:
    """Whether PostgreSQL changes the type without a look at the values."""
    old, new = (before.type_oid, before.typmod), (column.pg_type.oid, column.typmod)
    if old[0] == _VARCHAR:
        return new[0] == _TEXT or (new[0] == _VARCHAR and (new[1] == -1 or -1 < old[1] <= new[1]))
    if old[0] == new[0] == _NUMERIC:
        if -1 in (old[1], new[1]):
            return new[1] == -1
        (digits, scale), (more, same) = numeric_modifier(old[1]), numeric_modifier(new[1])
        return scale == same and more >= digits
    return False
