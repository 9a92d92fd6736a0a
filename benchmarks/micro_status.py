"""Measures what a look from outside costs: states, status and metrics of many sources, on one thread.

    python -m benchmarks.micro_status [--sources 5000] [--tables 5]

Prints milliseconds of CPU (user and system), the best of some rounds.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable

from kuvasz.admin import views
from kuvasz.admin.metrics import Metrics
from kuvasz.admin.observer import Snapshot
from kuvasz.admin.report.status_text import StatusText
from kuvasz.admin.views import ErrorView
from kuvasz.config.model import MetricsScope
from kuvasz.state.memory import MemoryNotes
from kuvasz.state.tables import State, TableStates
from tests.support import snapshots


def best(work: Callable[[], object], rounds: int = 5) -> float:
    """Seconds of the fastest of some rounds."""
    times = []
    for _ in range(rounds):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return min(times)


def states_of(sources: int, tables: int) -> TableStates:
    """Return so many sources, each with so many tables that stream."""
    states = TableStates(MemoryNotes())
    for source in range(sources):
        for table in range(tables):
            target, name = f"shop.table_{table}", f"shop_{source}"
            states.add(target, name, f"public.table_{table}")
            states.set(target, name, State.STREAMING)
            states.note(target, name, rows=source, last_commit_us=source)
    return states


def snapshot_of(states: TableStates, sources: int) -> Snapshot:
    """Return a moment at which all of them stream."""
    good = snapshots.snapshot()
    names = [f"shop_{number}" for number in range(sources)]
    seen = tuple(dataclasses.replace(snapshots.SOURCE, name=name) for name in names)
    view = dataclasses.replace(good.view, sources=seen, tables=tuple(states.snapshot()))
    return dataclasses.replace(good, view=view, facts=dict.fromkeys(names, snapshots.FACTS))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=int, default=5000)
    parser.add_argument("--tables", type=int, default=5)
    chosen = parser.parse_args()
    states = states_of(chosen.sources, chosen.tables)
    moment = snapshot_of(states, chosen.sources)
    text = StatusText(ErrorView())
    works: dict[str, Callable[[], object]] = {
        "states of all tables": states.snapshot,
        "status": lambda: views.status(moment),
        "status as text": lambda: StatusText(ErrorView()).of(moment),
        "status, looked at again": lambda: text.of(moment),
        "readyz": lambda: views.readyz(moment),
        "metrics": lambda: Metrics().render(moment),
        "metrics per source": lambda: Metrics(MetricsScope.PER_SOURCE).render(moment),
    }
    print(f"{chosen.sources:,} sources of {chosen.tables} tables each")
    for name, work in works.items():
        print(f"  {name:<24}{best(work) * 1e3:9.1f} ms", flush=True)


if __name__ == "__main__":
    main()
