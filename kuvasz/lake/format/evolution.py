"""What is to be done for one source table whose columns changed, and what to remember then. Pure."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from kuvasz.evolve import known as known_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kuvasz.evolve.known import SourceColumns
    from kuvasz.evolve.sights import Sight
    from kuvasz.lake.format.schema import LakeSchema
    from kuvasz.lake.format.schema_steps import Step
    from kuvasz.model import Relation
    from kuvasz.ports import Target


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """What is to be done for one source table."""

    steps: tuple[Step, ...] = ()
    added: Mapping[int, str]  #: number of a column -> name of the field that is added for it
    fields: Mapping[int, int]  #: number of a column -> id of the field that was there
    key: tuple[str, ...]  #: of the table, after the steps
    told: tuple[str, ...] = ()  #: what changed at the source and what is done about it, in words
    #: id of a field -> the name that it is given, also where it is set aside for one of that name
    renamed: Mapping[int, str] = dataclasses.field(default_factory=dict)
    why_copy: str = ""  #: why the source's rows have to be copied again; empty if they have not
    has_other_key: bool = False  #: whether other columns identify a row than before
    why_other_keys: str = ""  #: why the values of those columns may be others now; empty if they may not
    is_change: bool = False  #: whether anything that the map takes changed at the source
    reads: Mapping[str, int] = dataclasses.field(default_factory=dict)  #: as `SourceColumns.reads`
    expressions: str = ""  #: as `SourceColumns.expressions`
    moved: tuple[str, ...] = ()  #: names that the map's expressions read, and that mean other columns now

    def columns(
        self,
        relation: Relation,
        schema: LakeSchema,
        before: SourceColumns | None,
        from_lsn: int | None = None,
        sight: Sight | None = None,
    ) -> SourceColumns:
        """Return what to remember, given the schema after the steps.

        Args:
            relation: From the catalog, as the map makes it.
            schema: The lake table's, after the steps.
            before: What was remembered until now.
            from_lsn: Rows that committed before it are in the lake; None: not known.
            sight: What the look showed, whatever the map makes of it; None: the relation says.
        """
        fields, defaults = dict(self.fields), {}
        for number, name in self.added.items():
            field = schema.by_name(name)
            assert field is not None
            fields[number] = field.field_id
            defaults[number] = 0 if field.initial_default is None else field.field_id
        known = known_columns.of(relation, fields, before, from_lsn, sight)
        columns = {
            number: dataclasses.replace(column, default_of=defaults.get(number, column.default_of))
            for number, column in known.columns.items()
        }
        return dataclasses.replace(known, columns=columns, reads=self.reads, expressions=self.expressions)

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
        digest = known_columns.expressions_of(target.filter, target.set)
        if not digest:
            return self
        numbers = {column.name: column.attnum for column in relation.columns if column.name in reads}
        moved = () if before is None else tuple(before.moved(numbers, digest))
        if not moved:
            return dataclasses.replace(self, reads=numbers, expressions=digest)
        why = f"{', '.join(moved)} in the map's expressions names another column than before"
        return dataclasses.replace(
            self, reads=numbers, expressions=digest, moved=moved, why_copy=self.why_copy or why,
            told=(*self.told, why), is_change=True,
        )  # fmt: skip


__all__ = ["Evolution"]
