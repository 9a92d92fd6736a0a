"""Follows which tables the collapses (`partitions_regex`) of one source take in, while it is replicated.

A newcomer is taken up as any table is that is added: looked at, published, copied beside the stream with a snapshot
of its own. The rows of a table that is gone stay in the lake: dropping a table deletes none. Called in threads of the
source's task, never on the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kuvasz.config import names
from kuvasz.config.sources import Source, SourceTableSpec
from kuvasz.errors import SchemaError
from kuvasz.ports import Lake
from kuvasz.state.progress import Progress
from kuvasz.state.tables import TableStates
from kuvasz.sync.rules import members

_log = logging.getLogger(__name__)


class MemberWatch:
    """The members of one source's collapses.

    Args:
        source: From the map.
        lake: Where their rows are.
        states: Told who comes and goes.
        progress: Let go for who is gone.
        settle: Returns when nothing that has begun for a target is under way.
        readmit: Has a table taken up, by its key.
    """

    def __init__(
        self,
        source: Source,
        lake: Lake,
        states: TableStates,
        progress: Progress,
        *,
        settle: Callable[[str], None],
        readmit: Callable[[str], None],
    ) -> None:
        self._map = source
        self._lake = lake
        self._states = states
        self._progress = progress
        self._settle = settle
        self._readmit = readmit
        self._gone: set[tuple[str, str]] = set()  # (target, name)
        self.has_any = any(spec.is_collapse for spec in source.tables)

    def look(self, connection: Any) -> Source:  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        """Return the source with the tables that its collapses take in now.

        Raises:
            SourceError: The catalog cannot be read.
        """
        return members.found(self._map, connection)

    def take(self, before: Source, now: Source, *, is_streaming: bool) -> None:
        """Take over what a look has shown; the source was replaced by it already.

        Args:
            before: What the look before that returned.
            now: What it returned.
            is_streaming: Whoever is new is taken up at once; at a start all tables are.
        """
        seen = members.compare(before, now)
        for spec in seen.came:
            self._states.add(spec.identifier, now.name_of(spec), str(spec.table))
            self._gone.discard((spec.identifier, now.name_of(spec)))
        self._states.spread(now.name)
        for old, spec in seen.renamed:
            self._states.rename(spec.identifier, now.name_of(spec), str(spec.table))
            self._tell("a table was renamed", spec, before=str(old.table))
            if now.name_of(spec) in self._lake.positions(spec.identifier):
                self.note(now, spec)
        if is_streaming:
            for spec in (*seen.came, *(spec for _, spec in seen.renamed)):
                self._tell("a table is taken in", spec)
                self._readmit(spec.key)
        for spec in seen.left:
            self._tell("a table is gone; its rows stay in the lake", spec, logging.WARNING)
            self._gone.add((spec.identifier, now.name_of(spec)))

    def forget_gone(self, now: Source) -> None:
        """Let go of who is gone. Should one come back, it has missed changes: it has no position, and is copied.

        Called after the source was replaced by `now`.
        """
        mine = {(spec.identifier, now.name_of(spec)) for spec in now.tables}
        for target, name in self._gone:
            self._states.remove(target, name)
            self._progress.release(name, target)  # each time: what was under way may have held again
        for target in {spec.identifier for spec in self._map.tables if spec.is_collapse}:
            for name in self._names(target, now):
                if (target, name) not in mine:
                    self._settle(target)  # else what is under way would be refused, and the target stop
                    self._lake.forget(target, name, is_gone=True)

    def _names(self, target: str, now: Source) -> list[str]:
        known = self._lake.positions(target)
        return [name for name in known if names.source_of(name) == now.name and names.member_of(name)]

    def note(self, now: Source, spec: SourceTableSpec) -> None:
        """Have the lake remember the name under which a member's rows come; its target must be prepared.

        Raises:
            SchemaError: The lake has the rows of an earlier table of that name.
        """
        known = members.remembered(self._lake.parts(spec.identifier, now.name) or ())
        present = {one.member for one in now.tables}
        earlier = [oid for oid, table in known.items() if table == str(spec.table) and oid not in present]
        if earlier and spec.member not in known:
            message = (
                f"source {now.name}, table {spec.table}: it was dropped and created again, and {spec.identifier} has"
                " the rows of the earlier one"
            )
            hint = f"rename it to keep both, or drop the table {spec.identifier} from the lake: it is copied anew"
            raise SchemaError(message, hint=hint)
        known[spec.member] = str(spec.table)
        self._lake.remember_parts(spec.identifier, now.name, members.rendered(known))

    def _tell(self, what: str, spec: SourceTableSpec, level: int = logging.INFO, **facts: str) -> None:
        _log.log(level, what, extra={"event": "members_changed", "source": self._map.name, "table": str(spec.table),
                                     "target": spec.identifier, **facts})  # fmt: skip


__all__ = ["MemberWatch"]
