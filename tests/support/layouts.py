"""Layouts as the map asks for them, of a table with a column of each kind."""

from __future__ import annotations

import dataclasses

from kuvasz.lake.format import layout
from kuvasz.lake.format.layout import Layout, Term
from kuvasz.lake.format.schema import Field
from kuvasz.model import LakeType, ValueType
from tests.support.changes import target

KINDS = {"id": LakeType.LONG, "n": LakeType.INT, "at": LakeType.TIMESTAMPTZ, "day": LakeType.DATE,
         "s": LakeType.STRING,
         "x": LakeType.DOUBLE, "u": LakeType.UUID, "b": LakeType.BINARY, "t": LakeType.BOOLEAN, "a b": LakeType.INT,
         "d": LakeType.DECIMAL}  # fmt: skip
FIELDS = tuple(
    Field(field_id=number, name=name, type=ValueType(kind=kind, precision=9, scale=2))
    for number, (name, kind) in enumerate(KINDS.items(), 1)
)


def wanted(*partition_by: str, sort_by: tuple[str, ...] = ()) -> Layout:
    return layout.wanted(dataclasses.replace(target(), partition_by=partition_by, sort_by=sort_by), FIELDS)


def term(transform: str, column: str, width: int = 0) -> Term:
    return Term(transform=transform, column=column, width=width)
