"""All that a page may be of, at one moment: sums are made once, JSON is made of what is shown alone.

With thousands of sources the whole of ``/status`` takes longer than a reader of a page should wait. Pure.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kuvasz.admin import views
from kuvasz.admin.views import ErrorView
from kuvasz.shown import figures

if TYPE_CHECKING:
    from kuvasz.admin.observer import Snapshot
    from kuvasz.ports import Upkeep
    from kuvasz.state.tables import TableState
    from kuvasz.view import SourceView

#: A part of the JSON of ``/status``.
Told: TypeAlias = dict[str, Any]

#: States of sources, the worst first; others are in between.
_RANKS: Final = {"error": 0, "waiting": 1, "stopped": 1, "connecting": 3, "starting": 3, "streaming": 4}
_OTHERS: Final = 1
_WITH_FAILED_TABLES: Final = 2


@dataclasses.dataclass(kw_only=True)
class SourcePart:
    """A source with its tables."""

    view: SourceView
    tables: list[TableState]
    lag: float | None
    held: int  #: bytes of WAL that its slot keeps
    states: collections.Counter[str]
    failed: list[TableState]

    @functools.cached_property
    def badness(self) -> tuple[object, ...]:
        """What sorts sources, the worst first."""
        rank = _RANKS.get(self.view.state, _OTHERS)
        if self.failed:
            rank = min(rank, _WITH_FAILED_TABLES)
        return rank, -(self.lag or 0.0), -self.held, self.view.name


@dataclasses.dataclass(slots=True, kw_only=True)
class TargetPart:
    """A table of the lake, with all of its sources."""

    name: str
    feeds: list[tuple[SourcePart, TableState]] = dataclasses.field(default_factory=list)
    states: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    rows: int = 0
    failed: int = 0


class StatusParts:
    """The moment.

    Args:
        snapshot: All of it.
        errors: How they look to who asks.
    """

    def __init__(self, snapshot: Snapshot, errors: ErrorView) -> None:
        self.snapshot = snapshot
        self._errors = errors

    @functools.cached_property
    def sources(self) -> Mapping[str, SourcePart]:
        """Each source, by its name; the worst first."""
        tables_of, found = self.snapshot.view.tables_of(), []
        for view in self.snapshot.view.sources:
            tables, slot = tables_of[view.name], self.snapshot.facts[view.name].slot
            found.append(
                SourcePart(
                    view=view, tables=tables, lag=self.snapshot.lag_seconds(view),
                    held=0 if slot is None else slot.retained_bytes,
                    states=collections.Counter([table.state.value for table in tables]),
                    failed=[table for table in tables if table.error is not None],
                )
            )  # fmt: skip
        return {part.view.name: part for part in sorted(found, key=lambda part: part.badness)}

    @functools.cached_property
    def targets(self) -> Mapping[str, TargetPart]:
        """Each table of the lake, by its name; those with an error first."""
        found: dict[str, TargetPart] = {}
        for part in self.sources.values():
            for table in part.tables:
                target = found.get(table.target)
                if target is None:
                    target = found[table.target] = TargetPart(name=table.target)
                target.feeds.append((part, table))
                target.states[table.state.value] += 1
                target.rows += table.rows
                target.failed += table.error is not None
        return {one.name: one for one in sorted(found.values(), key=lambda one: (not one.failed, one.name))}

    @functools.cached_property
    def upkeep(self) -> Mapping[str, Upkeep]:
        """The files of each table of the lake that maintenance has looked at."""
        return {one.target: one for one in self.snapshot.view.upkeep}

    @functools.cached_property
    def parked(self) -> Mapping[str, int]:
        """Bytes that are parked of each table of the lake, where there are any."""
        found: collections.Counter[str] = collections.Counter()
        for (target, _), parked in self.snapshot.view.parked.items():
            found[target] += parked.bytes
        return found

    @functools.cached_property
    def is_ready(self) -> bool:
        """Whether all tables are there."""
        return not views.readyz(self.snapshot)

    @property
    def at(self) -> str:
        """The moment, for people."""
        return f"as of {figures.moment(views.instant(self.snapshot.now))}"

    def source(self, part: SourcePart) -> Told:
        """Return what ``/status`` says of a source, without its tables."""
        return views.source_status(part.view, (), self.snapshot, self._errors)

    def table(self, part: SourcePart, table: TableState) -> Told:
        """Return what ``/status`` says of a table of a source."""
        return views.table_status(table, part.view, self.snapshot, self._errors)

    def error(self, part: SourcePart) -> Told | str | None:
        """Return a source's error, or that of the first of its tables that has one."""
        if part.view.error is not None:
            return self._errors.text(part.view.error)
        return self._errors.of(part.failed[0].error) if part.failed else None

    def text(self, text: str | None) -> str | None:
        """Return a text that may quote rows as it may be shown."""
        return self._errors.row_text(text)

    def differing(self, tables: Iterable[TableState]) -> int:
        """Return how many keys of tables differ from what their sources have, by the last comparison of each."""
        verdicts = self.snapshot.view.verdicts
        if not verdicts:
            return 0
        return sum(verdicts[key].left for table in tables if (key := (table.target, table.source)) in verdicts)


__all__ = ["SourcePart", "StatusParts", "TargetPart", "Told"]
