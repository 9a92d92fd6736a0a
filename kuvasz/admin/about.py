"""What a running kuvasz tells its lake of itself (`lake.about`): what happens, and how far each source is.

An event is told when it happens, without what the log alone may say of rows. How far a source's table is, is told
when it is another thing than what was told last: its position and state at once, that the table is valid through a
later time while nothing comes, once a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools
import itertools
import json
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from kuvasz import lsn
from kuvasz.admin.views import WITHHELD, ErrorView
from kuvasz.events import Event, EventLog, heard_by

if TYPE_CHECKING:
    from kuvasz.admin.observer import Observer, Snapshot
    from kuvasz.app import App
    from kuvasz.ports import About
    from kuvasz.state.tables import TableState
    from kuvasz.view import SourceView

_log = EventLog(__name__)

Row: TypeAlias = dict[str, object]

#: Between two looks at the sources, and how many times as long as one takes; and between two at whether it is time.
_LOOK_S: Final = 10.0
_PAUSE_TO_LOOK: Final = 100.0
_STEP_S: Final = 1.0

#: How long a row counts of which nothing but `valid_through` has changed.
_VALID_S: Final = 60.0

#: By so much the lag may be another one than the last row says while nothing else has changed.
_LAG_S: Final = 60.0

#: Columns that move by themselves: no row is told for them alone, but for a lag that is far from what was told.
_MOVING = frozenset({"seen_at", "lag_seconds", "wal_held_bytes"})

#: What commits brought has a table of its own; and what an engine says may be anything.
_ELSEWHERE = frozenset({Event.CHANGES, Event.CHANGES_OF_OTHERS, Event.SPARK_SAID})

#: Told also of the tables about the lake.
_ABOUT = frozenset({Event.ABOUT_FAILED, Event.ABOUT_LOST})

#: Their `error` quotes no value of any row: it is of connections, slots and files.
PUBLIC = _ABOUT | {
    Event.SOURCE_FAILED, Event.SOURCE_STOPPED, Event.SLOT_LOST, Event.SLOT_LOST_REPAIRED, Event.SLOT_LOST_AGAIN,
    Event.LAKE_REWOUND_MENDED, Event.COPIED_AGAIN_LOST, Event.STANDING_FAILED, Event.NOTE_FAILED, Event.FEEDS_FAILED,
    Event.RELATION_FILES_FAILED, Event.WITNESS_FAILED, Event.INDEX_UNSAVED,
}  # fmt: skip


#: Characters of a text of an event, and entries of a list: a source has names and errors as long as it likes, and
#: rows wait in memory by their number.
_LONGEST: Final = 4000
_MOST: Final = 100
_MORE: Final = "… and more:"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


class EventRows:
    """Makes rows of events; one for a run of kuvasz, whose events it counts, so that one that is missing is seen.

    Args:
        namespace: The namespace of the tables about the lake: what is done to them is nobody's concern.
        redact: Takes secrets out.
        wall: Unix seconds.
    """

    def __init__(
        self, namespace: str, redact: Callable[[str], str] = str, wall: Callable[[], float] = time.time
    ) -> None:
        self._own = f"{namespace}."
        self._redact = redact
        self._wall = wall
        self._run = uuid.uuid4().hex[:12]
        self._numbers = itertools.count(1)

    def of(self, event: Event, facts: Mapping[str, object]) -> Iterator[Row]:
        """Yield the row of an event, if it has one."""
        table = facts.get("table")
        is_own = isinstance(table, str) and table.startswith(self._own) and event not in _ABOUT
        if event.level < logging.INFO or event in _ELSEWHERE or is_own:
            return
        others = {name: self._shown(event, name, value) for name, value in facts.items()
                  if name not in {"source", "table"}}  # fmt: skip
        yield {
            "happened_at": datetime.datetime.fromtimestamp(self._wall(), datetime.UTC),
            "run": self._run,
            "number": next(self._numbers),
            "severity": logging.getLevelName(event.level).lower(),
            "event": event.code,
            "text": event.message,
            "source": self._clean(facts.get("source")),
            "table_name": self._clean(table),
            "fields": json.dumps(others, ensure_ascii=False),
        }

    def _shown(self, event: Event, name: str, value: object) -> object:
        return WITHHELD if name == "error" and event not in PUBLIC else self._clean(value)

    def _clean(self, value: object) -> object:
        """Return a value as JSON has it, without secrets."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, Mapping):
            some = {_cut(self._redact(str(key))): self._clean(value[key]) for key in itertools.islice(value, _MOST)}
            return some | ({_MORE: len(value) - _MOST} if len(value) > _MOST else {})
        if isinstance(value, list | tuple | set | frozenset):
            found = [self._clean(entry) for entry in itertools.islice(value, _MOST)]
            return [*found, f"{_MORE} {len(value) - _MOST}"] if len(value) > _MOST else found
        return _cut(self._redact(str(value)))


class SourceRows:
    """Makes rows of what is seen of the sources' tables, and remembers which were told.

    Args:
        sid_of: The sid of a source.
        errors: How errors look.
    """

    def __init__(self, sid_of: Callable[[str], str | None], errors: ErrorView) -> None:
        self._sid_of = sid_of
        self._errors = errors
        self._told: dict[tuple[str, str], Row] = {}

    def of(self, snapshot: Snapshot) -> list[Row]:
        """Return the rows that say something new."""
        found = []
        tables_of = snapshot.view.tables_of()
        for source in snapshot.view.sources:
            for table in tables_of[source.name]:
                row = self._row(snapshot, source, table)
                key = (source.name, table.key)
                if is_news(row, self._told.get(key)):
                    self._told[key] = row
                    found.append(row)
        return found

    def _row(self, snapshot: Snapshot, source: SourceView, table: TableState) -> Row:
        position = snapshot.durable_lsn(source, table)
        slot = snapshot.facts[source.name].slot
        error = self._errors.of(table.error)
        verdict = snapshot.view.verdicts.get((table.target, table.source))
        return {
            "seen_at": _instant(snapshot.now),
            "source": source.name,
            "source_sid": self._sid_of(source.name),
            "target": table.target,
            "table_name": table.table,
            "state": table.state.value,
            "lsn": None if position is None else lsn.render(position),
            "valid_through": _instant(snapshot.valid_through(source, position)),
            "rows_applied": table.rows,
            "bytes_applied": table.bytes,
            "rows_copied": table.copied_rows,
            "lag_seconds": snapshot.lag_seconds(source),
            "wal_held_bytes": None if slot is None else slot.retained_bytes,
            "error": self._errors.text(source.error) if error is None else error["message"],
            "verified_at": None if verdict is None else _instant(verdict.at or None),
        }


def is_news(row: Row, told: Row | None) -> bool:
    """Whether a row says something that the last one of its source's table did not."""
    if told is None:
        return True
    changed = {name for name in row.keys() - _MOVING if row[name] != told[name]}
    if changed == {"valid_through"}:
        return (row["seen_at"] - told["seen_at"]).total_seconds() >= _VALID_S  # type: ignore[operator, no-any-return]
    return bool(changed) or abs(_seconds(row) - _seconds(told)) >= _LAG_S


def _seconds(row: Row) -> float:
    """Return the lag that a row says; 0 where nobody knows it."""
    return float(row["lag_seconds"] or 0.0)  # type: ignore[arg-type]


def _instant(unix_s: float | None) -> datetime.datetime | None:
    return None if unix_s is None else datetime.datetime.fromtimestamp(unix_s, datetime.UTC)


@contextlib.asynccontextmanager
async def telling(app: App, observer: Observer, redact: Callable[[str], str]) -> AsyncIterator[None]:
    """Tell the lake while the body runs, if it has tables for that.

    Args:
        app: The application whose lake it is.
        observer: Sees it.
        redact: Takes secrets out.
    """
    about = app.lake.about
    if about.namespace is None:
        yield
        return
    app.receipts.observe(about.committed)
    events = EventRows(about.namespace, redact)
    sources = SourceRows(functools.partial(_sid_of, app), ErrorView(redact=redact))
    with heard_by(lambda event, facts: about.tell("events", events.of(event, facts))):
        task = asyncio.create_task(_tell_sources(app, observer, sources, about), name="about")
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _sid_of(app: App, source: str) -> str | None:
    """Return the sid of a source; None also where it has left the map just now, which is seen later."""
    with contextlib.suppress(KeyError):
        return app.sync(source).source.sid
    return None


async def _tell_sources(app: App, observer: Observer, rows: SourceRows, about: About) -> None:
    """Tell of the sources now and then, and at once when kuvasz begins or ceases to run."""
    phase, due = app.phase, time.monotonic() + _LOOK_S
    while True:
        await asyncio.sleep(_STEP_S)
        begin = time.monotonic()
        if app.phase != phase or begin >= due:
            phase = app.phase
            try:
                about.tell("sources", await observer.show(rows.of))
            except Exception:  # noqa: BLE001 (the owner of the task: it looks again, and who only looks stops nothing)
                _log.tell(Event.BUG_IN_OBSERVER)
            end = time.monotonic()
            due = end + max(_LOOK_S, _PAUSE_TO_LOOK * (end - begin))


__all__ = ["PUBLIC", "EventRows", "SourceRows", "is_news", "telling"]
