"""What a lake table does about a changed source table: fields to add, rename, widen, and whether to copy. Pure.

A source's columns are bound to fields by number and field id, so a field may bear another name than the column that
fills it: it follows the first source that renames. The lake always goes to what the catalog shows *now*; rows of a
backlog find their fields by number, whatever the columns were called in their time.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias

from kuvasz.errors import SchemaError
from kuvasz.evolve import known as known_columns
from kuvasz.evolve.changes import Change, ChangeKind, compare
from kuvasz.evolve.known import SourceColumns
from kuvasz.lake.format.schema import Field, LakeSchema, is_same, reading_type, refuse_alike, wanted
from kuvasz.model import Column, LakeType, Relation, ValueType
from kuvasz.modes import defaults
from kuvasz.ports import Target

#: No other source fills anything.
NOBODY: Mapping[str, frozenset[int]] = MappingProxyType({})

#: What `_Planning._set_aside` appends to names.
_SET_ASIDE = re.compile(r"__old\d*$")


@dataclasses.dataclass(frozen=True, slots=True)
class AddField:
    """A field that is new; ids are the catalog's to give."""

    field: Field


@dataclasses.dataclass(frozen=True, slots=True)
class RenameField:
    """A field gets another name."""

    name: str
    to: str


@dataclasses.dataclass(frozen=True, slots=True)
class WidenField:
    """A field's type is promoted (Iceberg spec, "Schema Evolution")."""

    name: str
    type: ValueType


@dataclasses.dataclass(frozen=True, slots=True)
class RelaxFields:
    """Fields may be NULL from now on, and none identifies a row for readers."""

    names: tuple[str, ...]


Step: TypeAlias = AddField | RenameField | WidenField | RelaxFields


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """What is to be done for one source table."""

    steps: tuple[Step, ...] = ()
    added: Mapping[int, str]  #: number of a column -> name of the field that is added for it
    fields: Mapping[int, int]  #: number of a column -> id of the field that was there
    key: tuple[str, ...]  #: of the table, after the steps
    told: tuple[str, ...] = ()  #: what changed at the source and what is done about it, in words
    why_copy: str = ""  #: why the source's rows have to be copied again; empty if they have not
    has_other_key: bool = False  #: whether other columns identify a row than before
    has_other_key_values: bool = False  #: whether the values of those columns may be others now
    is_change: bool = False  #: whether anything that the map takes changed at the source
    reads: Mapping[str, int] = dataclasses.field(default_factory=dict)  #: as `SourceColumns.reads`
    expressions: str = ""  #: as `SourceColumns.expressions`
    moved: tuple[str, ...] = ()  #: names that the map's expressions read, and that mean other columns now

    def columns(
        self, relation: Relation, schema: LakeSchema, before: SourceColumns | None, from_lsn: int | None = None
    ) -> SourceColumns:
        """Return what to remember, given the schema after the steps.

        Args:
            relation: From the catalog.
            schema: The lake table's, after the steps.
            before: What was remembered until now.
            from_lsn: Rows that committed before it are in the lake; None: not known.
        """
        fields = dict(self.fields)
        for number, name in self.added.items():
            field = schema.by_name(name)
            assert field is not None
            fields[number] = field.field_id
        known = known_columns.of(relation, fields, before, from_lsn)
        return dataclasses.replace(known, reads=self.reads, expressions=self.expressions)

    def reading(
        self, target: Target, relation: Relation, reads: Sequence[str], before: SourceColumns | None
    ) -> Evolution:
        """Return it with what the map's expressions read.

        Args:
            target: With the expressions.
            relation: From the catalog.
            reads: Names of the columns that they look at.
            before: What was remembered.
        """
        if target.filter is None and target.set is None:
            return self
        texts = json.dumps([target.filter, None if target.set is None else list(target.set.items())])
        digest = hashlib.sha256(texts.encode()).hexdigest()[:16]
        numbers = {column.name: column.attnum for column in relation.columns if column.name in reads}
        moved = () if before is None else tuple(before.moved(numbers, digest))
        if not moved:
            return dataclasses.replace(self, reads=numbers, expressions=digest)
        why = f"{', '.join(moved)} in the map's expressions names another column than before"
        return dataclasses.replace(
            self, reads=numbers, expressions=digest, moved=moved, why_copy=self.why_copy or why,
            told=(*self.told, why), is_change=True,
        )  # fmt: skip


def plan(  # noqa: PLR0913 (facts of both sides)
    target: Target,
    schema: LakeSchema,
    key: tuple[str, ...],
    relation: Relation,
    known: SourceColumns | None,
    others: frozenset[int],
    place: str,
    *,
    others_names: Mapping[str, frozenset[int]] = NOBODY,
    takes_defaults: bool = False,
) -> Evolution:
    """Return what makes the lake table hold a source table as its catalog shows it.

    Args:
        target: What the map says of the table.
        schema: The lake table's.
        key: Names of its key fields, without sid.
        relation: From the catalog.
        known: What was remembered of it; None for a source that is new to the table.
        others: Ids of fields that other sources fill.
        place: Source and table, for messages.
        others_names: Name of a column of another source -> ids of the fields that it fills there.
        takes_defaults: Whether the lake's format knows defaults of fields.

    Raises:
        SchemaError: Another table has the name now, or what other sources need stands against it.
    """
    if known is not None and known.oid != relation.oid:
        refuse_another(known, relation, place, target.name)
    made = _Planning(target, schema, key, relation, known, others, place)
    made.others_names = others_names
    made.takes_defaults = takes_defaults
    return made.make()


def refuse_another(known: SourceColumns, relation: Relation, place: str, target: str) -> NoReturn:
    """Refuse another table of the same name.

    Raises:
        SchemaError: Always.
    """
    message = (
        f"{place}: this is not the table that was copied (OID {known.oid}, now {relation.oid}):"
        " it was dropped and created again, or the map names another"
    )
    raise SchemaError(message, hint=f"kuvasz resync --table {target} copies it in place of the one it has")


def by_name(
    planned: Evolution, relation: Relation, known: SourceColumns | None, place: str, target: str
) -> Evolution:
    """Return a plan for a table whose fields the map names, so that they are found by name.

    Args:
        planned: For the table as the map makes it.
        relation: The source table itself.
        known: What was remembered of it.
        place: Source and table, for messages.
        target: The lake table.

    Raises:
        SchemaError: Another table has the name now.
    """
    if known is not None and known.oid != relation.oid:
        refuse_another(known, relation, place, target)
    changes = [] if known is None else compare(known, relation)
    told = tuple(change.describe() for change in changes)
    why = next((f"{change.describe()}: {change.why_copy}" for change in changes if change.why_copy), "")
    is_key_other = any(change.why_copy and change.name in relation.key for change in changes)
    return dataclasses.replace(
        planned, added={}, fields={}, told=told, why_copy=why, has_other_key_values=is_key_other,
        is_change=bool(changes),
    )  # fmt: skip


def strays(schema: LakeSchema, columns: Mapping[str, SourceColumns], source: str) -> dict[str, str | None]:
    """Return fields a source fills that someone else renamed or dropped: name to have -> name now, None if gone.

    A field has a name of a column of some source that fills or filled it, or is set aside under one.

    Args:
        schema: The lake table's.
        columns: Source -> what is remembered of its columns.
        source: The source.
    """
    names: dict[int, set[str]] = {}
    for column in (column for known in columns.values() for column in known.columns.values()):
        for field_id in (column.field, *column.left):
            names.setdefault(field_id, set()).update(column.names)
    now = {field.field_id: field.name for field in schema.fields}
    live = columns[source].live.values() if source in columns else ()
    return {
        column.name: now.get(column.field)
        for column in live
        if column.field and _SET_ASIDE.sub("", now.get(column.field, "")) not in names[column.field]
        and now.get(column.field) not in names[column.field]
    }  # fmt: skip


class _Planning:
    """A plan in the making."""

    def __init__(
        self,
        target: Target,
        schema: LakeSchema,
        key: tuple[str, ...],
        relation: Relation,
        known: SourceColumns | None,
        others: frozenset[int],
        place: str,
    ) -> None:
        self._target = target
        self._relation = relation
        self._known = known
        self._others = others
        self._place = place
        self._wanted = {field.name: field for field in wanted(target, relation)}
        self._before = {field.field_id: field for field in schema.fields}
        self._fields = dict(self._before)
        self._key = [field.field_id for name in key if (field := schema.by_name(name)) is not None]
        self._old_key = list(self._key)
        self._numbers: dict[int, int] = {}
        for number, column in ({} if known is None else known.columns).items():
            field = self._fields.get(column.field) if column.is_bound else schema.by_name(column.name)
            if field is not None:
                self._numbers[number] = field.field_id
        self._added: dict[int, Field] = {}
        self._left: dict[int, str] = {}  #: number of a column that had to leave its field -> why
        self._widened: dict[int, ValueType] = {}
        self._told: list[str] = []
        self._why_copy = ""
        self._has_other_key = False
        self.others_names: Mapping[str, frozenset[int]] = NOBODY
        self.takes_defaults = False

    def make(self) -> Evolution:
        """Work it out."""
        found = [] if self._known is None else compare(self._known, self._relation)
        changes = [change for change in found if self._counts(change) and not self._is_asked(change)]
        self._check_names(changes)
        kinds: dict[int, dict[ChangeKind, Change]] = {}
        for change in changes:
            kinds.setdefault(change.number, {})[change.kind] = change
        columns = [column for column in self._relation.columns if column.name in self._wanted]
        for column in self._relation.columns:
            if column.name not in self._wanted:
                self._numbers.pop(column.attnum, None)
        self._settle_names([column for column in columns if ChangeKind.RENAME in kinds.get(column.attnum, {})])
        placed: set[int] = set()
        while waiting := [column for column in columns if not self._is_placed(column, placed)]:
            for column in waiting:
                placed.add(column.attnum)
                self._place_column(column, kinds.get(column.attnum, {}))
        for change in changes:
            if change.kind is ChangeKind.DROP:
                self._told.append(f"{change.describe()}: it stays and is no longer filled")
            elif change.kind in {ChangeKind.REWRITE, ChangeKind.REDEFINE}:
                self._copy(change)
        for change in found if self._target.filter is not None else ():
            if not self._counts(change):
                self._copy(change)  # the filter may look at it
        names = self._key_names()
        refuse_alike((*self._fields.values(), *self._added.values()), self._place)
        return Evolution(
            steps=tuple(self._steps()),
            added={number: field.name for number, field in self._added.items()},
            fields=self._numbers,
            key=names,
            told=tuple(self._told),
            why_copy=self._why_copy,
            has_other_key=self._has_other_key,
            has_other_key_values=any(change.why_copy and change.name in self._relation.key for change in changes),
            is_change=bool(changes) or self._has_other_key,
        )

    def _counts(self, change: Change) -> bool:
        """Whether a change is of a column that the map takes."""
        assert self._known is not None
        if change.kind is not ChangeKind.DROP:
            return change.name in self._wanted
        before = self._known.columns[change.number]
        return before.field != 0 or not before.is_bound

    def _is_asked(self, change: Change) -> bool:
        """Whether a type was only not remembered yet as the map has it, and the lake's is the asked one."""
        if not change.is_asked:
            return False
        field = self._fields.get(self._numbers.get(change.number, 0))
        return field is not None and is_same(self._wanted[change.name].type, field.type)

    def _check_names(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.kind is not ChangeKind.RENAME:
                continue
            if change.before in self._target.mask:
                message = f"{self._place}: {change.describe()}, and the map masks it by its earlier name"
                raise SchemaError(message, hint="change the name in `mask`, and start again")
            if change.before in self._target.types:
                message = f"{self._place}: {change.describe()}, and the map gives it a type by its earlier name"
                raise SchemaError(message, hint="change the name in `types` or `decimals`, and start again")

    # Names

    def _settle_names(self, columns: Sequence[Column]) -> None:
        """Have renamed columns fill fields of their new names.

        A field follows its column, but never so that a column of another source is shown under the name of one that
        this other source has beside it: then the values of the renamed column move, not the name.
        """
        for column in columns:
            holder = self._by_name(column.name)
            if column.attnum in self._numbers and holder is not None and holder.field_id in self._others:
                if holder.field_id != self._numbers[column.attnum]:
                    before = self._name_before(column)
                    self._want_copy(f"column {before} was renamed to {column.name}, which other sources have too")
                self._fill(column, holder)
        moving = {self._numbers.get(one.attnum) for one in columns}
        for column in columns:
            field_id = self._numbers.get(column.attnum)
            field = None if field_id is None else self._fields.get(field_id)
            change = f"column {self._name_before(column)} was renamed to {column.name}"
            if field is None:
                continue  # `_place_column` finds another one
            if field.name == column.name:
                self._told.append(f"{change}: the lake has that name already")
            elif self._is_of_another(column.name, field.field_id):
                del self._numbers[column.attnum]
                self._left[column.attnum] = f"{change}, and other sources go on filling {field.name}"
            else:
                holder = self._by_name(column.name)
                if holder is not None and holder.field_id not in moving:
                    self._set_aside(holder)
                self._fields[field.field_id] = dataclasses.replace(field, name=column.name)
                self._told.append(f"{change}: the lake's too")

    def _fill(self, column: Column, field: Field) -> None:
        """Have a column fill the field of its name; another column of this source that did so leaves it."""
        names = {one.attnum: one.name for one in self._relation.columns}
        for number, one in list(self._numbers.items()):
            if one == field.field_id and number in names and number != column.attnum:
                del self._numbers[number]
                self._left[number] = f"column {names[number]} filled {field.name}, which is another one now"
        self._numbers[column.attnum] = field.field_id

    def _is_of_another(self, name: str, field_id: int) -> bool:
        """Whether a field of another source would get the name of a column which that source has elsewhere."""
        return field_id in self._others and bool(self.others_names.get(name, frozenset()) - {field_id})

    def _name_before(self, column: Column) -> str:
        assert self._known is not None
        return self._known.columns[column.attnum].name

    def _by_name(self, name: str) -> Field | None:
        fields = [*self._fields.values(), *self._added.values()]
        return next((field for field in fields if field.name == name), None)

    def _set_aside(self, field: Field) -> str:
        """Rename a field that stays for its old values; return its name."""
        number = 1
        while self._by_name(name := f"{field.name}__old{number if number > 1 else ''}") is not None:
            number += 1
        self._fields[field.field_id] = dataclasses.replace(field, name=name)
        return name

    # Columns

    def _is_placed(self, column: Column, placed: set[int]) -> bool:
        """Whether a column was placed, and has not had to leave its field since."""
        return column.attnum in placed and (column.attnum in self._numbers or column.attnum in self._added)

    def _place_column(self, column: Column, changes: Mapping[ChangeKind, Change]) -> None:
        field_id = self._numbers.get(column.attnum)
        if field_id is not None and ChangeKind.ADD not in changes:
            self._fit(column, self._fields[field_id], changes.get(ChangeKind.RETYPE))
            return
        added = changes.get(ChangeKind.ADD)
        holder = self._by_name(column.name)
        what = f"column {column.name} was added"
        if holder is not None and self._was_mine(holder.field_id, column.attnum):
            if holder.field_id not in self._others:
                what += f": the earlier one is {self._set_aside(holder)} now"
                holder = None
        elif (
            self._known is not None
            and holder is not None
            and holder.field_id not in self._others
            and not self._reads(column, holder)
        ):
            what += f": a field of that name with another type is {self._set_aside(holder)} now"
            holder = None
        default = self._default(column) if added is not None and added.is_constant and holder is None else None
        if holder is None:
            self._add(column, default)
        else:
            self._fill(column, holder)
            self._fit(column, holder, None)
        if added is not None:
            self._told.append(what if default is None else f"{what}: rows that were there have {default!r}")
            if default is None:
                self._copy(added)
        elif column.attnum in self._left:
            self._told.append(self._left[column.attnum])
            self._want_copy(self._left[column.attnum])
        elif self._known is not None and self._known.columns[column.attnum].is_bound:
            self._told.append(f"column {column.name} was left out until now")
            self._want_copy(f"column {column.name} was left out until now")

    def _was_mine(self, field_id: int, attnum: int) -> bool:
        """Whether another column of this source fills or filled a field."""
        return any(one == field_id and number != attnum for number, one in self._numbers.items())

    def _default(self, column: Column) -> Any:  # noqa: ANN401 (JSON)
        """Return the constant that rows of before have in a new column, if the lake can say so without a copy."""
        # A field's default is of all rows that lack it: those of other sources have nothing of the kind.
        is_ours = not self._others and column.name not in self._target.mask and not column.asked
        if not self.takes_defaults or not is_ours or column.missing is None:
            return None
        return defaults.of_text(column.pg_type, self._wanted[column.name].type, column.missing)

    def _add(self, column: Column, default: Any = None) -> None:  # noqa: ANN401 (JSON)
        field = self._wanted[column.name]
        self._added[column.attnum] = dataclasses.replace(field, required=False, initial_default=default)
        self._numbers.pop(column.attnum, None)

    def _fit(self, column: Column, field: Field, retyped: Change | None) -> None:
        source = self._wanted[column.name].type
        is_text_of_other = (
            retyped is not None and field.type.kind is LakeType.STRING and source.kind is not LakeType.STRING
        )
        if not is_text_of_other and self._reads(column, field):
            if retyped is not None:
                self._told.append(f"{retyped.describe()}: the lake's holds it")
                self._copy(retyped)
        elif self._known is not None and _is_wider(source, field.type):
            self._fields[field.field_id] = dataclasses.replace(field, type=source)
            self._widened[field.field_id] = source
            self._told.append(f"column {column.name} was given a wider type: the lake's too")
            if retyped is not None:
                self._copy(retyped)
        elif self._known is None or (field.field_id in self._key and self._others):
            reading_type(column, field, self._place)  # raises
        else:
            self._give_another(column, field)

    def _give_another(self, column: Column, field: Field) -> None:
        """Have a column fill another field than before, whose type cannot hold its values."""
        holder = self._by_name(column.name)
        what = f"column {column.name} was given another type"
        if (
            holder is not None
            and holder is not field
            and holder.field_id in self._others
            and self._reads(column, holder)
        ):
            self._fill(column, holder)  # another source went first
            to = holder.field_id
        else:
            if holder is not None:
                what += f": the earlier one is {self._set_aside(holder)} now"
            self._add(column)
            to = -column.attnum
        self._key = [to if one == field.field_id else one for one in self._key]
        self._told.append(what)
        self._want_copy(f"column {column.name} was given another type")

    def _reads(self, column: Column, field: Field) -> bool:
        try:
            reading_type(column, field, self._place)
        except SchemaError:
            return False
        return True

    # Copy, key, steps

    def _copy(self, change: Change) -> None:
        if change.why_copy:
            self._want_copy(f"{change.describe()}: {change.why_copy}")

    def _want_copy(self, why: str) -> None:
        self._why_copy = self._why_copy or why

    def _key_names(self) -> tuple[str, ...]:
        """Return the key's names after the steps; another key needs a copy, and a table of this source alone."""
        wanted_key = []
        for name in self._relation.key:
            number = next(column.attnum for column in self._relation.columns if column.name == name)
            wanted_key.append(-number if number in self._added else self._numbers.get(number, 0))
        if self._known is None or set(wanted_key) == set(self._key):
            return tuple(self._name_of(field_id) for field_id in self._key)
        if self._others:
            message = (
                f"{self._place}: its key is ({', '.join(self._relation.key)}) now, but other sources of"
                f" {self._target.name} have ({', '.join(self._name_of(field_id) for field_id in self._key)})"
            )
            hint = "change the key back, or in all sources, and then drop the lake table to copy them anew"
            raise SchemaError(message, hint=hint)
        self._told.append(f"the key is ({', '.join(self._relation.key)}) now")
        self._want_copy("the key was changed")
        self._has_other_key = True
        self._key = wanted_key
        return tuple(self._name_of(field_id) for field_id in wanted_key)

    def _name_of(self, field_id: int) -> str:
        return self._added[-field_id].name if field_id < 0 else self._fields[field_id].name

    def _steps(self) -> list[Step]:
        steps: list[Step] = []
        left = [self._before[number] for number in self._old_key if number not in self._key]
        required = [field for field in left if field.required]
        if required:
            steps.append(RelaxFields(tuple(field.name for field in required)))
        steps += _renames(self._before, self._fields)
        steps += [WidenField(self._fields[number].name, kind) for number, kind in self._widened.items()]
        steps += [AddField(field) for field in self._added.values()]
        return steps


def _renames(before: Mapping[int, Field], after: Mapping[int, Field]) -> list[Step]:
    """Return renames in an order in which no two fields ever have one name."""
    steps: list[Step] = []
    names = {number: field.name for number, field in before.items()}
    waiting = {number: after[number].name for number in before if after[number].name != names[number]}
    while waiting:
        taken = set(names.values())
        free = next((number for number, name in waiting.items() if name not in taken), None)
        if free is None:  # a ring: one of them steps aside
            free = next(iter(waiting))
            name = f"{names[free]}__moving"
        else:
            name = waiting.pop(free)
        steps.append(RenameField(names[free], name))
        names[free] = name
    return steps


def _is_wider(source: ValueType, lake: ValueType) -> bool:
    """Whether Iceberg promotes the lake's type to the source's."""
    if (lake.kind, source.kind) in {(LakeType.INT, LakeType.LONG), (LakeType.FLOAT, LakeType.DOUBLE)}:
        return True
    is_decimal = lake.kind is source.kind is LakeType.DECIMAL
    return is_decimal and lake.scale == source.scale and source.precision > lake.precision
