"""What a source table's columns were when the lake last agreed with them, as a table property. Pure.

``kuvasz.columns.<source>`` holds JSON: the table's OID, ``columns`` (live ones: name -> number, which is all that
earlier versions wrote), and ``details`` of every column there ever was. Names alone do not tell a renamed column from
a dropped and an added one, nor a table from another that took its name; whoever goes by names then fills old rows
wrongly, without an error. The numbers (``pg_attribute.attnum``, which are never used twice) tell. ``looks`` says
which column had which name and when, for rows that are still to come; see `kuvasz.evolve.sights`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from kuvasz.errors import LakeError, place_of
from kuvasz.evolve import sights
from kuvasz.evolve.sights import SeenColumn, Sight
from kuvasz.model import UNPROVED, Column, Relation, Seen, Uniqueness

PREFIX = "kuvasz.columns."

#: Names of a column that are kept: what is still in a backlog may go by any of them.
_NAMES_KEPT = 8


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KnownColumn:
    """One column of a source table. What is 0 is unknown: an earlier version of kuvasz did not write it."""

    number: int  #: pg_attribute.attnum
    names: tuple[str, ...]  #: it had, the newest last
    type_oid: int = 0
    typmod: int = -1
    version: int = 0  #: as `Column.version`
    facts: tuple[str, ...] = ()  #: as `Column.facts`; empty may be unknown
    field: int = 0  #: id of the lake's field that takes its values
    is_live: bool = True  #: False once it was dropped
    left: tuple[int, ...] = ()  #: ids of fields that took them before, the newest last: those of another type
    asked: str = ""  #: as `Column.asked`
    #: Names what rows show that were there before the column, which is the same for as long as no row is rewritten;
    #: empty: NULL, None: an earlier version of kuvasz did not write it.
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
        columns = {
            column.number: SeenColumn(column.name, column.type_oid, column.typmod, column.version, True)  # noqa: FBT003
            for column in self.columns.values() if column.is_live
        }  # fmt: skip
        return Sight(
            seen=Seen(lsn=0, until=0), columns=dict(sorted(columns.items())), file=self.file,
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
        return all(
            column.attnum not in self.columns
            or (column.pg_type.oid, column.typmod)
            == (self.columns[column.attnum].type_oid, self.columns[column.attnum].typmod)
            for column in message.columns
        )

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

    def render(self) -> str:
        """Return the property's value."""
        return json.dumps(
            {
                "oid": self.oid,
                "columns": {name: column.number for name, column in self.live.items()},
                "file": self.file,
                "attributes": self.attributes,
                **({"leaf_files": self.leaf_files} if self.leaf_files else {}),
                **({"uniqueness": self.uniqueness} if any(self.uniqueness) else {}),
                **({"reads": dict(self.reads), "expressions": self.expressions} if self.expressions else {}),
                "details": {
                    str(number): {
                        "names": column.names, "type": column.type_oid, "typmod": column.typmod,
                        "version": column.version, "field": column.field, "left": column.left,
                        **({"facts": column.facts} if column.facts else {}),
                        **({"asked": column.asked} if column.asked else {}),
                    }
                    for number, column in self.columns.items()
                },
                "missing": {str(number): column.missing for number, column in self.columns.items() if column.missing},
                "defaults": {str(number): one.default_of for number, one in self.columns.items() if one.default_of},
                "looks": sights.render(self.sights),
            }
        )  # fmt: skip


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
) -> SourceColumns:
    """Return what is to be remembered of a relation as the catalog describes it.

    Args:
        relation: From the catalog.
        fields: Number -> id of the lake's field.
        before: What was remembered; its columns that are gone stay as dropped ones.
        from_lsn: Rows that committed before it are in the lake; None: not known.
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
            version=column.version,
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
        sights=sights.added(() if before is None else before.sights, sights.of(relation), from_lsn),
    )  # fmt: skip


def _uniqueness(relation: Relation, before: SourceColumns | None) -> Uniqueness:
    """Return that of the key, or of the last one while there is none: the next may be told from it."""
    return relation.uniqueness if before is None or any(relation.uniqueness) else before.uniqueness


def missing_of(column: Column) -> str:
    """Return `KnownColumn.missing` of a column as the catalog describes it."""
    return "" if column.missing is None else hashlib.sha256(column.missing.encode()).hexdigest()[:8]


def parse(properties: Mapping[str, str], table: str) -> dict[str, SourceColumns]:
    """Return source -> columns from a table's properties.

    Raises:
        LakeError: A property was damaged by someone.
    """
    found = {}
    for name, value in properties.items():
        if not name.startswith(PREFIX):
            continue
        try:
            found[name.removeprefix(PREFIX)] = _parse(json.loads(value))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"{place_of(table=table)}: property {name} does not describe columns: {value[:120]!r}"
            raise LakeError(message, hint="restore the property, or drop it") from error
    return found


def _parse(facts: Mapping[str, Any]) -> SourceColumns:
    live = {int(number): str(name) for name, number in facts["columns"].items()}
    columns = {number: KnownColumn(number=number, names=(name,)) for number, name in live.items()}
    missing, defaults = facts.get("missing"), facts.get("defaults")
    for text, detail in facts.get("details", {}).items():
        columns[int(text)] = KnownColumn(
            number=int(text),
            names=tuple(map(str, detail["names"])) or ("",),
            type_oid=int(detail["type"]),
            typmod=int(detail["typmod"]),
            version=int(detail["version"]),
            facts=tuple(map(str, detail.get("facts", ()))),
            field=int(detail["field"]),
            left=tuple(map(int, detail.get("left", ()))),
            asked=str(detail.get("asked", "")),
            is_live=int(text) in live,
            missing=None if missing is None else str(missing.get(text, "")),
            default_of=_default_of(text, detail, missing) if defaults is None else int(defaults.get(text, 0)),
        )
    return SourceColumns(
        oid=int(facts["oid"]),
        columns=columns,
        file=int(facts.get("file", 0)),
        attributes=int(facts.get("attributes", 0)),
        leaf_files=int(facts.get("leaf_files", 0)),
        uniqueness=Uniqueness(*map(int, facts.get("uniqueness", ()))),
        reads={str(name): int(number) for name, number in facts.get("reads", {}).items()},
        expressions=str(facts.get("expressions", "")),
        sights=sights.parse(facts.get("looks", ())),
    )


def _default_of(number: str, detail: Mapping[str, Any], missing: Mapping[str, Any] | None) -> int:
    """Return what an earlier version of kuvasz did not write: it took every field's default for its source's own."""
    has_constant = missing is None or bool(missing.get(number))
    return int(detail["field"]) if has_constant else 0
