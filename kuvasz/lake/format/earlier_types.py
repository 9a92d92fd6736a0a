"""Fields for rows of a backlog whose types no look has shown: their columns have others by now. Pure.

A column that was given another type leaves the field that it filled to older rows (`KnownColumn.left`). If it came
and was given another type between two looks, there is no such field; the message says which type its rows are of, and
the catalog proves which column they mean (`kuvasz.evolve.column_numbers`).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from kuvasz.lake.format.binding import choices, held_by
from kuvasz.lake.format.field_plan import FieldPlan
from kuvasz.lake.format.schema import wanted
from kuvasz.lake.format.schema_steps import AddField

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kuvasz.evolve.known import SourceColumns
    from kuvasz.lake.format.schema import Field, LakeSchema
    from kuvasz.model import Relation
    from kuvasz.ports import Target


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EarlierTypes:
    """What is to be added for the rows of a message."""

    fields: Mapping[int, Field]  #: number of a column -> its further field

    @property
    def steps(self) -> tuple[AddField, ...]:
        """Return what adds them."""
        return tuple(AddField(field) for field in self.fields.values())

    @property
    def told(self) -> tuple[str, ...]:
        """Return it in words."""
        return tuple(
            f"rows of a backlog are of a type that no field of their column holds: they go to {field.name}"
            for field in self.fields.values()
        )

    def remembered(self, known: SourceColumns, schema: LakeSchema) -> SourceColumns:
        """Return what is known of the source's columns, given the schema with the fields."""
        columns = dict(known.columns)
        for number, added in self.fields.items():
            field = schema.by_name(added.name)
            assert field is not None
            columns[number] = dataclasses.replace(columns[number], left=(*columns[number].left, field.field_id))
        return dataclasses.replace(known, columns=columns)


def lacking(
    target: Target, schema: LakeSchema, key: tuple[str, ...], relation: Relation, known: SourceColumns
) -> EarlierTypes:
    """Return what the table lacks for rows that a message describes.

    Of the key there is one field only: rows of another type stop the table.

    Args:
        target: What the map says of the table.
        schema: The lake table's.
        key: Names of its key fields.
        relation: The message's, as the map makes it, with numbered columns.
        known: What is known of the source's columns.
    """
    older = known.older(relation)
    plan, made = FieldPlan(schema, key), {field.name: field for field in wanted(target, relation)}
    for column in relation.columns:
        found = choices(column, schema, known.fields, known.left)
        is_older = column.attnum in older
        if not found or found[0].name in key or held_by(column, found, key, is_older=is_older) is not None:
            continue
        name = plan.name_aside(found[0])
        plan.added[column.attnum] = dataclasses.replace(made[column.name], name=name, required=False)
    return EarlierTypes(fields=plan.added)


__all__ = ["EarlierTypes", "lacking"]
