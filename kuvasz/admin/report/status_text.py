"""`/status` as text: JSON that keeps what it said of a table for as long as that stays as it is.

Of a fleet's many tables few change between two looks, and to say one anew costs ten times as much as to see that it
is as it was.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
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

_NOTHING_FOUND: Final = b'"parked":null,"verified":null}'


class StatusText:
    """The text for who may see the same. Of one thread at a time.

    Args:
        errors: How errors look to him.
    """

    def __init__(self, errors: views.ErrorView) -> None:
        self._errors = errors
        #: target, source -> a state, and what was said of it
        self._kept: dict[tuple[str, str], tuple[TableState, bytes]] = {}
        self._verdicts: dict[tuple[str, str], tuple[Verdict, bytes]] = {}

    def of(self, snapshot: Snapshot) -> bytes:
        """Return what `views.status` says, as JSON."""
        tables_of = snapshot.view.tables_of()
        sources = [self._source(one, tables_of[one.name], snapshot) for one in snapshot.view.sources]
        if len(self._kept) > len(snapshot.view.tables):  # some have left the map
            there = {(table.target, table.source) for table in snapshot.view.tables}
            self._kept = {key: kept for key, kept in self._kept.items() if key in there}
            self._verdicts = {key: kept for key, kept in self._verdicts.items() if key in there}
        before, _, behind = _json(views.status_of(snapshot, [], self._errors)).partition(_NO_SOURCES)
        return b"".join((before, b'"sources":[', b",".join(sources), b"]", behind))

    def _source(self, source: SourceView, tables: Iterable[TableState], snapshot: Snapshot) -> bytes:
        said = _json(views.source_status(source, (), snapshot, self._errors))
        positions: dict[int | None, bytes] = {}  #: most tables of a source are as far as the others
        return b"".join((
            said.removesuffix(_NO_TABLES), b'"tables":[',
            b",".join(self._table(table, source, snapshot, positions) for table in tables), b"]}",
        ))  # fmt: skip

    def _table(
        self, table: TableState, source: SourceView, snapshot: Snapshot, positions: dict[int | None, bytes]
    ) -> bytes:
        key, lsn = (table.target, table.source), snapshot.durable_lsn(source, table)
        if lsn not in positions:
            positions[lsn] = b"," + _json(views.position_of(source, lsn, snapshot))[1:-1] + b","
        return self._facts(key, table, snapshot) + positions[lsn] + self._findings(key, snapshot)

    def _facts(self, key: tuple[str, str], table: TableState, snapshot: Snapshot) -> bytes:
        """Return what is said of a state, without the brace behind it."""
        kept = self._kept.get(key)
        if kept is not None and kept[0] is table:
            return kept[1]
        said = _json(views.table_facts(table, snapshot, self._errors))[:-1]
        # How fast a copy is changes with the clock, and a secret that an error must not show with the map.
        if table.state is not State.COPYING and table.error is None and not table.waits_for:
            self._kept[key] = table, said
        return said

    def _findings(self, key: tuple[str, str], snapshot: Snapshot) -> bytes:
        """Return what waits for a table and was found of it, with the brace behind it."""
        parked, verdict = snapshot.view.parked.get(key), snapshot.view.verdicts.get(key)
        if parked is None and verdict is None:
            return _NOTHING_FOUND
        kept = self._verdicts.get(key)
        if parked is None and kept is not None and kept[0] is verdict:
            return kept[1]
        said = _json(views.findings_of(parked, verdict, self._errors))[1:]
        if parked is None and verdict is not None and not verdict.error:
            self._verdicts[key] = verdict, said
        return said


def _json(said: dict[str, Any]) -> bytes:
    """Return JSON, which is as much work again with the standard library as to say it."""
    try:
        return pydantic_core.to_json(said)
    except pydantic_core.PydanticSerializationError:  # a name with half of a surrogate pair
        return json.dumps(said, separators=(",", ":")).encode()


__all__ = ["StatusText"]
