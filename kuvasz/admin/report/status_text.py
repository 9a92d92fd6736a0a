"""`/status` as text: JSON that keeps what it said of a table for as long as that stays as it is.

Of a fleet's many tables few change between two looks, and to say one anew costs ten times as much as to see that it
is as it was.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pydantic_core

from kuvasz.admin import views
from kuvasz.state.tables import State

if TYPE_CHECKING:
    from kuvasz.admin.observer import Snapshot
    from kuvasz.state.tables import TableState
    from kuvasz.state.verdicts.verdict import Verdict
    from kuvasz.view import SourceView

#: As the text has it, of a list without entries.
_NO_SOURCES: Final = b'"sources":[]'
_NO_TABLES: Final = b'"tables":[]}'


class StatusText:
    """The text for who may see the same. Of one thread at a time.

    Args:
        errors: How errors look to him.
    """

    def __init__(self, errors: views.ErrorView) -> None:
        self._errors = errors
        #: target, source -> a state, a verdict, and what was said of them before the table's position and behind it
        self._kept: dict[tuple[str, str], tuple[TableState, Verdict | None, tuple[bytes, bytes]]] = {}

    def of(self, snapshot: Snapshot) -> bytes:
        """Return what `views.status` says, as JSON."""
        tables_of = snapshot.view.tables_of()
        sources: list[bytes] = []
        for one in snapshot.view.sources:
            if sources:
                sources.append(b",")
            self._add_source(sources, one, tables_of[one.name], snapshot)
        if len(self._kept) > len(snapshot.view.tables):  # some have left the map
            there = {(table.target, table.source) for table in snapshot.view.tables}
            self._kept = {key: kept for key, kept in self._kept.items() if key in there}
        before, _, behind = _json(views.status_of(snapshot, [], self._errors)).partition(_NO_SOURCES)
        return b"".join((before, b'"sources":[', *sources, b"]", behind))

    def _add_source(
        self, said: list[bytes], source: SourceView, tables: Sequence[TableState], snapshot: Snapshot
    ) -> None:
        """Add the parts of what is said of a source: joined once, at the end, for they are many megabytes."""
        said.append(_json(views.source_status(source, (), snapshot, self._errors)).removesuffix(_NO_TABLES))
        positions: dict[int | None, bytes] = {}  #: most tables of a source are as far as the others
        between = b'"tables":['
        for table in tables:
            lsn = snapshot.durable_lsn(source, table)
            if lsn not in positions:
                positions[lsn] = b"," + _json(views.position_of(source, lsn, snapshot))[1:-1] + b","
            facts, findings = self._table(table, snapshot)
            said += (between, facts, positions[lsn], findings)
            between = b","
        said.append(b"]}" if tables else _NO_TABLES)

    def _table(self, table: TableState, snapshot: Snapshot) -> tuple[bytes, bytes]:
        """Return what is said of a table before its position, and behind it."""
        key = table.target, table.source
        verdict, parked = snapshot.view.verdicts.get(key), snapshot.view.parked.get(key)
        kept = self._kept.get(key)
        if kept is not None and kept[0] is table and kept[1] is verdict and parked is None:
            return kept[2]
        facts = _json(views.table_facts(table, snapshot, self._errors))[:-1]
        findings = _json(views.findings_of(parked, verdict, self._errors))[1:]
        # How fast a copy is changes with the clock, and a secret that an error must not show with the map.
        changes = table.state is State.COPYING or table.error is not None or table.waits_for or parked is not None
        if not changes and (verdict is None or not verdict.error):
            self._kept[key] = table, verdict, (facts, findings)
        return facts, findings


def _json(said: dict[str, Any]) -> bytes:
    """Return JSON, which is as much work again with the standard library as to say it."""
    try:
        return pydantic_core.to_json(said)
    except pydantic_core.PydanticSerializationError:  # a name with half of a surrogate pair
        return json.dumps(said, separators=(",", ":")).encode()


__all__ = ["StatusText"]
