"""Comparisons on a schedule (`verify.every`): one table after another with its source, whichever waits longest.

In a thread of its own, as `kuvasz verify` would do it, but by one Spark task at a time which leaves others their
cores, and only in a part of the time (`verify.share`). Tables that do not follow, and those of a source that
something else holds, wait for their turn. What was found last of each table is kept over restarts, so that a pass
goes on where it was.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import time
from typing import TYPE_CHECKING, Final

from kuvasz.config import names
from kuvasz.config import sources as config_sources
from kuvasz.errors import KuvaszError, StateError
from kuvasz.events import Event, EventLimit, EventLog
from kuvasz.state.tables import State
from kuvasz.state.verdicts.verdict import Verdict
from kuvasz.sync.rules.targets import target_of
from kuvasz.verify import turns
from kuvasz.verify.mapped_tables import fed_by, members_of, stray_report
from kuvasz.verify.read_only import ReadOnlyLake
from kuvasz.verify.report import Report
from kuvasz.verify.verification import Verification

if TYPE_CHECKING:
    from collections.abc import Callable

    from kuvasz.app import App
    from kuvasz.config.model import Config
    from kuvasz.config.sources import Source, SourceTableSpec
    from kuvasz.state.ports import TableKey

_log = EventLog(__name__)

#: Between looks at whether a table is due.
_LOOK_S = 1.0

#: Between two looks, if one takes its time; times as long as that takes.
_PAUSE_TO_LOOK: Final = 100.0

#: For so long the members of a source's table that were found once will do.
_MEMBERS_S: Final = 600.0

#: In place of a source: the rows of a target that are of no source.
NOBODY: Final = ""

_UNDECIDED: Final = "{keys:,} keys change all the time and could not be decided"

_KINDS: Final = ("missing", "extra", "changed", "doubled", "faults")


class _Closing(Exception):
    """Kuvasz is about to end, and the comparison with it."""


class VerificationSchedule:
    """The schedule of one application. On the loop, but for the comparisons.

    Args:
        app: The application whose tables are compared.
        wall: Unix seconds.
    """

    def __init__(self, app: App, wall: Callable[[], float] = time.time) -> None:
        self._app = app
        self._wall = wall
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="verify")
        self._is_over = False
        self._unread = EventLimit()  # it is tried each second
        self._members: dict[tuple[str, str], tuple[float, dict[str, SourceTableSpec]]] = {}
        self._map: Config | None = None  #: of which is known by whom its targets are fed
        self._fed_by: dict[str, dict[str, str | None]] = {}

    async def run(self) -> None:
        """Compare until cancelled."""
        # Before that what is known to differ would be told no more.
        while not await asyncio.to_thread(self._has_read):  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(_LOOK_S)
        while True:
            pause_s = await self.look()
            await asyncio.sleep(pause_s)

    def close(self) -> None:
        """Let go of the thread; what is under way there ends by itself."""
        self._is_over = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def look(self) -> float:
        """Compare a table if one is due; return the seconds after which to look again."""
        app, verify, now = self._app, self._app.config.verify, self._wall()
        if verify.every is None or app.phase != "running" or not turns.is_between(verify.between, now):
            return _LOOK_S
        if app.lake.session is None:
            return _LOOK_S
        begin = time.monotonic()
        loop = asyncio.get_running_loop()
        is_compared = await loop.run_in_executor(self._thread, self._compare_next, verify.every, now)
        took = time.monotonic() - begin
        return max(_LOOK_S, turns.pause_s(took, verify.share) if is_compared else _PAUSE_TO_LOOK * took)

    def _has_read(self) -> bool:
        try:
            self._app.verdicts.read()
        except StateError as error:
            if self._unread.is_news():
                _log.tell(Event.VERIFY_FAILED, error=str(error))
            return False
        return True

    # In the thread

    def _compare_next(self, every_s: float, now: float) -> bool:
        """Compare the table that is due longest; whether there was one."""
        try:
            key = turns.next_due(self._tables(), self._app.verdicts.all(), every_s, now)
            if key is not None:
                self._compare(key)
        except Exception as error:  # noqa: BLE001 (the owner of the thread: it looks again)
            _log.tell(Event.VERIFY_FAILED, error=repr(error))
            return True
        return key is not None

    def _tables(self) -> set[TableKey]:
        """Return what can be compared now; what is known of tables that are gone is forgotten."""
        app = self._app
        if self._map is not app.config:
            self._map, self._fed_by = app.config, fed_by(app.config)
        view = app.view()
        ready = {source.name for source in view.sources if source.state == "streaming"}
        follow = {
            (one.target, one.source)
            for one in view.tables
            if one.state is State.STREAMING and one.database in ready and (one.target, one.source) not in view.parked
        }
        held = {name for name in ready if app.progress.held(name)}
        strays = {(target, NOBODY) for target, _ in follow if target in self._fed_by}
        known = {(one.target, one.source) for one in view.tables} | {(target, NOBODY) for target in self._fed_by}
        unready = {source.name for source in view.sources} - ready
        here = {source.name for source in view.sources}
        app.verdicts.keep({
            key for key in app.verdicts.all()
            if key in known or (source := names.source_of(key[1])) in unready
            or (app.groups is not None and source not in here)  # another process compares it
        })  # fmt: skip
        return {key for key in follow if names.source_of(key[1]) not in held} | strays

    def _compare(self, key: TableKey) -> None:
        app, began = self._app, self._wall()
        config = app.config
        try:
            with ReadOnlyLake(config, app.lake.session, spares=config.verify.rows_per_second or 0) as lake:
                report = self._report(lake, config, key)
        except _Closing:
            return
        except KuvaszError as error:
            report = Report(source=key[1], table="", target=key[0], error=error.message, hint=error.hint)
        except Exception as error:  # noqa: BLE001 (the owner of the thread: the next table is compared all the same)
            report = Report(source=key[1], table="", target=key[0], error=repr(error))
        if not self._is_over:
            self._take(key, report, began)

    def _report(self, lake: ReadOnlyLake, config: Config, key: TableKey) -> Report:
        target, name = key
        gone = Report(source=name, table="", target=target, skipped="the map has no such table any more")
        if name == NOBODY:
            spec = next((spec for source in config_sources.resolve(config) for spec in source.tables
                         if spec.identifier == target), None)  # fmt: skip
            if spec is None:
                return gone
            found = stray_report(lake, target_of(spec), self._fed_by.get(target, {}))
            return found or Report(source=NOBODY, table="", target=target, compared="rows of no source")
        mapped = self._mapped(config, key)
        if mapped is None:
            return gone
        source, spec = mapped
        made = Verification(
            source, lake, is_fixing=config.verify.fix, on_progress=self._go_on, index=self._app.log_index
        )
        return made.run(spec)

    def _mapped(self, config: Config, key: TableKey) -> tuple[Source, SourceTableSpec] | None:
        target, name = key
        for source in config_sources.resolve(config):
            if source.name == names.source_of(name):
                for spec in source.tables:
                    if spec.identifier == target and (one := self._member(source, spec, name)) is not None:
                        return source, one
        return None

    def _member(self, source: Source, spec: SourceTableSpec, name: str) -> SourceTableSpec | None:
        """Return the table of an entry of the map that the lake knows by a name; one may have come just now."""
        if not spec.is_collapse:
            return spec if source.name_of(spec) == name else None
        key, now = (source.name, spec.key), time.monotonic()
        at, known = self._members.get(key, (now - _MEMBERS_S, {}))
        if now - at >= _MEMBERS_S or name not in known:
            known = {source.name_of(one): one for one in members_of(source, spec)}
            self._members[key] = now, known
        return known.get(name)

    def _go_on(self, *_: object) -> None:
        if self._is_over or self._app.phase != "running":
            raise _Closing

    def _take(self, key: TableKey, report: Report, began: float) -> None:
        """Note and tell what was found."""
        target, source = key
        last = self._app.verdicts.all().get(key)
        if error := report.error or report.skipped:
            is_left_out = not report.error and not report.error_code
            verdict = dataclasses.replace(
                last or Verdict(), error=error, tried_at=began, is_left_out=is_left_out
            )  # fmt: skip
            self._app.verdicts.put(key, verdict)
            if verdict.is_failing and (last is None or last.error != error):
                _log.tell(Event.VERIFY_FAILED, source=source, table=target, error=error)
            return
        verdict = Verdict(
            at=began, lsn=report.lsn, rows=report.source_rows, differences=report.differences, left=report.left,
            tried_at=began, undecided=report.undecided,
            error=_UNDECIDED.format(keys=report.undecided) if report.undecided else "",
        )  # fmt: skip
        self._app.verdicts.put(key, verdict)
        facts = {"source": source or "nobody", "table": target, "lsn": report.lsn, "rows": report.source_rows,
                 "seconds": report.seconds}  # fmt: skip
        if report.differences:
            kinds = {kind: count for kind in _KINDS if (count := getattr(report, kind))}
            _log.tell(Event.TABLE_DIFFERS, **facts, differences=kinds, mended=report.mended, left=report.left)
        else:
            _log.tell(Event.TABLE_VERIFIED, **facts, undecided=report.undecided, rejected=report.rejected)


__all__ = ["NOBODY", "VerificationSchedule"]
