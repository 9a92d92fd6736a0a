"""What a source table's columns were when the lake last agreed with them. Pure.

It is kept in table properties, see `kuvasz.evolve.column_notes`: the table's OID, and every column there ever was.
Names alone do not tell a renamed column from a dropped and an added one, nor a table from another that took its name;
whoever goes by names then fills old rows wrongly, without an error. The numbers (``pg_attribute.attnum``, which are
never used twice) tell. Looks say which column had which name and when, for rows that are still to come; see
`kuvasz.evolve.sights`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping

from kuvasz.evolve import sights
from kuvasz.evolve.sights import SeenColumn, Sight
from kuvasz.model import HIDDEN, UNPROVED, Column, Relation, Seen, Uniqueness

#: Names of a column that are kept: what is still in a backlog may go by any of them.
_NAMES_KEPT = 8


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KnownColumn:
    """One column of a source table. What is 0 is unknown: an earlier version of kuvasz did not write it."""

    number: int  #: pg_attribute.attnum
    names: tuple[str, ...]  #: it had, the newest last
    type_oid: int = 0
    typmod: int = -1
    version: int = 0  #: as `Relation.version_of`
    facts: tuple[str, ...] = ()  #: as `Column.facts`; empty may be unknown
    field: int = 0  #: id of the lake's field that takes its values
    is_live: bool = True  #: False once it was dropped
    left: tuple[int, ...] = ()  #: ids of fields that took them before, the newest last: those of another type
    asked: str = ""  #: as `Column.asked`
    #: Names what rows show that were there before the column, which is the same for as long as no row is rewritten;
    #: with a dot, of a value that the lake is not to show (`kuvasz.lake.definition.hidden_defaults`); empty: NULL,
    #: None: an earlier version of kuvasz did not write it.
    missing: str | None = None
    default_of: int = 0  #: id of the field that was added for it with a default, which rows of before it have

    @property
    def is_bound(self) -> bool:
        """Whether `field` says which one it fills, 0 for none; otherwise the name does."""
        return self.type_oid != 0

    @property
    def name(self) -> str:
        """Its newest name."""
        return self.names[-1]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceColumns:
    """A source table's OID and columns, dropped ones included."""

    oid: int
    columns: Mapping[int, KnownColumn]  #: by number
    file: int = 0  #: as `Relation.file`
    attributes: int = 0  #: as `Relation.attributes`
    leaf_files: int = 0  #: as `Relation.leaf_files`
    uniqueness: Uniqueness = UNPROVED  #: as `Relation.uniqueness`; earlier versions of kuvasz did not write it
    reads: Mapping[str, int] = dataclasses.field(default_factory=dict)  #: name in the map's expressions -> number
    expressions: str = ""  #: names the expressions; empty: there are none, or nobody wrote it down
    sights: tuple[Sight, ...] = ()  #: looks that rows may still need, oldest first; the last one as it still is

    def moved(self, reads: Mapping[str, int], expressions: str) -> list[str]:
        """Return names that the same expressions read, and that mean other columns than they did."""
        if self.expressions and self.expressions != expressions:
            return []  # a person has written them anew
        before = self.reads if self.expressions else {name: column.number for name, column in self.live.items()}
        return sorted(name for name, number in reads.items() if before.get(name, number) != number)

    def went_by(self, expressions: str, mask: Iterable[str]) -> bool:
        """Whether the table was followed by these expressions and masks: if they do not fit, its columns changed."""
        names = {name for column in self.columns.values() for name in column.names}
        return self.expressions == expressions and names.issuperset(mask)

    def history(self, now: Relation) -> list[Sight]:
        """Return the looks at the table, oldest first, with that at the catalog now."""
        earlier = list(self.sights) or ([] if self.oid != now.oid else [self._always()])
        last = sights.of(now)
        return earlier if last is None else [*(one for one in earlier if one.seen.until <= last.seen.until), last]

    def _always(self) -> Sight:
        """Return what an earlier version of kuvasz remembered, as if it had been seen before everything."""
        return Sight(
            seen=Seen(lsn=0, until=0), columns=dict(sorted(as_seen(self.columns.values()).items())), file=self.file,
            attributes=self.attributes or max(self.columns, default=0),
        )  # fmt: skip

    @property
    def sent(self) -> list[tuple[int, str, int]]:
        """Number, name and type of the columns that messages have now."""
        if self.sights:
            last = self.sights[-1].columns
            return [(number, face.name, face.type_oid) for number, face in last.items() if face.is_sent]
        return sorted((column.number, column.name, column.type_oid) for column in self.live.values())

    def is_of(self, message: Relation) -> bool:
        """Whether all columns of a message, which are numbered, have the types that were seen last."""
        return not self.older(message)

    def older(self, message: Relation) -> frozenset[int]:
        """Return the numbers of a message's columns that have other types than were seen last."""
        known = ((column, self.columns.get(column.attnum)) for column in message.columns)
        return frozenset(
            column.attnum for column, one in known
            if one is not None and (column.pg_type.oid, column.typmod) != (one.type_oid, one.typmod)
        )  # fmt: skip

    @property
    def live(self) -> dict[str, KnownColumn]:
        """The columns it has, by name."""
        return {column.name: column for column in self.columns.values() if column.is_live}

    @property
    def fields(self) -> dict[int, int]:
        """Number -> id of the lake's field, dropped columns included, unknown ids left out."""
        return {number: column.field for number, column in self.columns.items() if column.field}

    @property
    def left(self) -> dict[int, tuple[int, ...]]:
        """Number -> ids of fields that the column filled before, the newest last."""
        return {number: column.left for number, column in self.columns.items() if column.left}

    @property
    def defaulted(self) -> frozenset[int]:
        """Ids of the fields whose default its rows have that were there before the column that fills them."""
        return frozenset(column.field for column in self.live.values() if 0 != column.field == column.default_of)


def as_seen(columns: Iterable[KnownColumn]) -> dict[int, SeenColumn]:
    """Return how a look shows columns as they are known, by number."""
    return {
        column.number: SeenColumn(column.name, column.type_oid, column.typmod, column.version, True)  # noqa: FBT003
        for column in columns if column.is_live
    }  # fmt: skip


def expressions_of(condition: str | None, computed: Mapping[str, str] | None) -> str:
    """Return `SourceColumns.expressions` of what the map says.

    Args:
        condition: Its `filter`.
        computed: Its `set`.
    """
    if condition is None and computed is None:
        return ""
    texts = json.dumps([condition, None if computed is None else list(computed.items())])
    return hashlib.sha256(texts.encode()).hexdigest()[:16]


def of(
    relation: Relation,
    fields: Mapping[int, int],
    before: SourceColumns | None = None,
    from_lsn: int | None = None,
    sight: Sight | None = None,
) -> SourceColumns:
    """Return what is to be remembered of a relation as the catalog describes it.

    Args:
        relation: From the catalog.
        fields: Number -> id of the lake's field.
        before: What was remembered; its columns that are gone stay as dropped ones.
        from_lsn: Rows that committed before it are in the lake; None: not known.
        sight: What the look showed; None: the relation says.
    """
    if before is not None and before.oid != relation.oid:
        before = None
    earlier = {} if before is None else before.columns
    columns = {number: dataclasses.replace(column, is_live=False) for number, column in earlier.items()}
    for column in relation.columns:
        names = [name for name in (earlier[column.attnum].names if column.attnum in earlier else ())
                 if name != column.name]  # fmt: skip
        field, left = fields.get(column.attnum, 0), tuple[int, ...]()
        if column.attnum in earlier:
            before_ids = (*earlier[column.attnum].left, earlier[column.attnum].field)
            left = tuple(dict.fromkeys(one for one in before_ids if one not in (0, field)))[-_NAMES_KEPT:]
        columns[column.attnum] = KnownColumn(
            number=column.attnum,
            names=(*names, column.name)[-_NAMES_KEPT:],
            type_oid=column.pg_type.oid,
            typmod=column.typmod,
            version=relation.version_of(column),
            facts=column.facts,
            field=field,
            left=left,
            asked=column.asked,
            missing=missing_of(column),
            default_of=earlier[column.attnum].default_of if column.attnum in earlier else 0,
        )
    return SourceColumns(
        oid=relation.oid, columns=columns, file=relation.file, attributes=relation.attributes,
        leaf_files=relation.leaf_files, uniqueness=_uniqueness(relation, before),
        sights=sights.added(() if before is None else before.sights, sight or sights.of(relation), from_lsn),
    )  # fmt: skip


def _uniqueness(relation: Relation, before: SourceColumns | None) -> Uniqueness:
    """Return that of the key, or of the last one while there is none: the next may be told from it."""
    return relation.uniqueness if before is None or any(relation.uniqueness) else before.uniqueness


def missing_of(column: Column) -> str:
    """Return `KnownColumn.missing` of a column as the catalog describes it."""
    if column.missing is None or column.missing.startswith(HIDDEN):
        return (column.missing or "").removeprefix(HIDDEN)
    return hashlib.sha256(column.missing.encode()).hexdigest()[:8]


def are_other(noted: str | None, now: str) -> bool:
    """Whether two of `KnownColumn.missing` are of other values; no, if they are noted in ways that do not compare.

    What stands before a dot says by which secret a value is hidden.
    """
    is_told_alike = noted is not None and ("" in (noted, now) or noted.rpartition(".")[0] == now.rpartition(".")[0])
    return is_told_alike and noted != now
