"""The record in the coordinator: a row for each table of each group, by the name that the group has for it.

A table is told by what is the same from everywhere, whatever its catalog is called from here: Iceberg's own identity,
and where its files are.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from kuvasz.config.model import GROUPS
from kuvasz.state.coordinator.database import make_once
from kuvasz.state.lakes.ports import SEPARATOR, LakeTablePlace, TableOwners, taken

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kuvasz.errors import TableTaken
    from kuvasz.state.coordinator.database import CoordinatorDatabase, Session
    from kuvasz.state.coordinator.lease import ClusterLease

#: See `make_once`.
_MAKING: Final = 0x6B757661736E

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS kuvasz.lake_table (
    cluster text NOT NULL,        -- with its group
    target text NOT NULL,         -- what it is called there
    uuid text,                    -- Iceberg's; null: it is yet to be made
    place text COLLATE "C",       -- where its files are
    PRIMARY KEY (cluster, target)
);
CREATE INDEX IF NOT EXISTS lake_table_uuid ON kuvasz.lake_table (uuid);
CREATE INDEX IF NOT EXISTS lake_table_place ON kuvasz.lake_table (place)
"""
_IS_MADE: Final = "SELECT to_regclass('kuvasz.lake_table_place') IS NOT NULL"
#: One at a time: of two that ask for one table the second sees what the first one has.
_TURN: Final = "SELECT pg_advisory_xact_lock(hashtextextended('kuvasz tables ' || %(name)s, 0))"
_OTHER: Final = """
SELECT cluster, target FROM kuvasz.lake_table
WHERE cluster <> %(cluster)s AND (cluster = %(name)s OR starts_with(cluster, %(groups)s))
    AND (uuid = %(uuid)s OR place = ANY(%(above)s) OR (place >= %(first)s AND place < %(behind)s))
ORDER BY 1, 2 LIMIT 1
"""
_CLAIM: Final = """
INSERT INTO kuvasz.lake_table (cluster, target, uuid, place) VALUES (%(cluster)s, %(target)s, %(uuid)s, %(place)s)
ON CONFLICT (cluster, target) DO UPDATE SET uuid = excluded.uuid, place = excluded.place
"""


class CoordinatedTableOwners(TableOwners):
    """The record.

    Args:
        database: The coordinator.
        name: The cluster's name, without any group.
        lease: The lease of this process, which names the group.
    """

    def __init__(self, database: CoordinatorDatabase, name: str, lease: ClusterLease) -> None:
        self._database = database
        self._name = name
        self._lease = lease
        self._lock = threading.Lock()
        self._mine: dict[str, LakeTablePlace] = {}  #: what this process has found to be its group's

    @override
    def claim(self, table: LakeTablePlace) -> None:
        """See `TableOwners.claim`: what was found once is not asked again."""
        with self._lock:
            if self._mine.get(table.target) == table:
                return
        given = self._given(table)
        with self._database.session("ask whose a table is") as session:
            make_once(session, _IS_MADE, _MAKING, lambda: session.execute(_TABLE))
            with session.transaction():
                session.execute(_TURN, given)
                self._lease.prove(session)
                if (error := self._other(session, table)) is not None:
                    raise error
                session.execute(_CLAIM, given)
        with self._lock:
            self._mine[table.target] = table

    @override
    def taken(self, tables: Iterable[LakeTablePlace]) -> TableTaken | None:
        """See `TableOwners.taken`."""
        with self._database.session("ask whose tables are") as session:
            if session.execute(_IS_MADE).fetchone() != (True,):
                return None
            return next((error for table in tables if (error := self._other(session, table)) is not None), None)

    def _other(self, session: Session, table: LakeTablePlace) -> TableTaken | None:
        found = session.execute(_OTHER, self._given(table)).fetchone()
        if found is None:
            return None
        cluster, target = found
        return taken(table, None if cluster == self._name else cluster.removeprefix(self._groups), target)

    @property
    def _groups(self) -> str:
        return f"{self._name}{GROUPS}"

    def _given(self, table: LakeTablePlace) -> dict[str, object]:
        inner = None if table.place is None else f"{table.place}{SEPARATOR}"
        behind = None if table.place is None else f"{table.place}{chr(ord(SEPARATOR) + 1)}"
        return {
            "cluster": self._lease.cluster, "name": self._name, "groups": self._groups, "target": table.target,
            "uuid": table.uuid, "place": table.place, "above": list(table.above), "first": inner, "behind": behind,
        }  # fmt: skip


__all__ = ["CoordinatedTableOwners"]
