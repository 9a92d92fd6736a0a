"""What sources have of tables that patterns may take in: asked at a start, and looked at while they stream.

What was seen is kept: a source that is down at a start keeps the tables it had, and the tables that came first keep
their targets. From any thread.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kuvasz.config import names, sources
from kuvasz.config.patterns import expansion
from kuvasz.config.patterns.expansion import expanded
from kuvasz.config.patterns.found_tables import LeftOut, SeenTable
from kuvasz.config.patterns.new_tables import NewTables
from kuvasz.errors import SourceTooLarge, place_of
from kuvasz.events import Event, EventLog
from kuvasz.source import conninfo
from kuvasz.source.catalog import mappable
from kuvasz.sync.rules import map_difference

if TYPE_CHECKING:
    from kuvasz.config.model import Config
    from kuvasz.config.sources import Pattern, Source
    from kuvasz.model import TableName
    from kuvasz.state.ports import StoredFeeds

_log = EventLog(__name__)

#: Sources that are asked side by side.
_THREADS = 32

_HINT = "drop those that are not needed, `except` them, or give `max_tables` more; it is tried again"


class PatternTables:
    """The tables.

    Args:
        stored: Where what was seen is kept.
        may_keep: Whether what is seen is kept there: by whoever replicates alone.
    """

    def __init__(self, stored: StoredFeeds, *, may_keep: bool = False) -> None:
        self._stored = stored
        self._may_keep = may_keep
        self._lock = threading.Lock()
        self._taking = threading.RLock()  # sources are looked at side by side: what one has may be another one's
        self._seen: dict[str, tuple[SeenTable, ...]] | None = None  #: None: nobody has asked
        self._patterns: dict[str, tuple[Pattern, ...]] = {}  #: by which each source was asked in this process
        self._told: set[LeftOut] = set()
        self._new = NewTables()
        self.is_mine: Callable[[Source], bool] = lambda _: True  #: others are asked by another process
        self.version = 0  #: another one whenever something else was seen

    def applied(self, config: Config) -> Config:
        """Return a map that knows which tables its patterns take in, by what was seen last.

        Of one that runs, no target becomes what only a restart makes of it, though its table went and another one of
        its name came that a pattern of another type takes in: that is left out until the target is fed no more, with
        another `version` for whoever follows the patterns. Else whoever owns a source would have everybody's map
        refused.
        """
        if not any(group.patterns for group in config.databases):
            return config
        known = expanded(config, self._known())
        if not (moved := expansion.moved(config, known)):
            return known
        found = map_difference.redefined(sources.resolve(config), sources.resolve(known))
        redefined = {target for target, _, _ in found}
        left = {target for target in moved if ".".join(target) in redefined}
        if not left:
            return known
        self.version += 1
        return expansion.without(known, left)

    def read_again(self) -> None:
        """Go by what other processes have seen since.

        Raises:
            StateError: It cannot be read.
        """
        with self._taking:  # what is kept meanwhile would be forgotten
            found = {name: _parsed(tables) for name, tables in self._stored.seen().items()}
            with self._lock:
                self.version += found != self._seen
                self._seen = found

    def looked(self, config: Config, *, is_all: bool = True) -> Config:
        """Return the same after the sources were asked; of one that does not answer it is what was seen last. Blocks.

        Args:
            config: The map.
            is_all: Ask also those that were asked by the same patterns before.
        """
        if not any(group.patterns for group in config.databases):
            return config
        due = [one for one in sources.resolve(config) if one.patterns and self._is_due(one, is_all=is_all)]
        if due:
            with concurrent.futures.ThreadPoolExecutor(_THREADS, thread_name_prefix="patterns") as pool:
                answers = list(pool.map(_asked, due))
            self._take({one.name: found for one, found in zip(due, answers, strict=True) if found is not None})
            self._patterns |= {one.name: one.patterns for one in due}
        return self.applied(config)

    def look(self, connection: Any, source: Source) -> None:  # noqa: ANN401 (psycopg's, which is `source`'s alone)
        """Take over what a source has now.

        Raises:
            SourceError: The catalog cannot be read.
            SourceTooLarge: There are too many, or too many have come within a day.
            StateError: Other processes cannot be told, or nobody knows what they have seen.
        """
        found = _found(connection, source)
        fresh = self._fresh(source, found)
        self._take({source.name: found})
        self._new.note(source.name, fresh, time.monotonic())

    def refuse_many(self, connection: Any, source: Source) -> None:  # noqa: ANN401 (as above)
        """Refuse a source that `look` would refuse, and take nothing over: it begins more often than it is looked at.

        Raises:
            SourceError: The catalog cannot be read.
            SourceTooLarge: There are too many, or too many have come within a day.
        """
        if source.patterns:
            self._fresh(source, _found(connection, source))

    def tell(self, config: Config) -> None:
        """Say once of each table why no pattern takes it in."""
        left = [one for group in config.databases if group.found is not None for one in group.found.left_out]
        for one in left:
            if one not in self._told:
                _log.tell(
                    Event.PATTERN_LEAVES_OUT, source=one.source, table=one.table, pattern=one.pattern,
                    reason=one.why, hint=one.hint,
                )  # fmt: skip
        self._told = set(left)

    def _fresh(self, source: Source, found: Sequence[SeenTable]) -> Collection[TableName]:
        """Return the tables that have come to a source since it was looked at last; of one that never was, none.

        Raises:
            SourceTooLarge: They are too many within a day.
        """
        if (before := self._known().get(source.name)) is None:
            return ()
        had = {one.table for one in before}
        fresh = {one.table for one in found if one.table not in had and _is_like(source, one)}
        count = self._new.count(source.name, fresh, time.monotonic())
        if fresh and count > source.max_tables:
            what = f"{count:,} tables that are like patterns of the map have come to it within a day"
            raise SourceTooLarge(
                f"{place_of(source.name)}: {what}, and at most {source.max_tables:,} may", hint=_HINT
            )
        return fresh

    def _is_due(self, source: Source, *, is_all: bool) -> bool:
        if not self.is_mine(source):
            return source.name not in self._known()
        if is_all:
            return True
        known = self._patterns.get(source.name)
        return source.name not in self._known() if known is None else known != source.patterns

    def _known(self) -> Mapping[str, tuple[SeenTable, ...]]:
        with self._lock:
            if self._seen is None:
                self._seen = {name: _parsed(found) for name, found in self._stored.seen().items()}
            return dict(self._seen)

    def _take(self, found: Mapping[str, Sequence[SeenTable]]) -> None:
        with self._taking:
            if not (other := self._other(found)):
                return
            if self._may_keep:
                with self._stored.turn() as is_shared:
                    if is_shared:  # of two that see a table of one target each, the second knows of the first
                        self.read_again()
                        other = self._other(found)
                    self._stored.see({name: _rendered(tables) for name, tables in other.items()})
            with self._lock:
                assert self._seen is not None
                self._seen |= other
                self.version += bool(other)

    def _other(self, found: Mapping[str, Sequence[SeenTable]]) -> dict[str, tuple[SeenTable, ...]]:
        """Return what sources have that had something else."""
        before = self._known()
        since = 1 + max((one.since for tables in before.values() for one in tables), default=0)
        now = {name: _after(tables, before.get(name, ()), since) for name, tables in found.items()}
        return {name: tables for name, tables in now.items() if before.get(name) != tables}


def _asked(source: Source) -> tuple[SeenTable, ...] | None:
    """Return what a source has; None if it does not say."""
    try:
        with contextlib.closing(conninfo.connect(source.url.get())) as connection:
            return _found(connection, source)
    except Exception:  # noqa: BLE001 (whatever it is, whoever replicates it says why; all others are asked with it)
        return None


def _found(connection: Any, source: Source) -> tuple[SeenTable, ...]:  # noqa: ANN401 (as above)
    """Return what a source has.

    Raises:
        SourceError: The catalog cannot be read.
        SourceTooLarge: There is too much.
    """
    found = mappable.load(connection, [pattern.table for pattern in source.patterns])
    if len(found) > source.max_tables:
        like = sum(_is_like(source, one) for one in found)
        if like > source.max_tables:
            what = f"{like:,} tables of it are like patterns of the map, and at most {source.max_tables:,} may be"
            raise SourceTooLarge(f"{place_of(source.name)}: {what}", hint=_HINT)
    return found


def _is_like(source: Source, table: SeenTable) -> bool:
    return any(pattern.means(table.table) for pattern in source.patterns)


def refuse_many(connection: Any, source: Source) -> None:  # noqa: ANN401 (as above)
    """Refuse a source that has too many tables.

    Raises:
        SourceError: The catalog cannot be read.
        SourceTooLarge: There are more than `max_tables`.
    """
    if source.patterns:
        _found(connection, source)


def _after(tables: Sequence[SeenTable], before: Sequence[SeenTable], since: int) -> tuple[SeenTable, ...]:
    """Return tables with those that were there before in front: these keep their targets.

    One that has lost its key is as it was: it is followed, and stops as any table does that has none.

    Args:
        tables: What a source has.
        before: What it had.
        since: When those came that are new.
    """
    known = {one.table: one for one in before}
    was = ((one, known.get(one.table)) for one in tables)
    found = (
        dataclasses.replace(one, since=since) if old is None else
        dataclasses.replace(old, has_key=old.has_key or one.has_key)
        for one, old in was
    )  # fmt: skip
    return tuple(sorted(found, key=lambda one: one.since))


def _parsed(found: Sequence[tuple[str, bool, int]]) -> tuple[SeenTable, ...]:
    return tuple(SeenTable(table=names.parse_table(name), has_key=key, since=since) for name, key, since in found)


def _rendered(tables: Sequence[SeenTable]) -> list[tuple[str, bool, int]]:
    return [(names.render_table(one.table), one.has_key, one.since) for one in tables]


__all__ = ["PatternTables", "refuse_many"]
