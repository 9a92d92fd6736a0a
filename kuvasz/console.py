"""What a person sees on a terminal: a bar per copying table, then a live line per source; of many, the worst."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kuvasz import lsn
from kuvasz.app import App
from kuvasz.model import POSTGRES_EPOCH_US
from kuvasz.shown import terminal
from kuvasz.state.tables import State, TableState
from kuvasz.view import SourceView, View

#: Of sources, and of copies: more of them are no view any more.
MOST_LINES = 10


@contextlib.asynccontextmanager
async def show(app: App) -> AsyncIterator[None]:
    """Draw the state of the application while the body runs; there is a terminal."""
    console = Console(stderr=True)
    rates = Rates()
    with Live(console=console, refresh_per_second=4, transient=False, redirect_stderr=True) as live:
        stop = asyncio.Event()

        async def draw() -> None:
            while not stop.is_set():
                live.update(render(app.view(), rates))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await stop.wait()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(draw(), name="console")
            try:
                yield
            finally:
                stop.set()
        live.update(render(app.view(), rates))


class Rates:
    """Rows per second of each source and copied table, smoothed."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, int]] = {}
        self._rates: dict[str, float] = {}

    def of(self, name: str, count: int) -> float:
        """Note a count and return the rate."""
        now = time.monotonic()
        before, was = self._last.get(name, (now, count))
        if now - before >= 0.4:
            fresh = (count - was) / (now - before)
            self._rates[name] = 0.5 * self._rates.get(name, fresh) + 0.5 * fresh
            self._last[name] = (now, count)
        elif name not in self._last:
            self._last[name] = (now, count)
        return self._rates.get(name, 0.0)


def render(view: View, rates: Rates) -> Group:
    """Return what to draw: of many sources, and of many copies, those that need a look, and how all others are."""
    parts: list[Table | Text] = []
    copying = [table for table in view.tables if table.state is State.COPYING]
    if view.phase == "starting":
        parts.append(Text("starting spark …", style="dim"))
    if copying:
        parts.append(_copies(copying[:MOST_LINES], rates))
    if len(copying) > MOST_LINES:
        parts.append(_all_copies(copying))
    lines = _lines(view, rates)
    parts.append(_sources(sorted(lines, key=SourceLine.rank)[:MOST_LINES] if len(lines) > MOST_LINES else lines))
    if len(lines) > MOST_LINES:
        parts.append(_all_sources(lines))
    return Group(*parts)


def _copies(tables: list[TableState], rates: Rates) -> Table:
    grid = Table.grid(padding=(0, 1))
    for table in tables:
        rate = rates.of(f"{table.source}/{table.target}", table.copied_rows)
        total = max(table.copy_total, 1)
        terminal.add_row(
            grid,
            terminal.cell(f"copy {table.database} {table.table}", style="cyan"),
            ProgressBar(total=total, completed=table.copy_done, width=24),
            f"{100 * table.copy_done // total:3d} %",
            f"{table.copied_rows:,} rows",
            f"{rate:,.0f}/s",
        )
    return grid


def _all_copies(tables: list[TableState]) -> Text:
    rows = sum(table.copied_rows for table in tables)
    return Text(f"copy {len(tables):,} tables, {len(tables) - MOST_LINES:,} of them not shown: {rows:,} rows", "cyan")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """What a person is told of one source."""

    source: SourceView
    state: str
    tables: list[TableState]
    rate: float
    age_s: float | None  #: of the newest change in the lake

    @property
    def failed(self) -> int:
        """Tables that wait for a person."""
        return sum(table.state is State.ERROR for table in self.tables)

    def rank(self) -> tuple[int, float, str]:
        """Say who comes first: what failed, then what does not stream, then what waits the longest."""
        is_well = self.state in {"streaming", "stopped"}
        kind = 0 if self.state == "error" else 1 if self.failed else 2 if not is_well else 3
        waits_s = self.age_s or 0.0 if self.source.is_pending else 0.0
        return kind, -waits_s, self.source.name


def _lines(view: View, rates: Rates) -> list[SourceLine]:
    now, found, tables_of = time.time(), [], view.tables_of()
    for source in view.sources:
        tables = tables_of[source.name]
        newest = max((table.last_commit_us for table in tables), default=0)
        found.append(
            SourceLine(
                source=source,
                # What a source had of its stream is closed by then, as if it had not begun.
                state="stopped" if view.phase == "stopping" and source.state == "starting" else source.state,
                tables=tables,
                rate=rates.of(source.name, sum(table.rows for table in tables)),
                age_s=max(0.0, now - (POSTGRES_EPOCH_US + newest) / 1e6) if newest else None,
            )
        )
    return found


def _sources(lines: list[SourceLine]) -> Table:
    grid = Table.grid(padding=(0, 2))
    for line in lines:
        source, tables = line.source, line.tables
        terminal.add_row(
            grid,
            terminal.cell(source.name, style="bold"),
            Text(line.state, style="bold red" if line.state == "error" else "green"),
            " ".join(f"{table.table.removeprefix('public.')}:{table.state.value}" for table in tables)
            if len(tables) <= 4
            else f"{len(tables)} tables, {line.failed} in error",
            f"{line.rate:,.0f} rows/s",
            f"confirmed {lsn.render(source.confirmed_lsn or source.confirmable_lsn)}",
            "" if line.age_s is None else f"newest change {line.age_s:.1f} s old",
        )
    return grid


def _all_sources(lines: list[SourceLine]) -> Text:
    states = collections.Counter(line.state for line in lines)
    told = ", ".join(f"{count:,} {state}" for state, count in states.most_common())
    tables, failed = (
        sum(counts) for counts in zip(*((len(line.tables), line.failed) for line in lines), strict=True)
    )
    return Text(
        f"all {len(lines):,} sources: {told}; {tables:,} tables, {failed:,} in error;"
        f" {sum(line.rate for line in lines):,.0f} rows/s; the {MOST_LINES} above are the worst"
    )
