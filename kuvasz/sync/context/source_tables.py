"""The tables of one source: which there are now, and how each of them stands.

A table is named by its target, and one of several that are one target by `SourceTableSpec.key`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from kuvasz.config import names
from kuvasz.config.sources import Source, SourceTableSpec
from kuvasz.errors import KuvaszError
from kuvasz.events import Event, EventLog
from kuvasz.model import SourcePosition, TableName
from kuvasz.ports import Lake
from kuvasz.source.catalog.table import SourceTable
from kuvasz.state.progress import Progress
from kuvasz.state.tables import State, TableState, TableStates
from kuvasz.sync.context.gap_starts import Evidence, GapStarts
from kuvasz.sync.rules.few_keys import FewKeys

_log = EventLog(__name__)


class SourceTables:
    """What is asked and told of the tables of one source. From any thread.

    Args:
        source: From the map.
        lake: Where their rows are.
        states: What state each is in.
        progress: Told which of them hold the source.
    """

    def __init__(self, source: Source, lake: Lake, states: TableStates, progress: Progress) -> None:
        tables = tuple(spec for spec in source.tables if not spec.is_collapse)
        #: with the tables that its collapses take in, as last seen
        self.source = source if tables == source.tables else dataclasses.replace(source, tables=tables)
        self.tables: dict[str, SourceTable] = {}  #: usable ones, as last seen, by `SourceTableSpec.key`
        self.misfits: dict[str, SourceTable] = {}  #: those whose map entry is wrong, as last seen, by key
        #: those of which a look, or the stream, has doubts that a later look ends, by key
        self.put_off: dict[Evidence, FewKeys[str]] = {evidence: FewKeys() for evidence in Evidence}
        self.gap_starts = GapStarts()
        self._lake = lake
        self._states = states
        self._progress = progress
        self._mapped = {spec.key: spec.table for spec in self.source.tables}
        self._names: dict[str, TableName] = {}  #: of tables that are called otherwise than the map says, by key
        for spec in self.source.tables:
            states.add(spec.identifier, self.name(spec), str(spec.table))

    # Which there are

    def spec(self, key: str) -> SourceTableSpec:
        """Return the table of a key.

        Raises:
            KeyError: The source has no such table (any more).
        """
        for spec in self.source.tables:
            if spec.key == key:
                return spec
        raise KeyError(key)

    def update(self, source: Source) -> None:
        """Take over which tables there are, each by the name that it has now."""
        names = self._names
        tables = tuple(
            dataclasses.replace(spec, table=names[spec.key]) if not spec.member and spec.key in names else spec
            for spec in source.tables
        )
        self.source = dataclasses.replace(source, tables=tables)

    def mapped(self, spec: SourceTableSpec) -> TableName:
        """Return the name that the map has of a table; of one that a collapse takes in, its own."""
        return self._mapped.get(spec.key, spec.table)

    def rename(self, spec: SourceTableSpec, name: TableName) -> SourceTableSpec:
        """Take note that a table is called otherwise at its source; return it by that name."""
        if name == self.spec(spec.key).table:
            return dataclasses.replace(spec, table=name)
        mapped = self.mapped(spec)
        self._names = {key: known for key, known in self._names.items() if key != spec.key}
        if name != mapped:
            self._names[spec.key] = name
            hint = f"write {names.render_table(name)} with `target: {spec.identifier}` into the map"
            _log.tell(
                Event.TABLE_RENAMED,
                source=self.source.name,
                table=spec.identifier,
                mapped=str(mapped),
                now=str(name),
                hint=hint,
            )
        before = self.source
        self.update(dataclasses.replace(before, tables=tuple(
            dataclasses.replace(one, table=mapped) if one.key == spec.key else one for one in before.tables
        )))  # fmt: skip
        self._states.rename(spec.identifier, self.name(spec), str(name), "" if name == mapped else str(mapped))
        return dataclasses.replace(spec, table=name)

    def known(self, keys: Iterable[str]) -> list[SourceTableSpec]:
        """Return the tables of these keys; one of several that are one target may have left."""
        wanted = dict.fromkeys(keys)
        return [spec for spec in self.source.tables if spec.key in wanted]

    def usable(self) -> list[tuple[SourceTableSpec, SourceTable]]:
        """Return the usable tables, as last seen."""
        found = [(spec, self.tables.get(spec.key)) for spec in self.known(tuple(self.tables))]
        return [(spec, table) for spec, table in found if table is not None]  # another thread may have taken one out

    def name(self, spec: SourceTableSpec) -> str:
        """Return the name by which lake, states and progress know the source of a table."""
        return self.source.name_of(spec)

    # How each stands

    def position(self, spec: SourceTableSpec) -> SourcePosition | None:
        """Return how far a table is in the lake; None: its rows are not there."""
        return self._lake.position(spec.identifier, self.name(spec))

    def look(self, spec: SourceTableSpec) -> TableState:
        """Return all that is known of a table's state."""
        return self._states.get(spec.identifier, self.name(spec))

    def state(self, spec: SourceTableSpec) -> State:
        """Return a table's state."""
        return self._states.state(spec.identifier, self.name(spec))

    def is_paused(self, spec: SourceTableSpec) -> bool:
        """Whether a person wants a table to stay where it is."""
        return self.look(spec).is_paused

    def is_streaming(self, spec: SourceTableSpec) -> bool:
        """Whether a table follows the stream."""
        return self._states.is_streaming(spec.identifier, self.name(spec))

    @property
    def is_copying(self) -> bool:
        """Whether any table is being copied."""
        return any(self.state(spec) is State.COPYING for spec in self.source.tables)

    def set(self, spec: SourceTableSpec, state: State, error: KuvaszError | None = None) -> None:
        """Change a table's state; see `TableStates.set`. One that followed holds its source from that moment on."""
        self._states.set(spec.identifier, self.name(spec), state, error, hold=lambda: self.hold(spec))

    def resync(self, spec: SourceTableSpec, *, is_due: bool, is_repair: bool = False) -> None:
        """Note whether a table is to be copied again; see `TableStates.resync`."""
        self._states.resync(spec.identifier, self.name(spec), is_due=is_due, is_repair=is_repair)

    def note(self, spec: SourceTableSpec, **facts: float | str | KuvaszError) -> None:
        """Note facts of a table; see `TableStates.note`."""
        self._states.note(spec.identifier, self.name(spec), **facts)

    def hold(self, spec: SourceTableSpec) -> int:
        """Have nothing beyond this place of the stream confirmed; see `Progress.hold`."""
        return self._progress.hold(self.name(spec), spec.identifier)

    def release(self, spec: SourceTableSpec) -> None:
        """Undo all holds of a table."""
        self._progress.release(self.name(spec), spec.identifier)

    def release_following(self, spec: SourceTableSpec, hold: int) -> bool:
        """Undo a hold if the table follows the stream, and return whether it does; see `TableStates.release`."""
        name, target = self.name(spec), spec.identifier
        return self._states.release(target, name, lambda: self._progress.release(name, target, hold))


__all__ = ["SourceTables"]
