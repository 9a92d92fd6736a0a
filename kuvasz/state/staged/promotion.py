"""A group of a log becomes the first one, and the first one a group: one transaction of the coordinator.

What a group remembers goes with its lake: notes, records, witnesses, parked changes, and which tables are whose. What
is known of the sources' streams stays (what is staged, who reads, what was ordered), but for how far the lakes are:
that changes places. So before it and behind it each lake is told all that it lacks, and nothing of the log goes that
one of them needs. While it is done no process of the two applies, and what one of before still asks for names a lease
that has ended; those who read, and other groups, go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kuvasz.config.model import GROUPS
from kuvasz.errors import ConfigError
from kuvasz.state.coordinator.lease import APPLIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kuvasz.state.coordinator.database import Session

#: What a group remembers.
_REMEMBERED: Final = ("document", "piece", "lake_table")

#: Who applies, or has what is remembered: of the first one nobody who reads.
_LIVING_FIRST: Final = """
SELECT owner FROM kuvasz.lease
WHERE (cluster = %(cluster)s OR starts_with(cluster, %(appliers)s)) AND owner IS NOT NULL
    AND until > clock_timestamp() ORDER BY owner LIMIT 1
"""
#: Nothing of a source is added, begun anew or removed meanwhile.
_LOCKED: Final = "SELECT source FROM kuvasz.log_source WHERE cluster = %(cluster)s ORDER BY source FOR UPDATE"
#: What happened to the others it has looked at: as the first one it would take that for its own lake's past.
_UNHEARD: Final = """
SELECT s.source FROM kuvasz.log_source AS s WHERE s.cluster = %(cluster)s AND NOT EXISTS (
    SELECT FROM kuvasz.log_group_source AS g
    WHERE g.cluster = s.cluster AND g.name = %(name)s AND g.source = s.source AND g.begun = s.begun
        AND g.past = s.past)
ORDER BY s.source
"""
_END_LATE: Final = """
UPDATE kuvasz.lease SET owner = NULL WHERE cluster = %(cluster)s OR starts_with(cluster, %(appliers)s)
"""
#: Of the group, whose key another one may have one day; the first one's numbers go on.
_OF_GROUP: Final = "cluster = %(key)s OR starts_with(cluster, %(key)s || '/')"
_MOVE: Final = (
    "INSERT INTO kuvasz.log_group (cluster, name) VALUES (%(cluster)s, %(former)s)",
    """
    INSERT INTO kuvasz.log_group_source (cluster, name, source, applied, past, begun)
    SELECT cluster, %(former)s, source, applied, past, begun FROM kuvasz.log_source WHERE cluster = %(cluster)s
    """,
    """
    UPDATE kuvasz.log_source AS s SET applied = g.applied FROM kuvasz.log_group_source AS g
    WHERE s.cluster = %(cluster)s AND g.cluster = s.cluster AND g.name = %(name)s AND g.source = s.source
    """,
    "DELETE FROM kuvasz.log_group_source WHERE cluster = %(cluster)s AND name = %(name)s",
    "DELETE FROM kuvasz.log_group WHERE cluster = %(cluster)s AND name = %(name)s",
)


def promote(session: Session, cluster: str, name: str, former: str) -> None:
    """Have a group be the first one, within a transaction in which nobody takes a lease of either.

    Args:
        session: The transaction's.
        cluster: Whose log it is.
        name: The group.
        former: What the first one is called from then on.

    Raises:
        ConfigError: A process of the first one applies, or the group cannot go on with a source.
    """
    given = {
        "cluster": cluster, "name": name, "former": former, "key": f"{cluster}{GROUPS}{name}",
        "former_key": f"{cluster}{GROUPS}{former}", "appliers": f"{cluster}{APPLIES}/",
    }  # fmt: skip
    if (found := session.execute(_LIVING_FIRST, given).fetchone()) is not None:
        raise in_use("the first group", found[0])
    session.execute("SET LOCAL statement_timeout = 0")  # what is parked may be much
    # First of all: what they are in the middle of is waited for, and seen by whatever is asked from then on.
    session.execute(_END_LATE, given)
    for key in (given["key"], given["former_key"]):
        _drop(session, ("lease", "node", "applied_group"), key)
    # Of who began as a group of that name, and ended before it heard anything.
    _drop(session, _REMEMBERED, given["former_key"])
    session.execute(_LOCKED, given)
    if unheard := [source for (source,) in session.execute(_UNHEARD, given)]:
        raise lacking(name, unheard)
    if _is_made(session, "applied_group"):
        session.execute("DELETE FROM kuvasz.applied_group WHERE cluster = %(cluster)s", given)
    for statement in _MOVE:
        session.execute(statement, given)
    for table in _REMEMBERED:
        if _is_made(session, table):
            rename = f"UPDATE kuvasz.{table} SET cluster = %(to)s WHERE cluster = %(from)s"
            session.execute(rename, {"from": cluster, "to": given["former_key"]})
            session.execute(rename, {"from": given["key"], "to": cluster})


def _drop(session: Session, tables: Sequence[str], key: str) -> None:
    for table in tables:
        if _is_made(session, table):
            session.execute(f"DELETE FROM kuvasz.{table} WHERE {_OF_GROUP}", {"key": key})


def _is_made(session: Session, table: str) -> bool:
    return session.execute("SELECT to_regclass(%s)", (f"kuvasz.{table}",)).fetchone() != (None,)


def in_use(whose: str, node: str) -> ConfigError:
    """Return the error of a group of which a process applies."""
    return ConfigError(
        f"cluster: {whose} is in use: {node} applies",
        hint="stop its processes first; a dead one is forgotten after `cluster.lease`",
    )


def lacking(name: str, sources: list[str]) -> ConfigError:
    """Return the error of a group whose lake has nothing that goes on with some sources of the log."""
    return ConfigError(
        f"cluster: group {name} does not go on with {', '.join(sources)}",
        hint=f"have them in the map of {name}, and let it run until they stream there; a source that is to go leaves"
        " the first group's map before, with `map.drop_removed`",
    )


__all__ = ["in_use", "lacking", "promote"]
