"""What a lake table does about a changed source table: fields to add, rename, widen, and whether to copy. Pure.

A source's columns are bound to fields by number and field id, so a field may bear another name than the column that
fills it: it follows the first source that renames. The lake always goes to what the catalog shows *now*; rows of a
backlog find their fields by number, whatever the columns were called in their time.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final, NoReturn

from kuvasz.errors import SchemaError, resync_of
from kuvasz.evolve.changes import Change, ChangeKind, compare
from kuvasz.lake.format.evolution import Evolution
from kuvasz.lake.format.field_plan import FieldPlan, name_before
from kuvasz.lake.format.schema import (
    Field,
    LakeSchema,
    is_same,
    reading_type,
    reads,
    refuse_alike,
    refuse_unread,
    wanted,
)
from kuvasz.model import LONG, LakeType, TableType
from kuvasz.modes import defaults

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from kuvasz.evolve.known import SourceColumns
    from kuvasz.model import Column, Relation, ValueType
    from kuvasz.ports import Target

#: Columns of a table that several sources fill. One source's table has at most 1,600, but whoever adds and drops them
#: all the time would give everybody's table as many as he likes: a column that is dropped stays in the lake.
MOST_COLUMNS: Final = 2000

_OTHER_KEY = "the key was changed"

#: Types of tables in which a row that comes is the next version of the one with its key.
_FOUND_BY_KEY = (TableType.CLONE, TableType.HISTORY)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OtherSources:
    """What the other sources of a lake table fill, and where rows of theirs have values from before."""

    fields: frozenset[int] = frozenset()  #: ids of those that they fill
    have_rows: bool = False  #: whether there are any with rows, whatever is known of their columns
    kept: frozenset[int] = frozenset()  #: ids of those that they filled: for a column that was dropped, or has left
    #: name of a column there -> ids of the fields that it fills
    names: Mapping[str, frozenset[int]] = dataclasses.field(default_factory=dict)

    def have_elsewhere(self, name: str, field_id: int) -> bool:
        """Whether a field has values of theirs, and they have a column of that name in another one."""
        has_values = field_id in self.fields | self.kept
        return has_values and bool(self.names.get(name, frozenset()) - {field_id})


def plan(
    target: Target,
    schema: LakeSchema,
    key: tuple[str, ...],
    relation: Relation,
    known: SourceColumns | None,
    others: OtherSources,
    place: str,
    *,
    takes_defaults: bool = False,
) -> Evolution:
    """Return what makes the lake table hold a source table as its catalog shows it.

    Args:
        target: What the map says of the table.
        schema: The lake table's.
        key: Names of its key fields, without sid.
        relation: From the catalog.
        known: What was remembered of it; None for a source that is new to the table.
        others: What other sources fill.
        place: Source and table, for messages.
        takes_defaults: Whether the lake's format knows defaults of fields.

    Raises:
        SchemaError: Another table has the name now, or what other sources need stands against it.
    """
    if known is not None and known.oid != relation.oid:
        refuse_another(known, relation, place, target.name)
    made = _Planning(target, schema, key, relation, known, others, place, takes_defaults=takes_defaults)
    return made.make(was_keyed=known is not None)


def refuse_another(known: SourceColumns, relation: Relation, place: str, target: str) -> NoReturn:
    """Refuse another table of the same name.

    Raises:
        SchemaError: Always.
    """
    message = (
        f"{place}: this is not the table that was copied (OID {known.oid}, now {relation.oid}):"
        " it was dropped and created again, or the map names another"
    )
    raise SchemaError(message, hint=f"{resync_of(target)} copies it in place of the one it has")


def by_name(
    target: Target,
    schema: LakeSchema,
    key: tuple[str, ...],
    view: Relation,
    relation: Relation,
    known: SourceColumns | None,
    others: OtherSources,
    place: str,
) -> Evolution:
    """Return the same for a table whose fields the map names, so that they are found by name.

    Args:
        target: What the map says of the table.
        schema: The lake table's.
        key: Names of its key fields, without sid.
        view: The source table as the map makes it, with numbers that mean nothing.
        relation: The source table itself.
        known: What was remembered of it.
        others: What other sources fill.
        place: Source and table, for messages.

    Raises:
        SchemaError: Another table has the name now, or what other sources need stands against it.
    """
    if known is not None and known.oid != relation.oid:
        refuse_another(known, relation, place, target.name)
    made = _Planning(target, schema, key, view, None, others, place, takes_defaults=False)
    planned = made.make(was_keyed=known is not None)
    changes = [] if known is None else compare(known, relation)
    told = tuple(change.describe() for change in changes)
    why = next((_why(change) for change in changes if change.why_copy), "")
    if planned.has_other_key:
        told, why = (*told, _told_of_key(planned.key)), why or _OTHER_KEY
    return dataclasses.replace(
        planned, added={}, fields={}, told=told, why_copy=why, why_other_keys=_why_other_keys(changes, relation),
        is_change=bool(changes) or planned.has_other_key,
    )  # fmt: skip


def _told_of_key(names: Sequence[str]) -> str:
    return f"the key is ({', '.join(names)}) now"


def names_by_field(columns: SourceColumns) -> frozenset[tuple[int, str]]:
    """Return id and name of every field that columns of one source fill or filled, by every name that they had."""
    return frozenset(
        (field_id, name)
        for column in columns.columns.values()
        for field_id in (column.field, *column.left)
        for name in column.names
    )


def strays(
    schema: LakeSchema, names: Mapping[int, Collection[str]], mine: SourceColumns | None
) -> dict[str, str | None]:
    """Return fields a source fills that someone else renamed or dropped: name to have -> name now, None if gone.

    A field has a name of a column of some source that fills or filled it, or is set aside under one.

    Args:
        schema: The lake table's.
        names: Id of a field -> the names that it may have, see `names_by_field`; of all sources.
        mine: What is remembered of the source's columns.
    """
    now = {field.field_id: field.name for field in schema.fields}
    live = () if mine is None else mine.live.values()
    return {
        column.name: now.get(column.field)
        for column in live
        if column.field and name_before(now.get(column.field, "")) not in names[column.field]
        and now.get(column.field) not in names[column.field]
    }  # fmt: skip


def _refuse_many(count: int, target: Target, place: str) -> None:
    """Refuse more columns in a table that others fill, too: they are in its metadata, and in all that is read."""
    if count > MOST_COLUMNS:
        message = (
            f"{place}: {target.name} would have {count:,} columns, those that were dropped included, and has at most"
            f" {MOST_COLUMNS:,} while several sources fill it"
        )
        hint = "name the wanted ones with `columns`, or give this source's table another `target`; then retry"
        raise SchemaError(message, hint=hint)


class _Planning:
    """A plan in the making."""

    def __init__(
        self,
        target: Target,
        schema: LakeSchema,
        key: tuple[str, ...],
        relation: Relation,
        known: SourceColumns | None,
        others: OtherSources,
        place: str,
        *,
        takes_defaults: bool,
    ) -> None:
        self._target = target
        self._relation = relation
        self._known = known
        self._others = others
        self._place = place
        self._wanted = {field.name: field for field in wanted(target, relation)}
        self._takes_defaults = takes_defaults
        self._fields = FieldPlan(schema, key)
        self._numbers: dict[int, int] = {}  #: number of a column -> id of the field that it fills
        for number, column in ({} if known is None else known.columns).items():
            field = self._fields.now.get(column.field) if column.is_bound else schema.by_name(column.name)
            if field is not None:
                self._numbers[number] = field.field_id
        self._left: dict[int, str] = {}  #: number of a column that had to leave its field -> why
        self._told: list[str] = []
        self._why_copy = ""

    def make(self, *, was_keyed: bool) -> Evolution:
        """Work it out; a source whose rows were identified by the table's key may have another one now.

        So may one that is new to a table whose rows are found by its key: another source table than the one that
        the lake table was made for, before any row of it came.
        """
        found = [] if self._known is None else compare(self._known, self._relation)
        changes = [change for change in found if self._counts(change) and not self._is_asked(change)]
        _refuse_hidden(changes, self._target, self._place)
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
            elif change.kind in {ChangeKind.REWRITE, ChangeKind.REKEY, ChangeKind.REDEFINE}:
                self._copy(change)
        for change in found if self._target.filter is not None else ():
            if not self._counts(change):
                self._copy(change)  # the filter may look at it
        moved = self._fields.moved_key()
        has_other_key = (was_keyed or self._target.type in _FOUND_BY_KEY) and self._take_key()
        refuse_alike(self._fields.all(), self._place)
        came = [field.name for field in self._fields.added.values()]
        beside = [field.name for field in self._fields.all()]
        refuse_unread([*came, *self._fields.renamed().values()], beside, self._place)
        if self._fields.added and (self._others.have_rows or self._others.fields):
            _refuse_many(len(self._fields.all()), self._target, self._place)
        return Evolution(
            steps=self._fields.steps(),
            added={number: field.name for number, field in self._fields.added.items()},
            fields=self._numbers,
            key=self._fields.key_names(),
            told=tuple(self._told),
            renamed=self._fields.renamed(),
            why_copy=self._why_copy,
            has_other_key=has_other_key,
            why_other_keys=_why_other_keys(changes, self._relation) or next(map(_why_moved, moved), ""),
            is_change=bool(changes) or has_other_key,
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
        field = self._fields.now.get(self._numbers.get(change.number, 0))
        return field is not None and is_same(self._wanted[change.name].type, field.type)

    # Names

    def _settle_names(self, columns: Sequence[Column]) -> None:
        """Have renamed columns fill fields of their new names.

        A field follows its column, but never so that values of another source are shown under the name of a column
        that this other source has beside it, be they of a column that it has or of one that it had: then the values
        of the renamed column move, not the name.
        """
        for column in columns:
            self._join_others(column)
        for column in columns:
            self._leave_to_others(column)
        self._rename_fields([one for one in columns if one.attnum in self._numbers])

    def _join_others(self, column: Column) -> None:
        """Have a renamed column fill the field that has its name already, if other sources fill that."""
        holder = self._fields.by_name(column.name)
        if column.attnum not in self._numbers or holder is None or holder.field_id not in self._others.fields:
            return
        is_other = holder.field_id != self._numbers[column.attnum]
        if is_other and self._keeps_another(holder.field_id, column.attnum):
            self._fields.set_aside(holder)
            return
        if is_other:
            self._want_copy(f"{_rename_of(self._known, column)}, which other sources have too")
        self._fill(column, holder)

    def _leave_to_others(self, column: Column) -> None:
        """Have a renamed column leave a field with values of other sources that cannot go by its new name."""
        field = self._fields.now.get(self._numbers.get(column.attnum, 0))
        if field is None or field.name == column.name or not self._others.have_elsewhere(column.name, field.field_id):
            return
        del self._numbers[column.attnum]
        what = "go on filling" if field.field_id in self._others.fields else "have values in"
        self._left[column.attnum] = f"{_rename_of(self._known, column)}, and other sources {what} {field.name}"

    def _rename_fields(self, columns: Sequence[Column]) -> None:
        """Have the fields of renamed columns follow them."""
        moving = {self._numbers[column.attnum] for column in columns}
        for column in columns:
            field = self._fields.now.get(self._numbers[column.attnum])
            if field is None:
                continue  # `_place_column` finds another one
            if field.name == column.name:
                self._told.append(f"{_rename_of(self._known, column)}: the lake has that name already")
                continue
            holder = self._fields.by_name(column.name)
            if holder is not None and holder.field_id not in moving:
                self._fields.set_aside(holder)
            self._fields.part_alike(column.name, _filled(self._numbers, self._relation, self._others))
            self._fields.rename(field.field_id, column.name)
            self._told.append(f"{_rename_of(self._known, column)}: the lake's too")

    def _fill(self, column: Column, field: Field) -> None:
        """Have a column fill the field of its name; another column of this source that did so leaves it."""
        names = {one.attnum: one.name for one in self._relation.columns}
        for number, one in list(self._numbers.items()):
            if one == field.field_id and number in names and number != column.attnum:
                del self._numbers[number]
                self._left[number] = f"column {names[number]} filled {field.name}, which is another one now"
        self._numbers[column.attnum] = field.field_id

    # Columns

    def _is_placed(self, column: Column, placed: set[int]) -> bool:
        """Whether a column was placed, and has not had to leave its field since."""
        return column.attnum in placed and (column.attnum in self._numbers or column.attnum in self._fields.added)

    def _place_column(self, column: Column, changes: Mapping[ChangeKind, Change]) -> None:
        field_id = self._numbers.get(column.attnum)
        if field_id is not None and ChangeKind.ADD not in changes:
            self._fit(column, self._fields.now[field_id], changes.get(ChangeKind.RETYPE))
            return
        added = changes.get(ChangeKind.ADD)
        holder = self._fields.by_name(column.name)
        what = f"column {column.name} was added"
        if holder is not None and self._was_mine(holder.field_id, column.attnum):
            is_shared = holder.field_id in self._others.fields
            if is_shared and self._target.type is TableType.CLONE:
                self._want_copy(
                    f"column {column.name} was added again, and other sources go on filling the earlier one"
                )
            else:
                what += f": the earlier one is {self._fields.set_aside(holder)} now"
                what += ", which other sources go on filling" if is_shared else ""
                holder = None
        elif (
            self._known is not None
            and holder is not None
            and holder.field_id not in self._others.fields
            and not reads(column, holder)
        ):
            what += f": a field of that name with another type is {self._fields.set_aside(holder)} now"
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
        """Whether another column of this source fills or filled a field, whose values may still be there."""
        if any(one == field_id and number != attnum for number, one in self._numbers.items()):
            return True
        return self._keeps_another(field_id, attnum)

    def _keeps_another(self, field_id: int, attnum: int) -> bool:
        """Whether rows of this source keep values of another of its columns in a field."""
        if self._target.type is TableType.CLONE or self._known is None:
            return False  # whoever left one for another field was copied again
        columns = [one for number, one in self._known.columns.items() if number != attnum]
        return any(field_id in (one.field, *one.left) for one in columns)

    def _default(self, column: Column) -> Any:  # noqa: ANN401 (JSON)
        """Return the constant that rows of before have in a new column, if the lake can say so without a copy."""
        # A field's default is of all rows that lack it: those of other sources have nothing of the kind.
        is_ours = not self._others.fields and column.name not in self._target.mask and not column.asked
        if not self._takes_defaults or not is_ours or column.missing is None or column.missing.startswith(LONG):
            return None
        return defaults.of_text(column.pg_type, self._wanted[column.name].type, column.missing)

    def _add(self, column: Column, default: Any = None) -> None:  # noqa: ANN401 (JSON)
        self._fields.part_alike(column.name, _filled(self._numbers, self._relation, self._others))
        field = self._wanted[column.name]
        self._fields.added[column.attnum] = dataclasses.replace(field, required=False, initial_default=default)
        self._numbers.pop(column.attnum, None)

    def _fit(self, column: Column, field: Field, retyped: Change | None) -> None:
        source = self._wanted[column.name].type
        is_text_of_other = (
            retyped is not None and field.type.kind is LakeType.STRING and source.kind is not LakeType.STRING
        )
        if not is_text_of_other and reads(column, field):
            if retyped is not None:
                self._told.append(f"{retyped.describe()}: the lake's holds it")
                self._copy(retyped)
        elif self._known is not None and _is_wider(source, field.type):
            self._fields.widen(field.field_id, source)
            self._told.append(f"column {column.name} was given a wider type: the lake's too")
            if retyped is not None:
                self._copy(retyped)
        elif self._known is None or (field.field_id in self._fields.key and self._others.fields):
            reading_type(column, field, self._place)  # raises
        else:
            self._give_another(column, field)

    def _give_another(self, column: Column, field: Field) -> None:
        """Have a column fill another field than before, whose type cannot hold its values."""
        holder = self._fields.by_name(column.name)
        what = f"column {column.name} was given another type"
        if (
            holder is not None
            and holder is not field
            and holder.field_id in self._others.fields
            and reads(column, holder)
            and not self._keeps_another(holder.field_id, column.attnum)
        ):
            self._fill(column, holder)  # another source went first
            to = holder.field_id
        else:
            if holder is not None:
                what += f": the earlier one is {self._fields.set_aside(holder)} now"
            self._add(column)
            to = -column.attnum
        self._fields.key = [to if one == field.field_id else one for one in self._fields.key]
        self._told.append(what)
        self._want_copy(_why_moved(column.name))

    # Copy and key

    def _copy(self, change: Change) -> None:
        if change.why_copy:
            self._want_copy(_why(change))

    def _want_copy(self, why: str) -> None:
        self._why_copy = self._why_copy or why

    def _take_key(self) -> bool:
        """Take the source's key over, and say whether it is another one.

        Another key needs a copy, and a table of this source alone.
        """
        wanted_key = []
        for name in self._relation.key:
            number = next(column.attnum for column in self._relation.columns if column.name == name)
            wanted_key.append(-number if number in self._fields.added else self._numbers.get(number, 0))
        if set(wanted_key) == set(self._fields.key):
            return False
        if self._others.fields or self._others.have_rows:
            message = (
                f"{self._place}: its key is ({', '.join(self._relation.key)}) now, but other sources of"
                f" {self._target.name} have ({', '.join(self._fields.key_names())})"
            )
            hint = "change the key back, or in all sources, and then drop the lake table to copy them anew"
            raise SchemaError(message, hint=hint)
        self._told.append(_told_of_key(self._relation.key))
        self._want_copy(_OTHER_KEY)
        self._fields.key = wanted_key
        return True


def _filled(numbers: Mapping[int, int], relation: Relation, others: OtherSources) -> frozenset[int]:
    """Return the ids of the fields that any source fills."""
    return others.fields.union(numbers[one.attnum] for one in relation.columns if one.attnum in numbers)


def _why(change: Change) -> str:
    return f"{change.describe()}: {change.why_copy}"


def _why_moved(name: str) -> str:
    return f"column {name} was given another type"


def _why_other_keys(changes: Iterable[Change], relation: Relation) -> str:
    """Return why the values of a key's columns may be others now; empty if they may not."""
    of_key = (change for change in changes if change.why_copy and change.name in relation.key)
    return next(map(_why, of_key), "")


def _rename_of(known: SourceColumns | None, column: Column) -> str:
    """Return what happened to a renamed column, in words."""
    assert known is not None
    return f"column {known.columns[column.attnum].name} was renamed to {column.name}"


def _refuse_hidden(changes: Iterable[Change], target: Target, place: str) -> None:
    """Refuse a new name of a column that the map hides, leaves out or retypes by its earlier one.

    Raises:
        SchemaError: There is one.
    """
    for change in changes:
        if change.kind is not ChangeKind.RENAME:
            continue
        if change.before in target.mask:
            message = f"{place}: {change.describe()}, and the map masks it by its earlier name"
            raise SchemaError(message, hint="change the name in `mask`, and start again")
        if change.before in target.exclude:  # else the entry would seem to fit: another column has the name by now
            message = f"{place}: {change.describe()}, and the map leaves it out by its earlier name"
            raise SchemaError(message, hint=f"write {change.name} into `exclude`, too")
        if change.before in target.types:
            message = f"{place}: {change.describe()}, and the map gives it a type by its earlier name"
            raise SchemaError(message, hint="change the name in `types` or `decimals`, and start again")


def _is_wider(source: ValueType, lake: ValueType) -> bool:
    """Whether Iceberg promotes the lake's type to the source's."""
    if (lake.kind, source.kind) in {(LakeType.INT, LakeType.LONG), (LakeType.FLOAT, LakeType.DOUBLE)}:
        return True
    is_decimal = lake.kind is source.kind is LakeType.DECIMAL
    return is_decimal and lake.scale == source.scale and source.precision > lake.precision


__all__ = ["OtherSources", "by_name", "plan", "refuse_another", "strays"]
