"""A second source of some targets, with a group of its own in the map: quiet, or with columns of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support import oracle
from tests.support.lake import group

if TYPE_CHECKING:
    import random

    from tests.support.neglect.tables import Table
    from tests.support.neglect.world import World
    from tests.support.postgres import Database

SID = "us"
SOURCE = f"depot_{SID}"


class Depot:
    """Its tables have the names of their targets, and keep them."""

    def __init__(self, world: World, database: Database) -> None:
        self.world = world
        self.database = database
        self.random: random.Random = world.random
        self.is_quiet = self.random.random() < 0.5
        self.columns = {"items": ["n"], "others": ["n"]}

    def execute(self, *statements: str) -> None:
        self.world.note(*(f"{SID}: {statement}" for statement in statements))
        with self.database.connect() as session:
            for statement in statements:
                session.execute(statement)

    def create(self) -> None:
        for name in self.columns:
            self.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n text)",
                         f"INSERT INTO {name} SELECT i, 'first' FROM generate_series(1, 40) i")  # fmt: skip

    def write(self) -> None:
        if self.is_quiet:
            return
        for name, columns in self.columns.items():
            column, value = self.random.choice(columns), self.world.number()
            self.execute(f"UPDATE {name} SET {column} = '{value}' WHERE id % {self.random.randrange(2, 9)} = 0",
                         f"INSERT INTO {name} (id, {column}) SELECT max(id) + 1, '{value}' FROM {name}",
                         f"DELETE FROM {name} WHERE id % {self.random.randrange(20, 40)} = 1")  # fmt: skip

    def add_column(self) -> None:
        """It gets a column that the other source has not got."""
        name, column = self.random.choice(list(self.columns)), f"c{self.world.number()}"
        default = self.random.choice(["", " DEFAULT 'some'", " DEFAULT md5(random()::text)"])
        self.execute(f"ALTER TABLE {name} ADD {column} text{default}")
        self.columns[name].append(column)

    def feeds(self, table: Table) -> bool:
        return table.is_mapped and table.target in self.columns

    def entries(self, tables: list[Table]) -> list[dict[str, Any]]:
        """What the map says of it."""
        mapped = {table.target: {"target": table.identifier} for table in tables if self.feeds(table)}
        return group({SID: self.database}, mapped, name="depot") if mapped else []

    def rows(self, table: Table) -> oracle.Rows:
        return oracle.source_rows(self.database.url, table.target, sid=SID)
