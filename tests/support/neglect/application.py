"""What an application and its migrations do to the source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.neglect import journal
from tests.support.neglect.tables import Growing

if TYPE_CHECKING:
    from tests.support.neglect.tables import Table
    from tests.support.neglect.world import World

#: The ids of the partitions of `parted` begin here, a hundred for each.
_PARTS = 100_000_000


class Application:
    """Writes rows, and changes what tables are."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = world.random
        self.execute = world.execute

    def create(self) -> None:
        if any(isinstance(table, Growing) for table in self.world.tables):
            self.execute(*journal.CREATION)
        for table in self.world.tables:
            if table is self.world.members:
                self.add_member()
                continue
            self.execute(*table.creation())
            if table.is_parted:
                self.execute(f"CREATE TABLE rest PARTITION OF {table.name} DEFAULT")
                self.add_part()
            self.execute(f"INSERT INTO {table.name} (id, n) SELECT i, 'first' FROM generate_series(1, 50) i")
        if self.world.depot is not None:
            self.world.depot.create()

    # Rows

    def write(self) -> None:
        """Change every table a little, some of them much."""
        for table in self.world.tables:
            if table is self.world.members:
                self.write_members()
            elif table.is_parted:
                self.write_parted()
            else:
                self.write_to(table)
        if self.world.depot is not None:
            self.world.depot.write()

    def write_to(self, table: Table) -> None:
        column, value = self.random.choice(table.columns), f"'{self.world.number()}'"
        some = self.random.randrange(2, 9)
        statements = [
            f"INSERT INTO {table.name} (id, {column}) SELECT max(id) + i, {value}"
            f" FROM {table.name}, generate_series(1, 3) i GROUP BY i",
            f"UPDATE {table.name} SET {column} = {value} WHERE id % {some} = 0",
            f"DELETE FROM {table.name} WHERE id % {self.random.randrange(20, 40)} = 1",
            f"UPDATE {table.name} SET id = (SELECT max(id) + 1 FROM {table.name})"
            f" WHERE id = (SELECT min(id) FROM {table.name})",
        ]
        self.execute(*self.random.sample(statements, self.random.randrange(1, 4)))

    def write_parted(self) -> None:
        table, value = self.world.parted, f"'{self.world.number()}'"
        column = self.random.choice(table.columns)
        first = 1000 * self.world.number()
        statements = [
            f"INSERT INTO {table.name} (id, {column}) SELECT {first} + i, {value} FROM generate_series(1, 3) i",
            f"UPDATE {table.name} SET {column} = {value} WHERE id % 7 = {self.random.randrange(7)}",
            f"DELETE FROM {table.name} WHERE id % 30 = {self.random.randrange(30)}",
        ]
        if table.parts:
            part = self.random.choice(table.parts)
            statements.append(
                f"INSERT INTO {table.name} (id, {column}) SELECT {_PARTS + 100 * part} + i, {value}"
                f" FROM generate_series(1, 99) i ON CONFLICT (id) DO UPDATE SET {column} = {value}"
            )
        self.execute(*self.random.sample(statements, self.random.randrange(1, len(statements) + 1)))

    def truncate(self) -> None:
        table = self.world.some()
        column = self.random.choice(table.columns)
        self.execute(f"TRUNCATE {table.name}", f"INSERT INTO {table.name} (id, {column}) VALUES (1, 'after')")

    # Members

    def add_member(self) -> None:
        name = f"events_{self.world.number()}"
        self.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n text)", *self._more_of(name))
        self.world.members.names.append(name)

    def write_members(self) -> None:
        members = self.world.members
        if not members.names or self.random.random() < 0.1:
            self.add_member()
        for name in members.names:
            value = self.world.number()
            self.execute(*self._more_of(name), f"UPDATE {name} SET n = '{value}' WHERE id % 3 = 0")

    def _more_of(self, name: str) -> list[str]:
        first = 1000 * self.world.number()  # ids are unique over all members: the target knows rows by them
        return [f"INSERT INTO {name} SELECT i, 'new' FROM generate_series({first}, {first + 5}) i"]

    # Partitions

    def add_part(self) -> None:
        table, part = self.world.parted, self.world.number()
        first = _PARTS + 100 * part
        column = self.random.choice(table.columns)
        self.execute(
            f"CREATE TABLE part_{part} PARTITION OF {table.name} FOR VALUES FROM ({first}) TO ({first + 100})",
            f"INSERT INTO {table.name} (id, {column}) SELECT i, 'part' FROM generate_series({first}, {first + 40}) i",
        )
        table.parts.append(part)

    def change_parts(self) -> None:
        """Truncate, detach, drop, attach or make a partition."""
        table = self.world.parted
        if table not in self.world.tables:
            return
        if not table.parts or self.random.random() < 0.3:
            self.add_part()
            return
        part = self.random.choice(table.parts)
        way = self.random.choice(["truncate", "detach", "drop", "again"])
        if way == "truncate":
            self.execute(f"TRUNCATE part_{part}")
        elif way == "drop":
            self.execute(f"DROP TABLE part_{part}")
            table.parts.remove(part)
        else:
            self.execute(f"ALTER TABLE {table.name} DETACH PARTITION part_{part}")
            table.parts.remove(part)
            if way == "again":
                self._attach_again(part)

    def _attach_again(self, part: int) -> None:
        table, first = self.world.parted, _PARTS + 100 * part
        self.execute(f"DELETE FROM part_{part} WHERE id % 3 = 0")
        if self.random.random() < 0.5:
            self.write()
        self.execute(
            f"ALTER TABLE {table.name} ATTACH PARTITION part_{part} FOR VALUES FROM ({first}) TO ({first + 100})"
        )
        table.parts.append(part)

    # What tables are

    def replace(self) -> None:
        """Drop a table and make another one of its name."""
        table = self.world.some()
        if table.is_parted:
            return
        self.execute(f"DROP TABLE {table.name}", *table.creation(),
                     f"INSERT INTO {table.name} (id, n) SELECT i, 'anew' FROM generate_series(1, 20) i")  # fmt: skip
        table.columns, table.is_full = ["n"], not table.has_key

    def rename(self) -> None:
        table = self.world.some()
        name = self.random.choice([f"{table.target}_{self.world.number()}", table.target])
        taken = {one for other in self.world.tables if other is not table for one in (other.name, other.mapped)}
        if name not in {table.name, *taken}:
            self.execute(f"ALTER TABLE {table.name} RENAME TO {name}")
            table.name = name

    def swap(self) -> None:
        one, other = self.random.sample(self.world.single, 2)
        self.execute(
            f"ALTER TABLE {one.name} RENAME TO for_a_moment",
            f"ALTER TABLE {other.name} RENAME TO {one.name}",
            f"ALTER TABLE for_a_moment RENAME TO {other.name}",
        )
        one.name, other.name = other.name, one.name

    def identify(self) -> None:
        """Have the server send whole old rows, or their keys alone."""
        table = self.world.some()
        if table.has_key and not table.is_parted:  # whose partitions have one each
            table.is_full = not table.is_full
            self.execute(f"ALTER TABLE {table.name} REPLICA IDENTITY {'FULL' if table.is_full else 'DEFAULT'}")

    def change_columns(self) -> None:
        table = self.world.some()
        column = f"c{self.world.number()}"
        if self.world.depot is not None and self.random.random() < 0.3:
            self.world.depot.add_column()
        elif len(table.columns) > 1 and self.random.random() < 0.4:
            self._change_column(table, self.random.choice(table.columns), column)
        else:
            self.execute(f"ALTER TABLE {table.name} ADD {column} text{self.random.choice(table.defaults())}")
            table.columns.append(column)

    def _change_column(self, table: Table, old: str, new: str) -> None:
        # Of a column that two sources have, the lake's follows the one that renames it first.
        if self.random.random() < 0.5 or (self.world.depot is not None and old == "n"):
            self.execute(f"ALTER TABLE {table.name} DROP {old}")
            table.columns.remove(old)
        else:
            self.execute(f"ALTER TABLE {table.name} RENAME {old} TO {new}")
            table.columns[table.columns.index(old)] = new
