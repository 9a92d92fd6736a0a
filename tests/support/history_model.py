"""A table of one source in a random history, as it should be."""

from __future__ import annotations

import dataclasses

from tests.support.tagged_values import DEFAULTS, UNIT

NAMES = ("a", "b", "c", "d", "e")
FIRST = 3  #: number of the first column that changes; id and tag stay


@dataclasses.dataclass
class Column:
    """A column as it is now."""

    name: str
    kind: str  #: one of `KINDS`
    type: str  #: as SQL has it
    default: int | None = None
    labels: list[int] = dataclasses.field(default_factory=list)  #: of an enum, without those of defaults
    attributes: int = 1  #: of a composite type


@dataclasses.dataclass
class Version:
    """A row after a statement."""

    row: int
    tag: int
    values: dict[int, int]  #: by the column's number


@dataclasses.dataclass
class Model:
    """What a table of one source is."""

    columns: dict[int, Column] = dataclasses.field(default_factory=dict)
    attributes: int = FIRST - 1
    rows: dict[int, Version] = dataclasses.field(default_factory=dict)
    versions: list[Version] = dataclasses.field(default_factory=list)
    overtaken: set[int] = dataclasses.field(default_factory=set)  #: tags that the same transaction changed again
    became: dict[int, int] = dataclasses.field(default_factory=dict)  #: values that were rewritten where they stood
    counts: int = 0
    tags: int = 0

    @property
    def free(self) -> list[str]:
        return sorted(set(NAMES) - {column.name for column in self.columns.values()})

    @property
    def names(self) -> dict[str, int]:
        return {column.name: number for number, column in self.columns.items()}

    def count(self, number: int) -> int:
        """Return a new number for a value of a column."""
        self.counts += 1
        return number * UNIT + self.counts % 1000

    def drop(self, number: int) -> str:
        """Drop a column and return its name."""
        for version in self.rows.values():
            version.values.pop(number, None)
        return self.columns.pop(number).name

    def held(self, number: int) -> set[int]:
        """Return what rows have in a column."""
        return {one.values[number] for one in self.rows.values() if number in one.values}

    def rewrite(self, number: int, values: dict[int, int]) -> None:
        """Have another value stand where one stood, in all rows that have it in a column."""
        for version in self.rows.values():
            if version.values.get(number) in values:
                version.values[number] = values[version.values[number]]
        self.became |= values

    def shown(self, value: int) -> set[int]:
        """Return what a version's value may be shown as."""
        found = {value}
        while value in self.became and self.became[value] not in found:
            value = self.became[value]
            found.add(value)
        return found


def is_default(value: int) -> bool:
    return value % UNIT >= DEFAULTS


__all__ = ["FIRST", "NAMES", "Column", "Model", "Version", "is_default"]
