"""Random histories of a source table: schema changes and rows in any order, and what the lake may then hold.

Every value says which column it was written to: it is the column's number times a million, and a count. So a value
under a wrong column shows by itself, whatever the columns were called in between, in every table type, and also in a
table that has stopped with an error. Every version of a row has a tag of its own.
"""

from __future__ import annotations

import copy
import dataclasses
import decimal
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psycopg

KINDS = ("clone", "append", "changelog", "history", "bag")
UNIT = 1_000_000

NAMES = ("a", "b", "c", "d", "e")
TYPES = ("int", "bigint", "text", "varchar(40)", "numeric(12,2)", "numeric(16,2)")
_LIKE_TEXT = ("text", "varchar(40)")
_FIRST = 3  #: number of the first column that changes; id and tag stay


@dataclasses.dataclass
class Column:
    """A column as it is now."""

    name: str
    type: str
    default: int | None = None


@dataclasses.dataclass
class Version:
    """A row after a statement."""

    tag: int
    values: dict[int, int]  #: by the column's number


@dataclasses.dataclass
class Model:
    """What a table of one source is."""

    columns: dict[int, Column] = dataclasses.field(default_factory=dict)
    attributes: int = _FIRST - 1
    rows: dict[int, Version] = dataclasses.field(default_factory=dict)
    versions: list[Version] = dataclasses.field(default_factory=list)
    overtaken: set[int] = dataclasses.field(default_factory=set)  #: tags that the same transaction changed again
    counts: int = 0
    tags: int = 0

    def add(self, name: str, kind: str) -> int:
        self.attributes += 1
        self.columns[self.attributes] = Column(name, kind)
        return self.attributes

    def value(self, number: int) -> int:
        self.counts += 1
        return number * UNIT + self.counts % 900_000

    @property
    def free(self) -> list[str]:
        return sorted(set(NAMES) - {column.name for column in self.columns.values()})


class Story:
    """One table of one source, and what happens to it.

    Args:
        name: Of the table.
        kind: One of `KINDS`.
        seed: Of all that happens.
        session: At the source, in autocommit.
    """

    def __init__(self, name: str, kind: str, seed: str, session: psycopg.Connection[Any]) -> None:
        self.name, self.kind = name, kind
        self.told: list[str] = []  #: the statements
        self.model = Model()
        self._chosen = random.Random(seed)  # noqa: S311
        self._session = session
        self._begun: set[int] = set()  #: tags of the transaction

    def create(self) -> None:
        """Create the table, with some rows."""
        for name, kind in zip(NAMES[:3], ("int", "text", "text"), strict=True):
            self.model.add(name, kind)
        columns = ", ".join(f"{column.name} {column.type}" for column in self.model.columns.values())
        key = "" if self.kind == "bag" else " PRIMARY KEY"
        self._run(f"CREATE TABLE {self.name} (id int{key}, tag bigint, {columns})")
        if self.kind == "bag":
            self._run(f"ALTER TABLE {self.name} REPLICA IDENTITY FULL")
        for _ in range(3):
            self._insert()

    def go(self, steps: int) -> None:
        """Have some things happen."""
        for _ in range(steps):
            if self._chosen.random() < 0.25:
                self._transaction()
            else:
                self._begun = set()
                self._step()

    def touch(self) -> None:
        """Change something, so that the stream tells what the table is now."""
        self._insert()

    def _transaction(self) -> None:
        with self._session.transaction():
            self.told.append("BEGIN")
            self._begun = set()
            for _ in range(self._chosen.randint(2, 4)):
                if self._chosen.random() < 0.15:
                    self._rolled_back()
                else:
                    self._step()
            self._begun = set()
        self.told.append("COMMIT")

    def _rolled_back(self) -> None:
        before, begun = copy.deepcopy(self.model), set(self._begun)
        self._run("SAVEPOINT s")
        self._step()
        self._run("ROLLBACK TO s")
        before.tags, before.counts = self.model.tags, self.model.counts
        self.model, self._begun = before, begun

    def _step(self) -> None:
        rows = [self._insert, self._update, self._update, self._delete]
        changes = [self._add, self._add, self._drop, self._rename, self._swap, self._replace, self._add_instead,
                   self._retype, self._set_default, self._identity]  # fmt: skip
        self._chosen.choice(rows if self._chosen.random() < 0.6 else changes)()

    def _run(self, statement: str) -> None:
        self.told.append(statement)
        self._session.execute(statement)

    # Rows

    def _insert(self) -> None:
        given = {number: self.model.value(number) for number in self.model.columns if self._chosen.random() < 0.8}
        number = self.model.tags + 1
        self._run(f"INSERT INTO {self.name} ({self._names(given)}) VALUES ({number}, {number}, {self._texts(given)})"
                  if given else f"INSERT INTO {self.name} (id, tag) VALUES ({number}, {number})")  # fmt: skip
        defaults = {n: c.default for n, c in self.model.columns.items() if c.default is not None}
        self._take(number, {**defaults, **given})

    def _names(self, given: Mapping[int, int]) -> str:
        return ", ".join(["id", "tag", *(self.model.columns[number].name for number in given)])

    def _texts(self, given: Mapping[int, int]) -> str:
        return ", ".join(f"'{value}'" for value in given.values())

    def _update(self) -> None:
        if not self.model.rows:
            return
        row = self._chosen.choice(sorted(self.model.rows))
        before = self.model.rows[row]
        given = {number: self.model.value(number) for number in self.model.columns if self._chosen.random() < 0.4}
        sets = [f"tag = {self.model.tags + 1}"]
        sets += [f"{self.model.columns[number].name} = '{value}'" for number, value in given.items()]
        self._run(f"UPDATE {self.name} SET {', '.join(sets)} WHERE id = {row}")
        self._take(row, {**before.values, **given})

    def _take(self, row: int, values: dict[int, int]) -> None:
        self.model.tags += 1
        before = self.model.rows.get(row)
        if before is not None and before.tag in self._begun:
            self.model.overtaken.add(before.tag)
        self._begun.add(self.model.tags)
        version = Version(self.model.tags, dict(values))
        self.model.rows[row] = version
        self.model.versions.append(Version(version.tag, dict(values)))

    def _delete(self) -> None:
        if len(self.model.rows) > 2:
            row = self._chosen.choice(sorted(self.model.rows))
            self._run(f"DELETE FROM {self.name} WHERE id = {row}")
            gone = self.model.rows.pop(row)
            if gone.tag in self._begun:
                self.model.overtaken.add(gone.tag)

    # Columns

    def _alter(self, what: str) -> None:
        self._run(f"ALTER TABLE {self.name} {what}")

    def _some(self) -> int | None:
        return self._chosen.choice(sorted(self.model.columns)) if self.model.columns else None

    def _add(self, name: str | None = None) -> None:
        if name is None and not self.model.free:
            return
        number = self.model.add(name or self._chosen.choice(self.model.free), self._chosen.choice(TYPES[:4]))
        column = self.model.columns[number]
        clause = ""
        if self._chosen.random() < 0.2:
            column.default = number * UNIT + 999_999
            clause = f" DEFAULT '{column.default}'"
            for version in self.model.rows.values():
                version.values[number] = column.default
        self._alter(f"ADD {column.name} {column.type}{clause}")

    def _drop(self) -> str | None:
        number = self._some()
        if number is None:
            return None
        name = self.model.columns.pop(number).name
        for version in self.model.rows.values():
            version.values.pop(number, None)
        self._alter(f"DROP {name}")
        return name

    def _to(self, number: int, name: str) -> None:
        self._alter(f"RENAME {self.model.columns[number].name} TO {name}")
        self.model.columns[number].name = name

    def _rename(self) -> None:
        number = self._some()
        if number is not None and self.model.free:
            self._to(number, self._chosen.choice(self.model.free))

    def _swap(self) -> None:
        if len(self.model.columns) >= 2:
            first, second = self._chosen.sample(sorted(self.model.columns), 2)
            mine, other = self.model.columns[first].name, self.model.columns[second].name
            self._to(first, "x")
            self._to(second, mine)
            self._to(first, other)

    def _replace(self) -> None:
        """Drop a column and let another one take its name: just added, or there before."""
        number = self._some()
        if number is None or (len(self.model.columns) < 2 and not self.model.free):
            return
        if self.model.free and self._chosen.random() < 0.7:
            self._add(self._chosen.choice(self.model.free))
        others = sorted(self.model.columns.keys() - {number})
        if not others:
            return
        taker = self._chosen.choice(others)
        name = self.model.columns.pop(number).name
        for version in self.model.rows.values():
            version.values.pop(number, None)
        self._alter(f"DROP {name}")
        if self._chosen.random() < 0.3:
            self._insert()
        self._to(taker, name)

    def _add_instead(self) -> None:
        """Drop a column and add one of the same name."""
        name = self._drop()
        if name is not None:
            if self._chosen.random() < 0.3:
                self._insert()
            self._add(name)

    def _retype(self) -> None:
        number = self._some()
        if number is None:
            return
        column, kind = self.model.columns[number], self._chosen.choice(TYPES)
        if column.default is not None:
            self._alter(f"ALTER {column.name} DROP DEFAULT")
            column.default = None
        both = {column.type, kind}
        is_plain = both <= set(_LIKE_TEXT) or both <= {"numeric(12,2)", "numeric(16,2)"}
        using = "" if is_plain else f" USING ({column.name}::numeric::bigint)::{kind}"
        self._alter(f"ALTER {column.name} TYPE {kind}{using}")
        column.type = kind

    def _set_default(self) -> None:
        number = self._some()
        if number is not None:
            column = self.model.columns[number]
            column.default = number * UNIT + 999_998
            self._alter(f"ALTER {column.name} SET DEFAULT '{column.default}'")

    def _identity(self) -> None:
        if self.kind != "bag":
            self._alter(f"REPLICA IDENTITY {self._chosen.choice(('FULL', 'DEFAULT'))}")


def problems(
    story: Story, rows: Sequence[Mapping[str, Any]], fields: Mapping[int, str], *, is_whole: bool, is_shared: bool
) -> list[str]:
    """Return what is wrong with a story's rows in the lake.

    Args:
        story: It.
        rows: Of its source.
        fields: Number of each of its columns that the lake ever knew -> name of the field for it.
        is_whole: Whether the table follows, so that nothing may be missing.
        is_shared: Whether another source has the table too, whose names count as well.
    """
    found = _impure(story, rows, is_whole=is_whole, is_shared=is_shared)
    if is_whole and not found:
        found = _missing(story, rows, fields, is_shared=is_shared)
    return found


def _values(row: Mapping[str, Any]) -> Iterable[tuple[str, int]]:
    for name, value in row.items():
        base = name.split("__old")[0]
        if base in NAMES and value is not None:
            yield name, int(decimal.Decimal(value))  # the text of a numeric may have digits behind the point


def _impure(story: Story, rows: Iterable[Mapping[str, Any]], *, is_whole: bool, is_shared: bool) -> list[str]:
    """Say where a field has values of several columns, or a name those of another column than it is of."""
    held: dict[str, set[int]] = {}
    for row in rows:
        for name, value in _values(row):
            held.setdefault(name, set()).add(value // UNIT)
    found = []
    numbers = {column.name: number for number, column in story.model.columns.items()}
    for name, columns in held.items():
        if len(columns) > 1 and not is_shared:
            found.append(f"{name} holds values of columns {sorted(columns)}")
        elif is_whole and name in numbers and columns != {numbers[name]} and not is_shared:
            found.append(f"{name} is column {numbers[name]} and holds values of {sorted(columns)}")
        elif is_whole and is_shared and name in numbers and (columns - {numbers[name]}) & story.model.columns.keys():
            found.append(f"{name} is column {numbers[name]} and holds live values of {sorted(columns)}")
    return found


def _missing(
    story: Story, rows: Sequence[Mapping[str, Any]], fields: Mapping[int, str], *, is_shared: bool
) -> list[str]:
    model = story.model
    lake: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row.get("_op") not in {"D", "T"}:
            lake.setdefault(row["tag"], []).append(row)
    if story.kind in {"clone", "bag"}:
        wanted = list(model.rows.values())
    else:
        skipped = model.overtaken if story.kind == "history" else set()
        wanted = [version for version in model.versions if version.tag not in skipped]
    tags = Counter({tag: len(held) for tag, held in lake.items()})
    expected = Counter(version.tag for version in wanted)
    if tags != expected:
        return [f"versions {dict(expected - tags)} are missing, {dict(tags - expected)} are too many"]
    found = []
    for version in wanted:
        (row,) = lake[version.tag]
        held = dict(_values(row))
        for number, value in version.values.items():
            is_live = number in model.columns
            if story.kind in {"clone", "bag"} and is_live and not is_shared:
                if held.get(model.columns[number].name) != value:
                    found.append(f"version {version.tag}: {model.columns[number].name} is not {value}: {held}")
            elif (is_live or number in fields) and value not in held.values() and value % UNIT < 999_000:
                found.append(f"version {version.tag}: {value} is nowhere: {held}")
        if story.kind in {"clone", "bag"}:
            more = {v for v in held.values() if v // UNIT in model.columns} - set(version.values.values())
            found += [f"version {version.tag}: {value} is too much" for value in sorted(more)]
    return found
