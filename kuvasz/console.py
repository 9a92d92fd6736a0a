"""What a person sees on a terminal: a bar per copying table, then a live line per source."""

from __future__ import annotations

import asyncio
import contextlib
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
from kuvasz.view import View

_STYLES = {State.STREAMING: "green", State.COPYING: "cyan", State.ERROR: "bold red", State.PAUSED: "yellow"}


@contextlib.asynccontextmanager
async def show(app: App, *, is_live: bool) -> AsyncIterator[None]:
    """Draw the state of the application while the body runs; does nothing without a terminal."""
    if not is_live:
        yield
        return
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
    """Return what to draw."""
    parts: list[Table | Text] = []
    copying = [table for table in view.tables if table.state is State.COPYING]
    if view.phase == "starting":
        parts.append(Text("starting spark …", style="dim"))
    if copying:
        parts.append(_copies(copying, rates))
    parts.append(_sources(view, rates))
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


def _sources(view: View, rates: Rates) -> Table:
    grid = Table.grid(padding=(0, 2))
    tables_of = view.tables_of()
    for source in view.sources:
        tables = tables_of[source.name]
        newest = max((table.last_commit_us for table in tables), default=0)
        rate = rates.of(source.name, sum(table.rows for table in tables))
        failed = [table for table in tables if table.state is State.ERROR]
        # What a source had of its stream is closed by then, as if it had not begun.
        said = "stopped" if view.phase == "stopping" and source.state == "starting" else source.state
        state = Text(said, style="bold red" if said == "error" else "green")
        age = (
            ""
            if not newest
            else f"newest change {max(0.0, time.time() - (POSTGRES_EPOCH_US + newest) / 1e6):.1f} s old"
        )
        terminal.add_row(
            grid,
            terminal.cell(source.name, style="bold"),
            state,
            " ".join(f"{table.table.removeprefix('public.')}:{table.state.value}" for table in tables)
            if len(tables) <= 4
            else f"{len(tables)} tables, {len(failed)} in error",
            f"{rate:,.0f} rows/s",
            f"confirmed {lsn.render(source.confirmed_lsn or source.confirmable_lsn)}",
            age,
        )
    return grid
