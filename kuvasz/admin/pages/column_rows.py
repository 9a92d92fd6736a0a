"""The columns of a table at one of its sources, each beside the one that it is in the lake. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kuvasz import typemap
from kuvasz.lake.format.schema import SID
from kuvasz.modes import system_columns
from kuvasz.sync.rules.targets import target_of

if TYPE_CHECKING:
    from kuvasz.config.model import TableConfig
    from kuvasz.config.sources import SourceTableSpec
    from kuvasz.evolve.known import SourceColumns
    from kuvasz.model import Column
    from kuvasz.ports import LakeColumn, Target
    from kuvasz.source.catalog.table import SourceTable


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRow:
    """A column of either side, or of both; what is empty is not there."""

    at_source: str = ""
    type_there: str = ""
    in_lake: str = ""
    type_here: str = ""
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableColumns:
    """What is known of the columns of a table of a source."""

    spec: SourceTableSpec  #: what the map says of it
    table: SourceTable | None  #: as its catalog showed it last; None: it was not looked at yet
    lake: Sequence[LakeColumn]  #: of the table in the lake
    known: SourceColumns | None  #: which column fills which field; None: they go by their names

    def rows(self) -> list[ColumnRow]:
        """Return the source's columns in their order, then those that only the lake has."""
        target = target_of(self.spec)
        lake = {column.field_id: column for column in self.lake}
        found, filled = [], set()
        for column in () if self.table is None else self.table.relation.columns:
            field = self._field_of(column, target)
            if field is not None:
                filled.add(field.field_id)
            found.append(self._row(column, field, target))
        found += [
            ColumnRow(at_source=name, notes=("generated: it is not replicated",))
            for name in (() if self.table is None else self.table.generated)
        ]
        return found + [self._of_lake(column, target) for key, column in lake.items() if key not in filled]

    def _field_of(self, column: Column, target: Target) -> LakeColumn | None:
        """Return what a column of the source is in the lake; None: it is not there."""
        if target.set is not None or not target.takes(column.name):
            return None
        number = 0 if self.known is None else self.known.fields.get(column.attnum, 0)
        by_number = (one for one in self.lake if number and one.field_id == number)
        by_name = (one for one in self.lake if not number and one.name == column.name)
        return next(by_number, None) or next(by_name, None)

    def _row(self, column: Column, field: LakeColumn | None, target: Target) -> ColumnRow:
        notes = list(_notes_of(column, self.spec.config, target))
        if field is not None and field.name != column.name:
            notes.append("the lake has it by another name")
        elif field is None and not notes:
            notes.append("not in the lake yet")
        if field is not None:
            notes += _masked(field.name, target.mask)
        return ColumnRow(
            at_source=column.name, type_there=typemap.postgresql_name(column.pg_type, column.typmod),
            in_lake="" if field is None else field.name, type_here="" if field is None else field.type,
            notes=(*(("key",) if column.is_key else ()), *notes),
        )  # fmt: skip

    def _of_lake(self, column: LakeColumn, target: Target) -> ColumnRow:
        """Return a column that no column of this source fills as it is."""
        notes = []
        if column.name == SID and target.has_sid:
            notes += ["kuvasz's own: which source a row is of", "key"]
        elif column.name in system_columns.names(target.type, is_soft=target.is_soft):
            notes.append("kuvasz's own")
        elif target.set is not None and column.name in target.set:
            notes += [f"computed: {target.set[column.name]}", *(["key"] if column.name in (target.key or ()) else [])]
            notes += _masked(column.name, target.mask)
        elif self.table is not None and column.name in {one.name for one in self.table.relation.columns}:
            notes.append("from before: this source fills it no more")
        elif self.table is not None:
            notes.append("this source has no such column")
        return ColumnRow(in_lake=column.name, type_here=column.type, notes=tuple(notes))


def _notes_of(column: Column, config: TableConfig, target: Target) -> Iterator[str]:
    """Yield why a column is not in the lake, or not as it is there."""
    if not target.takes(column.name):
        left_out = "not among columns" if column.name not in target.exclude else "left out by exclude"
        yield f"{left_out}: it stays at the source" if config.column_list else left_out
    elif target.set is not None:
        yield "read by what is computed, or not at all"
    elif asked := target.types.get(column.name):
        yield f"{asked} by types"


def _masked(name: str, mask: Mapping[str, str]) -> list[str]:
    return [f"masked: {mask[name]}"] if name in mask else []


__all__ = ["ColumnRow", "TableColumns"]
