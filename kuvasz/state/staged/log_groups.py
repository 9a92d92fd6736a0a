"""Groups of a log, in its coordinator: deployments with lakes of their own, which hear what the first one has staged.

A group has a row for each source that it hears: how far its lake is, and as of which past of the source. Whatever
happens to the source's stream gives it another past. Nothing of the source is told to the group, and nothing that the
group says of it counts, until it has looked at the source again and goes by that past, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kuvasz.config.model import GROUPS
from kuvasz.errors import ConfigError
from kuvasz.state.coordinator.lease import APPLIES
from kuvasz.state.staged import promotion
from kuvasz.state.staged.ports import LogGroup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kuvasz.state.coordinator.database import CoordinatorDatabase, Session

#: What the log's tables have for it.
TABLES: Final = """
CREATE TABLE IF NOT EXISTS kuvasz.log_group (
    cluster text NOT NULL,
    name text NOT NULL,
    PRIMARY KEY (cluster, name)
);
CREATE TABLE IF NOT EXISTS kuvasz.log_group_source (
    cluster text NOT NULL,
    name text NOT NULL,           -- of the group
    source text NOT NULL,
    applied bigint NOT NULL,      -- everything before it is in the group's lake
    past bigint NOT NULL,         -- of the source, that the group goes by
    begun bigint NOT NULL,        -- of the source, when the group began to hear it
    PRIMARY KEY (cluster, name, source)
);
ALTER TABLE kuvasz.log_source
    ADD COLUMN IF NOT EXISTS begun bigint NOT NULL DEFAULT 0;    -- another number whenever it begins anew
ALTER TABLE kuvasz.log_object
    ADD COLUMN IF NOT EXISTS staged timestamptz NOT NULL DEFAULT clock_timestamp();
"""
ARE_MADE: Final = """
EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('kuvasz.log_object') AND attname = 'staged')
"""
#: Within the transaction that sets a source back.
SET_BACK: Final = """
UPDATE kuvasz.log_group_source SET applied = least(applied, %(lsn)s)
WHERE cluster = %(cluster)s AND source = %(source)s
"""
#: How many objects are counted of a group that is behind: a day's of one process that stages.
_MOST: Final = 500_000

#: What a group lacks first of each source, and what was staged from the first of that on: two looks at an index.
_GROUPS: Final = """
SELECT g.name, counted.objects, extract(epoch FROM clock_timestamp() - lacked.since)::float8,
    EXISTS (SELECT FROM kuvasz.lease AS held WHERE starts_with(held.cluster, %(groups)s || g.name || %(applies)s)
        AND held.owner IS NOT NULL AND held.until > clock_timestamp())
FROM kuvasz.log_group AS g CROSS JOIN LATERAL (
    SELECT min(o.staged) AS since
    FROM kuvasz.log_group_source AS h JOIN kuvasz.log_source AS s USING (cluster, source, begun)
    CROSS JOIN LATERAL (
        SELECT l.object FROM kuvasz.log_slice AS l
        WHERE l.cluster = %(cluster)s AND l.source = h.source AND l.through > h.applied
        ORDER BY l.through, l.last LIMIT 1
    ) AS first JOIN kuvasz.log_object AS o ON o.cluster = %(cluster)s AND o.name = first.object
    WHERE h.cluster = %(cluster)s AND h.name = g.name
) AS lacked CROSS JOIN LATERAL (
    SELECT count(*) AS objects FROM (
        SELECT FROM kuvasz.log_object AS o WHERE o.cluster = %(cluster)s AND o.staged >= lacked.since LIMIT %(most)s
    ) AS later
) AS counted
WHERE g.cluster = %(cluster)s ORDER BY g.name
"""
#: Who lives, of all that a group has: its processes that apply, and verbs that have what it remembers.
_LIVING: Final = """
SELECT owner FROM kuvasz.lease
WHERE (cluster = %(key)s OR starts_with(cluster, %(key)s || '/')) AND owner IS NOT NULL
    AND until > clock_timestamp() ORDER BY owner LIMIT 1
"""
#: Whoever takes a lease waits for it.
_TURN: Final = "SELECT pg_advisory_xact_lock(hashtextextended('kuvasz ' || %(key)s, 0))"
_OF_ONE: Final = "cluster = %(key)s OR starts_with(cluster, %(key)s || '/')"
_OF_GROUPS: Final = "cluster = %(cluster)s AND name = %(name)s"
_RETIRE: Final = {
    "lease": _OF_ONE, "node": _OF_ONE, "document": _OF_ONE, "piece": _OF_ONE, "applied_group": _OF_ONE,
    "lake_table": _OF_ONE,
    "log_group_source": _OF_GROUPS, "log_group": _OF_GROUPS,
}  # fmt: skip
_IS_THERE: Final = "SELECT FROM kuvasz.log_group WHERE cluster = %(cluster)s AND name = %(name)s"


def groups_of(session: Session, cluster: str) -> list[LogGroup]:
    """Return the groups of a cluster's log."""
    given = {"cluster": cluster, "groups": f"{cluster}{GROUPS}", "applies": f"{APPLIES}/", "most": _MOST}
    return [
        LogGroup(name=name, objects=objects, behind_s=behind_s, lives=lives)
        for name, objects, behind_s, lives in session.execute(_GROUPS, given)
    ]


class LogGroups:
    """The groups of one cluster's log, for people.

    Args:
        database: The coordinator.
        cluster: The cluster's name, without any group.
    """

    def __init__(self, database: CoordinatorDatabase, cluster: str) -> None:
        self._database = database
        self._cluster = cluster

    def all(self) -> Sequence[LogGroup]:
        """Return all groups.

        Raises:
            StateError: The coordinator does not answer.
        """
        with self._database.session("list the groups of the log") as session:
            return groups_of(session, self._cluster) if _are_made(session) else []

    def retire(self, name: str) -> None:
        """Forget a group, and all that it remembers: the log keeps nothing for it any more.

        Raises:
            ConfigError: There is no such group, or a process of it lives.
            StateError: The coordinator does not answer.
        """
        given = {"cluster": self._cluster, "name": name, "key": f"{self._cluster}{GROUPS}{name}"}
        with self._database.session("retire a group of the log") as session, session.transaction():
            session.execute(_TURN, given)
            self._prove(session, given)
            if (found := session.execute(_LIVING, given).fetchone()) is not None:
                raise promotion.in_use(f"group {name}", found[0])
            session.execute("SET LOCAL statement_timeout = 0")  # what is parked may be much
            for table, those in _RETIRE.items():
                if session.execute("SELECT to_regclass(%s)", (f"kuvasz.{table}",)).fetchone() != (None,):
                    session.execute(f"DELETE FROM kuvasz.{table} WHERE {those}", given)

    def promote(self, name: str, former: str) -> None:
        """Have a group be the first one, which is a group from then on; see `promotion`.

        Args:
            name: The group.
            former: What the first one is called then.

        Raises:
            ConfigError: There is no such group, or one called as the first one is to be, or a process of one of the
                two lives, or the group cannot go on with a source.
            StateError: The coordinator does not answer: it was done, or not.
        """
        keys = {one: f"{self._cluster}{GROUPS}{one}" for one in (name, former)}
        given = {"cluster": self._cluster, "name": name, "key": keys[name]}
        other = {"cluster": self._cluster, "name": former, "key": keys[former]}
        with self._database.session("promote a group of the log") as session, session.transaction():
            for key in sorted((self._cluster, *keys.values())):
                session.execute(_TURN, {"key": key})
            self._prove(session, given)
            if session.execute(_IS_THERE, other).fetchone() is not None:
                raise ConfigError(
                    f"cluster: the log of {self._cluster} has a group {former} already",
                    hint="`kuvasz cluster groups` lists them: choose another name for the first one",
                )
            for one in (given, other):
                if (found := session.execute(_LIVING, one).fetchone()) is not None:
                    raise promotion.in_use(f"group {one['name']}", found[0])
            promotion.promote(session, self._cluster, name, former)

    def _prove(self, session: Session, given: Mapping[str, object]) -> None:
        if not _are_made(session) or session.execute(_IS_THERE, given).fetchone() is None:
            raise ConfigError(
                f"cluster: the log of {self._cluster} has no group {given['name']}",
                hint="`kuvasz cluster groups` lists them",
            )


def _are_made(session: Session) -> bool:
    return session.execute(f"SELECT {ARE_MADE}").fetchone() == (True,)


__all__ = ["ARE_MADE", "SET_BACK", "TABLES", "LogGroups", "groups_of"]
