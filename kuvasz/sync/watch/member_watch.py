"""Follows which tables the collapses (`partitions_regex`) of one source take in, while it is replicated.

A newcomer is taken up as any table is that is added: looked at, published, copied beside the stream with a snapshot
of its own. The rows of a table that is gone stay in the lake: dropping a table deletes none. Called in threads of the
source's task, never on the event loop.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

from kuvasz.config import names
from kuvasz.config.sources import Source, SourceTableSpec
from kuvasz.errors import SchemaError, TableStuck, place_of
from kuvasz.events import Event, EventLog
from kuvasz.model import NOTHING
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.rules import members
from kuvasz.sync.rules.few_keys import FewKeys

_log = EventLog(__name__)


class _LastMembers(NamedTuple):
    """What the last look has shown."""

    digest: int  #: of what there was to be taken in
    source: Source  #: with its members
    names: Mapping[str, frozenset[str]]  #: target -> the names by which the lake knows their rows


class MemberWatch:
    """The members of one source's collapses.

    Args:
        context: The context of the source.
    """

    def __init__(self, context: SourceContext) -> None:
        self._context = context
        self._map = context.source
        self._lake = context.shared.lake
        self._states = context.shared.states
        self._routes = context.shared.routes
        self._source_tables = context.source_tables
        self._shown: _LastMembers | None = None
        self._gone: FewKeys[tuple[str, str]] = FewKeys()  # (target, name)
        self._due: list[str] = []  # `SourceTableSpec.key` of who came and is to be taken up
        self._collapsed = frozenset(spec.identifier for spec in self._map.tables if spec.is_collapse) or NOTHING
        #: targets of which the catalog has yet to say whose rows they have: without a member nobody loads them
        self._unasked = FewKeys((target, None) for target in self._collapsed)
        self.has_any = bool(self._collapsed)

    def refresh(self, connection: Any) -> None:  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        """Take over which tables the collapses of the map take in now.

        Raises:
            SourceError: The catalog cannot be read.
        """
        source_tables = self._source_tables
        before, others = source_tables.source, self._others()
        there = members.candidates(self._map, connection) if self.has_any else []
        # Of ten thousand tables nearly every look shows the same.
        digest = hash((tuple(there), frozenset(others)))
        if self._shown is not None and self._shown.source is before and self._shown.digest == digest:
            return
        source_tables.update(members.expanded(self._map, there, others) if self.has_any else self._map)
        try:
            self._take(before, source_tables.source)
        except BaseException:
            source_tables.source = before  # else the next look would find nothing new, and nobody take them up
            raise
        if self.has_any:  # of a thousand sources without members none has to remember that
            self._shown = _LastMembers(digest, source_tables.source, self._mine())
        present = {spec.key for spec in source_tables.source.tables}
        for seen in (source_tables.tables, source_tables.misfits):
            for key in seen.keys() - present:
                seen.pop(key, None)

    def _others(self) -> set[int]:
        """Return the OIDs of the tables whose rows entries of their own have."""
        plain = [spec for spec in self._map.tables if not spec.is_collapse]
        oids = {self._lake.notes.oid(spec.identifier, self._map.name_of(spec)) for spec in plain}
        return {oid for oid in oids if oid}

    def _take(self, before: Source, now: Source) -> None:
        """Take over what a look has shown. Whoever is new is taken up by `forget_gone`; at a start all tables are."""
        seen = members.compare(before, now)
        for spec in seen.came:
            self._states.add(spec.identifier, now.name_of(spec), str(spec.table))
            self._gone.discard((spec.identifier, now.name_of(spec)))
        self._states.spread(now.name)
        for old, spec in seen.renamed:
            self._states.rename(spec.identifier, now.name_of(spec), str(spec.table))
            self._tell(Event.MEMBER_RENAMED, spec, before=str(old.table))
            if self._lake.position(spec.identifier, now.name_of(spec)) is not None:
                self.note(spec)
        if self._context.current.is_there:
            for spec in (*seen.came, *(spec for _, spec in seen.renamed)):
                self._tell(Event.MEMBER_ADDED, spec)
                self._due.append(spec.key)
        for spec in seen.left:
            self._tell(Event.MEMBER_GONE, spec)
            self._gone.add((spec.identifier, now.name_of(spec)))
            self._unasked.add(spec.identifier)

    def forget_gone(self) -> None:
        """Let go of who is gone, then have those taken up who came: of one sid, they replace rows of who is gone.

        Should one come back, it has missed changes: it has no position, and is copied.
        """
        now = self._source_tables.source
        mine = self._mine() if self._shown is None or self._shown.source is not now else self._shown.names
        for target, name in self._gone:
            self._routes.unbind(now.name, target, names.member_of(name))
            self._states.remove(target, name)
            self._context.shared.progress.release(name, target)  # each time: what was under way may have held again
        for target in self._collapsed:
            try:
                left = self._left(target, mine.get(target, NOTHING))
            except TableStuck:  # its members tell it, if it has any; it is asked again
                continue
            for name in left:
                self._routes.unbind(now.name, target, names.member_of(name))
                self._context.settle(target)  # else what is under way would be refused, and the target stop
                self._lake.forget(target, name, is_gone=True)
            self._unasked.discard(target)
        while self._due:
            self._context.requests.send(self._due.pop(0))

    def _mine(self) -> dict[str, frozenset[str]]:
        now, found = self._source_tables.source, dict[str, list[str]]()
        for spec in now.tables:
            found.setdefault(spec.identifier, []).append(now.name_of(spec))
        return {target: frozenset(mine) for target, mine in found.items()}

    def _left(self, target: str, mine: frozenset[str]) -> list[str]:
        """Return the names of members whose rows a target has, and that are gone."""
        known = self._lake.recorded(target) if target in self._unasked else self._lake.positions(target)
        source = self._map.name
        return [name for name in known.keys() - mine if names.source_of(name) == source and names.member_of(name)]

    def note(self, spec: SourceTableSpec) -> None:
        """Have the lake remember the name under which a member's rows come; its target must be prepared.

        Raises:
            SchemaError: The lake has the rows of an earlier table of that name, or those of another source's members;
                or it has those of too many members.
        """
        if spec.tenant is not None:
            return  # another copy replaces the rows of a sid, whichever table they are of
        now = self._source_tables.source
        self._refuse_beside_others(spec, now)
        known = members.remembered(self._lake.notes.partitions(spec.identifier, now.name) or ())
        present = {one.member for one in now.tables}
        earlier = [oid for oid, table in known.items() if table == str(spec.table) and oid not in present]
        if earlier and spec.member not in known:
            message = (
                f"{place_of(now.name, spec.table)}: it was dropped and created again, and {spec.identifier} has"
                " the rows of the earlier one"
            )
            hint = f"rename it to keep both, or drop the table {spec.identifier} from the lake: it is copied anew"
            raise SchemaError(message, hint=hint)
        if spec.member not in known and len(known) >= members.MOST_REMEMBERED:
            message = (
                f"{place_of(now.name, spec.table)}: {spec.identifier} has the rows of {len(known):,} tables of it,"
                f" those that were dropped included, and at most {members.MOST_REMEMBERED:,} may be one target"
            )
            raise SchemaError(message, hint="have `partitions_regex` take in fewer, or give it another `target`")
        known[spec.member] = str(spec.table)
        self._lake.notes.remember_partitions(spec.identifier, now.name, members.rendered(known))

    @functools.cached_property
    def _earlier(self) -> Mapping[str, str | None]:
        """Source -> sid, of all there were when this one began: none comes later that feeds the rows of this one.

        Read once, and not for each member: it is a file that has all sources.
        """
        return self._context.shared.state.feeds.sids()

    def _refuse_beside_others(self, spec: SourceTableSpec, now: Source) -> None:
        """Refuse a member whose rows would stand beside those of a source that is mapped no more, as if of one."""
        target = spec.identifier
        for other, sid in self._earlier.items():
            is_namesake = other != now.name and (sid == now.sid or not spec.has_sid)
            if is_namesake and self._lake.notes.partitions(target, other):
                raise SchemaError(
                    f"{place_of(now.name, spec.table)}: {target} has the rows of source {other}, which nothing tells"
                    " from these",
                    hint=f"drop the table {target} from the lake: it is copied anew; or give it another `target`",
                )

    def _tell(self, event: Event, spec: SourceTableSpec, **facts: str) -> None:
        _log.tell(event, source=self._map.name, table=str(spec.table), target=spec.identifier, **facts)


__all__ = ["MemberWatch"]
