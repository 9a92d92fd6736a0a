"""What those who run the source do to its publication and its server."""

from __future__ import annotations

import contextlib
import copy
from typing import TYPE_CHECKING

from kuvasz.config.names import object_name
from tests.support.restore import Backup
from tests.support.standby import LateStandby

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

    @property
    def is_for_all(self) -> bool | None:
        """Whether the publication has all tables; None if there is none."""
        found = self.world.database.execute(
            f"SELECT puballtables FROM pg_publication WHERE pubname = '{PUBLICATION}'"
        )
        return bool(found[0][0]) if found else None

    def unpublish(self) -> None:
        """Take a table out of the publication, or what it sends of it, for a while."""
        if (is_for_all := self.is_for_all) is None:
            return
        ways = [(f"{_ALTER} SET (publish = 'insert')", f"{_ALTER} SET (publish = '{_OPERATIONS}')")]
        if not is_for_all:
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
        drop, add = f"{_ALTER} DROP TABLE {name}", f"{_ALTER} ADD TABLE ONLY {name}"
        ways = [(drop, add), (f"{drop}; {add} WHERE (id % 2 = 0)", f"{drop}; {add}")]
        if not table.is_full:  # else the server refuses updates: it wants every column
            ways.append((f"{drop}; {add} (id, {table.columns[0]})", f"{drop}; {add}"))
        return ways

    def cut(self) -> None:
        """End sessions of the database, whoever has them."""
        which = self.random.choice(["backend_type = 'walsender'", "backend_type <> 'walsender'", "true"])
        self.world.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            f" WHERE datname = current_database() AND pid <> pg_backend_pid() AND {which}"
        )

    def restore(self) -> None:
        """Take a backup of the server, or put it back, or promote it; or have a standby that lags and takes over."""
        if self._backup is None:
            self._back_up(self.random.choice([Backup, LateStandby]))
            return
        is_promoted = isinstance(self._backup, LateStandby) or self.random.random() < 0.5
        self.world.note("promote it" if is_promoted else "put it back")
        self._backup.put_back(is_promoted=is_promoted)
        for table, then in zip(self.world.tables, self._backed_up, strict=True):
            table.name, table.columns, table.parts = then.name, list(then.columns), list(then.parts)
            table.is_full = then.is_full
        if is_promoted:  # a backup of before would be one of another past
            self.forget_backup()

    def _back_up(self, kind: type[Backup]) -> None:
        self.world.note(f"back up: {kind.__name__}")
        self._backed_up = copy.deepcopy(self.world.tables)
        self._backup = kind(self.world.database.server)

    def forget_backup(self) -> None:
        if self._backup is not None:
            self._backup.remove()
        self._backup = None
