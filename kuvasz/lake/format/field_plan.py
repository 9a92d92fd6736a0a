"""The fields of a lake table as a plan will leave them, and the steps that lead there. Pure."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from kuvasz.lake.format.schema_steps import AddField, RelaxFields, RenameField, WidenField

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kuvasz.lake.format.schema import Field, LakeSchema
    from kuvasz.lake.format.schema_steps import Step
    from kuvasz.model import ValueType

#: What `FieldPlan.set_aside` appends to names.
_SET_ASIDE = re.compile(r"__old\d*$")


class FieldPlan:
    """The fields of one table.

    Args:
        schema: The lake table's, before.
        key: Names of its key fields, without sid.
    """

    def __init__(self, schema: LakeSchema, key: tuple[str, ...]) -> None:
        self._before = {field.field_id: field for field in schema.fields}
        self._old_key = [field.field_id for name in key if (field := schema.by_name(name)) is not None]
        self._widened: dict[int, ValueType] = {}
        self.now = dict(self._before)  #: by their ids
        self.added: dict[int, Field] = {}  #: number of a column -> the field that is added for it
        self.key = list(self._old_key)  #: ids; of a field that is added the column's number, negative

    def all(self) -> tuple[Field, ...]:
        """Return the fields, those that are added last."""
        return *self.now.values(), *self.added.values()

    def by_name(self, name: str) -> Field | None:
        """Return the field of a name."""
        return next((field for field in self.all() if field.name == name), None)

    def key_names(self) -> tuple[str, ...]:
        """Return the names of the key's fields after the steps."""
        return tuple(self.added[-one].name if one < 0 else self.now[one].name for one in self.key)

    def moved_key(self) -> tuple[str, ...]:
        """Return the names of the key's columns that are in another field than they were."""
        names = zip(self._old_key, self.key, self.key_names(), strict=True)
        return tuple(name for before, now, name in names if before != now)

    def rename(self, field_id: int, name: str) -> None:
        """Give a field another name."""
        self.now[field_id] = dataclasses.replace(self.now[field_id], name=name)

    def set_aside(self, field: Field) -> str:
        """Rename a field that stays for its old values; return its name."""
        name = _free_name(field.name, self)
        self.rename(field.field_id, name)
        return name

    def part_alike(self, name: str, filled: Collection[int]) -> None:
        """Put aside fields that nobody fills any more and whose names differ from one in case only.

        Args:
            name: The name that a field gets.
            filled: The ids of the fields that any source fills.
        """
        for field in tuple(self.now.values()):
            if field.name != name and field.name.lower() == name.lower() and field.field_id not in filled:
                self.set_aside(field)

    def name_aside(self, field: Field) -> str:
        """Return the name of a further field for old values of the column that fills one."""
        return _free_name(name_before(field.name), self)

    def widen(self, field_id: int, kind: ValueType) -> None:
        """Promote the type of a field."""
        self.now[field_id] = dataclasses.replace(self.now[field_id], type=kind)
        self._widened[field_id] = kind

    def renamed(self) -> dict[int, str]:
        """Return the fields that get another name, by their ids, and the name."""
        return {number: field.name for number, field in self.now.items() if field.name != self._before[number].name}

    def steps(self) -> tuple[Step, ...]:
        """Return what leads there."""
        left = [self._before[number] for number in self._old_key if number not in self.key]
        required = tuple(field.name for field in left if field.required)
        return (
            *((RelaxFields(required),) if required else ()),
            *_renames(self._before, self.now),
            *(WidenField(self.now[number].name, kind) for number, kind in self._widened.items()),
            *(AddField(field) for field in self.added.values()),
        )


def name_before(name: str) -> str:
    """Return the name that a field had before it was set aside, if it was."""
    return _SET_ASIDE.sub("", name)


def _free_name(name: str, plan: FieldPlan) -> str:
    number = 1
    while plan.by_name(free := f"{name}__old{number if number > 1 else ''}") is not None:
        number += 1
    return free


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


__all__ = ["FieldPlan", "name_before"]
