"""Steps that change the schema of a lake table, each of which Iceberg makes without touching a row."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from kuvasz.lake.format.schema import Field
    from kuvasz.model import ValueType


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


__all__ = ["AddField", "RelaxFields", "RenameField", "Step", "WidenField"]
