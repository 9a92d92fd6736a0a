"""What the steps of one program have in common: the database, the lake, the tables, chance, and what was done."""

from __future__ import annotations

import itertools
import random
import time
from typing import TYPE_CHECKING

from kuvasz.model import TableType
from tests.support.neglect.depot import Depot
from tests.support.neglect.tables import Growing, Members, Table

if TYPE_CHECKING:
    from tests.support.lake import LakeFolder
    from tests.support.postgres import Database

GROWING = (TableType.APPEND, TableType.CHANGELOG, TableType.HISTORY)


class World:
    """Everything a program is about; its seed says which tables there are."""

    def __init__(
        self, seed: int, database: Database, lake: LakeFolder, second: Database, *, owns_server: bool
    ) -> None:
        self.owns_server = owns_server
        self.random = random.Random(seed)  # noqa: S311 (programs, not secrets)
        self.database = database
        self.lake = lake
        self.tables = [Table("items"), Table("others"), Table("bag", has_key=False)]
        self.parted = Table("parted")
        self.members = Members()
        if self.random.random() < 0.5:
            self.tables.append(self.parted)
        if not owns_server and self.random.random() < 0.4:
            self.tables.append(self.members)
        self.tables += [Growing(kind) for kind in GROWING if self.random.random() < 0.4]
        self.depot = Depot(self, second) if not owns_server and self.random.random() < 0.3 else None
        self.done: list[str] = []
        self._began = time.monotonic()
        self._number = 0

    def number(self) -> int:
        """Return one that nothing else has got."""
        self._number += 1
        return self._number

    def note(self, *steps: str) -> None:
        self.done += [f"{time.monotonic() - self._began:6.1f} s: {step}" for step in steps]

    def execute(self, *statements: str) -> None:
        """Run statements in one transaction."""
        self.note(*statements)
        with self.database.connect() as session:
            for statement in statements:
                session.execute(statement)

    @property
    def single(self) -> list[Table]:
        """The tables that are one table of the source."""
        return [table for table in self.tables if table is not self.members]

    @property
    def are_names_crossed(self) -> bool:
        """Whether the map has a name for one table that another one has."""
        return any(one.mapped == other.name for one, other in itertools.permutations(self.single, 2))

    def some(self) -> Table:
        return self.random.choice(self.single)
