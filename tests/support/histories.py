"""Random histories of a source table: schema changes and rows in any order.

Every value says which column it was written to (`tagged_values`). So a value under a wrong column shows by itself,
whatever the columns were called in between, in every table type, and also in a table that has stopped with an error.
Every version of a row has a tag of its own.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping
from typing import Any

import psycopg

from tests.support.history_meanings import Meanings
from tests.support.history_model import FIRST, NAMES, Column, Model, Version, is_default
from tests.support.history_rules import Rule
from tests.support.tagged_values import DOMAINS, KINDS, PLAIN, UNIT

TABLES = ("clone", "append", "changelog", "history", "bag")

_LIKE_TEXT = ("text", "varchar(40)")
_LABELS = 6  #: of an enum, beside those that rows have


def prepare(session: psycopg.Connection[Any]) -> None:
    """Create what tables of a database need."""
    for statement in DOMAINS:
        session.execute(statement)


class Story:
    """One table of one source, and what happens to it.

    Args:
        name: Of the table.
        kind: One of `TABLES`.
        seed: Of all that happens.
        session: At the source, in autocommit.
        rule: Of the map.
        pause: Called between any two statements.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        seed: str,
        session: psycopg.Connection[Any],
        rule: Rule,
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        self.name, self.kind, self.rule = name, kind, rule
        self.told: list[str] = []  #: the statements
        self.model = Model()
        self.written: set[int] = set()  #: all values there ever were
        self._chosen = random.Random(seed)  # noqa: S311
        self._session, self._pause = session, pause
        self._types = tuple(KINDS) if rule.is_plain else PLAIN
        self._begun: set[int] = set()  #: tags of the transaction
        self._is_open = self._is_taken_back = False
        self._made = 0  #: types
        self.meanings = Meanings(self._wal_end)

    def create(self) -> None:
        """Create the table, with some rows."""
        for name, kind in zip(NAMES[:3], ("int", "text", "text"), strict=True):
            self._column(name, kind)
        columns = ", ".join(f"{column.name} {column.type}" for column in self.model.columns.values())
        key = "" if self.kind == "bag" else " PRIMARY KEY"
        self._run(f"CREATE TABLE {self.name} (id int{key}, tag bigint, {columns})")
        if self.kind == "bag":
            self._run(f"ALTER TABLE {self.name} REPLICA IDENTITY FULL")
        with self.meanings.transaction():
            for _ in range(3):
                self._insert()

    def go(self, steps: int) -> None:
        """Have some things happen."""
        for _ in range(steps):
            is_long = self._chosen.random() < 0.25
            with self.meanings.transaction():
                if is_long:
                    self._transaction()
                else:
                    self._begun = set()
                    self._step()

    def touch(self) -> None:
        """Change something, so that the stream tells what the table is now: a filter takes one of the rows."""
        begin = len(self.model.versions)
        with self.meanings.transaction(), self._session.transaction():
            self._insert()
            while not any(map(self.is_kept, self.model.versions[begin:])):
                self._insert()

    def is_kept(self, version: Version) -> bool:
        """Whether a version passes the map's filter."""
        return self.rule.keeps(version.row, self.read(version))

    def read(self, version: Version) -> list[int | None]:
        """Return what the expressions of the map see of a version: what keeps the past sees the columns of then."""
        names = self.model.names if self.is_now else {name: FIRST + NAMES.index(name) for name in NAMES}
        return [version.values.get(names.get(name, 0)) for name in self.rule.reads]

    @property
    def is_now(self) -> bool:
        """Whether its lake table shows what the source shows."""
        return self.kind in {"clone", "bag"}

    def _transaction(self) -> None:
        with self._session.transaction():
            self.told.append("BEGIN")
            self._begun, self._is_open = set(), True
            for _ in range(self._chosen.randint(2, 4)):
                if self._chosen.random() < 0.15:
                    self._rolled_back()
                else:
                    self._step()
            self._begun, self._is_open = set(), False
            self._pause()
        self.told.append("COMMIT")

    def _rolled_back(self) -> None:
        before, begun = copy.deepcopy(self.model), set(self._begun)
        self._run("SAVEPOINT s")
        self._is_taken_back = True
        with self.meanings.rolled_back():
            self._step()
        self._is_taken_back = False
        self._run("ROLLBACK TO s")
        before.tags, before.counts = self.model.tags, self.model.counts
        self.model, self._begun = before, begun

    def _step(self) -> None:
        rows = [self._insert, self._update, self._update, self._delete]
        changes = [self._add, self._add, self._drop, self._rename, self._swap, self._replace, self._add_instead,
                   self._redefine, self._redefine, self._set_default, self._identity]  # fmt: skip
        if not self._is_taken_back:  # servers cannot decode rewrites that were
            changes += [self._retype, self._retype, self._rewrite]
        self._chosen.choice(rows if self._chosen.random() < 0.6 else changes)()

    def _wal_end(self) -> int:
        ((end,),) = self._session.execute("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint").fetchall()
        return int(end)

    def _run(self, statement: str) -> None:
        self._pause()
        self.told.append(statement)
        self._session.execute(statement)

    # Rows

    def _insert(self) -> None:
        given = self._given(0.8)
        number = self.model.tags + 1
        self.meanings.note(self.model.names)
        self._run(f"INSERT INTO {self.name} ({self._names(given)}) VALUES ({number}, {number}, {self._texts(given)})"
                  if given else f"INSERT INTO {self.name} (id, tag) VALUES ({number}, {number})")  # fmt: skip
        defaults = {n: c.default for n, c in self.model.columns.items() if c.default is not None}
        self._take(number, {**defaults, **given})

    def _given(self, share: float) -> dict[int, int]:
        chosen = [number for number in self.model.columns if self._chosen.random() < share]
        return {number: self._value(number) for number in chosen}

    def _value(self, number: int) -> int:
        labels = self.model.columns[number].labels
        return self._chosen.choice(labels) if labels else self.model.count(number)

    def _made_of(self, number: int, value: int) -> str:
        column = self.model.columns[number]
        return KINDS[column.kind].make.format(value, type=column.type)

    def _names(self, given: Mapping[int, int]) -> str:
        return ", ".join(["id", "tag", *(self.model.columns[number].name for number in given)])

    def _texts(self, given: Mapping[int, int]) -> str:
        return ", ".join(self._made_of(number, value) for number, value in given.items())

    def _update(self) -> None:
        if not self.model.rows:
            return
        row = self._chosen.choice(sorted(self.model.rows))
        before = self.model.rows[row]
        given = self._given(0.4)
        sets = [f"tag = {self.model.tags + 1}"]
        sets += [
            f"{self.model.columns[number].name} = {self._made_of(number, value)}" for number, value in given.items()
        ]
        self.meanings.note(self.model.names)
        self._run(f"UPDATE {self.name} SET {', '.join(sets)} WHERE id = {row}")
        self._take(row, {**before.values, **given})

    def _take(self, row: int, values: dict[int, int]) -> None:
        self.model.tags += 1
        before = self.model.rows.get(row)
        if before is not None and before.tag in self._begun:
            self.model.overtaken.add(before.tag)
        self._begun.add(self.model.tags)
        self.written |= set(values.values())
        version = Version(row, self.model.tags, dict(values))
        self.model.rows[row] = version
        self.model.versions.append(Version(row, version.tag, dict(values)))

    def _delete(self) -> None:
        if len(self.model.rows) > 2:
            row = self._chosen.choice(sorted(self.model.rows))
            self.meanings.note(self.model.names)
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
        number = self._column(name or self._chosen.choice(self.model.free), self._chosen.choice(self._types))
        column = self.model.columns[number]
        clause = ""
        if self._chosen.random() < 0.2:
            column.default = number * UNIT + 9_999
            clause = f" DEFAULT ({self._made_of(number, column.default)})"
            for version in self.model.rows.values():
                version.values[number] = column.default
        self._alter(f"ADD {column.name} {column.type}{clause}")

    def _column(self, name: str, kind: str) -> int:
        """Have a column more in the model, and its type at the source."""
        self.model.attributes += 1
        number = self.model.attributes
        column = self.model.columns[number] = Column(name, kind, kind)
        self._make_type(number, column)
        return number

    def _make_type(self, number: int, column: Column) -> None:
        column.type, column.labels, column.attributes = column.kind, [], 1
        if column.kind in {"enum", "composite"}:
            self._made += 1
            column.type = f"{self.name}_{column.kind}{self._made}"
        if column.kind == "enum":
            held = {value for value in self.model.held(number) if not is_default(value)}
            column.labels = sorted(held | {self.model.count(number) for _ in range(_LABELS)})
            defaults = [number * UNIT + 9_998, number * UNIT + 9_999]
            labels = ", ".join(f"'{label}'" for label in (*column.labels, *defaults))
            self._run(f"CREATE TYPE {column.type} AS ENUM ({labels})")
        elif column.kind == "composite":
            self._run(f"CREATE TYPE {column.type} AS (v bigint)")

    def _drop(self) -> str | None:
        number = self._some()
        if number is None:
            return None
        name = self.model.drop(number)
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
        name = self.model.drop(number)
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
        column, before = self.model.columns[number], self.model.columns[number].kind
        self._drop_default(column)
        column.kind = self._chosen.choice(self._types)
        self._make_type(number, column)
        both = {before, column.kind}
        is_like = both <= set(_LIKE_TEXT) or both <= {"numeric(12,2)", "numeric(16,2)"}
        using = "" if is_like else self._using(column, KINDS[before].read.format(column.name))
        self._alter(f"ALTER {column.name} TYPE {column.type}{using}")

    def _using(self, column: Column, number: str) -> str:
        value = KINDS[column.kind].make.format(f"({number})", type=column.type)
        return f" USING CASE WHEN num_nulls({column.name}) = 0 THEN {value} END"

    def _drop_default(self, column: Column) -> None:
        if column.default is not None:
            self._alter(f"ALTER {column.name} DROP DEFAULT")
            column.default = None

    def _rewrite(self) -> None:
        """Give all rows other values in a column, by its type."""
        number = self._some()
        if number is None:
            return
        column, held = self.model.columns[number], self.model.held(number)
        if column.kind == "enum" or any(value % UNIT >= 8_000 for value in held):
            return
        self._drop_default(column)
        using = self._using(column, f"{KINDS[column.kind].read.format(column.name)} + 1000")
        self._alter(f"ALTER {column.name} TYPE {column.type}{using}")
        self.model.rewrite(number, {value: value + 1000 for value in held})
        self.written |= self.model.held(number)

    def _redefine(self) -> None:
        """Alter the type of a column that has one of its own."""
        own = [n for n, column in sorted(self.model.columns.items()) if column.kind in {"enum", "composite"}]
        if not own:
            return
        number = self._chosen.choice(own)
        column = self.model.columns[number]
        if column.kind == "composite":
            self._alter_attributes(column)
        elif self._chosen.random() < 0.3 and not self._is_open:  # a new label may not be used where it was made
            column.labels.append(self.model.count(number))
            self._run(f"ALTER TYPE {column.type} ADD VALUE '{column.labels[-1]}'")
        else:
            place = self._chosen.randrange(len(column.labels))
            before, column.labels[place] = column.labels[place], self.model.count(number)
            self._run(f"ALTER TYPE {column.type} RENAME VALUE '{before}' TO '{column.labels[place]}'")
            self.model.rewrite(number, {before: column.labels[place]})

    def _alter_attributes(self, column: Column) -> None:
        if column.attributes > 1 and self._chosen.random() < 0.4:
            self._run(f"ALTER TYPE {column.type} DROP ATTRIBUTE w{column.attributes}")
            column.attributes -= 1
        else:
            column.attributes += 1
            self._run(f"ALTER TYPE {column.type} ADD ATTRIBUTE w{column.attributes} int")

    def _set_default(self) -> None:
        number = self._some()
        if number is not None:
            column = self.model.columns[number]
            column.default = number * UNIT + 9_998
            self._alter(f"ALTER {column.name} SET DEFAULT ({self._made_of(number, column.default)})")

    def _identity(self) -> None:
        if self.kind != "bag":
            self._alter(f"REPLICA IDENTITY {self._chosen.choice(('FULL', 'DEFAULT'))}")
