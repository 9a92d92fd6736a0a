"""Which of the processes that read is to hold which source. Pure: each of them works the same out for itself.

As many for each as for any other, but for one. What is held stays where it is; only what one has too much of, or
nobody has, goes to who has too little, and of several to the one that rendezvous hashing says: so a process that
comes or goes moves no source but its own share.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple


class Share(NamedTuple):
    """What one process is to do about its share."""

    taken: list[str]  #: sources that nobody holds, and that it is to take
    given: list[str]  #: sources that it holds, and is to give back


def share_of(node: str, nodes: Mapping[str, bool], holders: Mapping[str, str | None]) -> Share:
    """Return what a process is to do: nothing, once all are shared out.

    Args:
        node: The process.
        nodes: All that read and live -> whether it is to give away what it holds.
        holders: All sources that are to be read -> who holds it, or left without a word; None: nobody.
    """
    plan = shared_out(nodes, holders)
    return Share(
        taken=[source for source, to in plan.items() if to == node and holders[source] not in nodes],
        given=[source for source, holder in holders.items() if holder == node and plan[source] != node],
    )


def shared_out(nodes: Mapping[str, bool], holders: Mapping[str, str | None]) -> Mapping[str, str | None]:
    """Return who is to hold each source; None: there is nobody who may.

    Args:
        nodes: See `share_of`.
        holders: See `share_of`.
    """
    takers = sorted(node for node, drains in nodes.items() if not drains)
    if not takers:  # better with one that is to give it away than with nobody
        return {source: holder if holder in nodes else None for source, holder in holders.items()}
    held: dict[str, list[str]] = {node: [] for node in takers}
    free: list[str] = []
    for source, holder in holders.items():
        (free if holder is None else held.get(holder, free)).append(source)
    most = _most(held, len(holders))
    plan: dict[str, str | None] = dict(holders)
    for node, mine in held.items():
        if len(mine) > most[node]:
            mine.sort(key=lambda source: _weight(node, source), reverse=True)
            free += mine[most[node] :]
            del mine[most[node] :]
    room = {node: most[node] - len(mine) for node, mine in held.items()}
    for source in sorted(free):
        to = max((node for node in takers if room[node]), key=lambda node: _weight(node, source))
        room[to] -= 1
        plan[source] = to
    return plan


def _most(held: Mapping[str, list[str]], sources: int) -> dict[str, int]:
    """Return how many each may hold: who has one more than others already keeps it."""
    least, over = divmod(sources, len(held))
    by_load = sorted(held, key=lambda node: (-len(held[node]), node))
    return {node: least + (at < over) for at, node in enumerate(by_load)}


def _weight(node: str, source: str) -> bytes:
    """Return how well a source fits a process: as good as random, and the same for everybody."""
    return hashlib.blake2b(f"{node}\0{source}".encode(), digest_size=8).digest()


__all__ = ["Share", "share_of", "shared_out"]
