"""What those who run the source do to its publication and its server."""

from __future__ import annotations

import contextlib
import copy
from typing import TYPE_CHECKING

from kuvasz.config.names import object_name
from tests.support.restore import Backup

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.neglect.tables import Table
    from tests.support.neglect.world import World

PUBLICATION = object_name("shop", "eu")
_ALTER = f"ALTER PUBLICATION {PUBLICATION}"
_OPERATIONS = "insert, update, delete, truncate"


class Administrator:
    """Changes publications by hand, and puts servers back to what they were."""

    def __init__(self, world: World, write: Callable[[], None]) -> None:
        self.world = world
        self.random = world.random
        self._write = write
        self._backup: Backup | None = None
        self._backed_up: list[Table] = []

    def publish(self) -> None:
        """Make a publication for all tables beforehand, now and then."""
        if self.random.random() < 0.3:
            self.world.execute(
                f"CREATE PUBLICATION {PUBLICATION} FOR ALL TABLES WITH (publish_via_partition_root = true)"
            )

    def unpublish(self) -> None:
        """Take a table out of the publication, or what it sends of it, for a while."""
        found = self.world.database.execute(
            f"SELECT puballtables FROM pg_publication WHERE pubname = '{PUBLICATION}'"
        )
        if not found:
            return
        ways = [(f"{_ALTER} SET (publish = 'insert')", f"{_ALTER} SET (publish = '{_OPERATIONS}')")]
        if not found[0][0]:
            ways += self._ways_of(self.world.some())
        out, back = self.random.choice(ways)
        self.world.execute(out)
        self._write()
        # Meanwhile kuvasz may have put it right.
        with contextlib.suppress(Exception):
            self.world.execute(back)

    def _ways_of(self, table: Table) -> list[tuple[str, str]]:
        name = table.name
        published = {row[0] for row in self.world.database.execute("SELECT tablename FROM pg_publication_tables")}
        if name not in published or table.is_parted:
            return []
        ways = [(f"{_ALTER} DROP TABLE {name}", f"{_ALTER} ADD TABLE ONLY {name}")]
        if table.has_key:  # else the server refuses updates: REPLICA IDENTITY FULL wants every column
            ways.append((
                f"{_ALTER} DROP TABLE {name}; {_ALTER} ADD TABLE ONLY {name} (id, {table.columns[0]})",
                f"{_ALTER} DROP TABLE {name}; {_ALTER} ADD TABLE ONLY {name}",
            ))  # fmt: skip
        return ways

    def restore(self) -> None:
        """Take a backup of the server, or put it back, or promote it."""
        if self._backup is None:
            self.world.note("back up")
            self._backed_up = copy.deepcopy(self.world.tables)
            self._backup = Backup(self.world.database.server)
            return
        is_promoted = self.random.random() < 0.5
        self.world.note("promote the backup" if is_promoted else "put the backup back")
        self._backup.put_back(is_promoted=is_promoted)
        for table, then in zip(self.world.tables, self._backed_up, strict=True):
            table.name, table.columns, table.parts = then.name, list(then.columns), list(then.parts)
        if is_promoted:  # a backup of before would be one of another past
            self.forget_backup()

    def forget_backup(self) -> None:
        if self._backup is not None:
            self._backup.remove()
        self._backup = None
