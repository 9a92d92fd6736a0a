"""Growth: the same rate of updates while the table grows. A commit and a change must not come to cost more."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import psycopg
from typing_extensions import override

from benchmarks import panels, workload
from benchmarks.outcome import Look, Outcome, Panel
from benchmarks.run import APPLY_S, START_S
from benchmarks.scenario import Scenario
from benchmarks.scenarios.steady import Pace, paced
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.stand import Stand

#: Rows of one transaction while the table is made larger.
_AT_ONCE = 500_000

_TABLE = "load_0"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Growth(Scenario):
    """The table grows tenfold from step to step, while one kuvasz runs."""

    smallest: int = 1_000_000
    largest: int = 50_000_000
    rate: float = 2000.0
    seconds: float = 60.0  #: of the updates at each size
    per_transaction: int = 20
    seed: int = 1

    @override
    def measure(self, stand: Stand) -> Outcome:
        load = Workload(rows=self.smallest, seed=self.seed)
        subject = stand.subject(load)
        stand.copied(subject)
        _spare_disk(subject.urls[0])
        outcome = Outcome()
        found: list[tuple[int, Outcome]] = []
        with subject.watch() as watch, subject.start() as run, stand.sampler(run) as sampler:
            run.wait_for("streaming", timeout_s=START_S)
            rows = self.smallest
            for size in self.sizes():
                stand.say(f"the table gets {size:,} rows")
                mark = _grow(subject.urls[0], load, rows, size)
                watch.wait_for(subject.places({subject.urls[0]: mark.lsn}), timeout_s=APPLY_S, is_alive=run.check)
                rows = size
                pace = Pace(rate=self.rate, seconds=self.seconds, per_transaction=self.per_transaction, keys=rows)
                with stand.profiled(run, f"growth-{rows}"):
                    found.append((rows, paced(stand, subject, pace, watch, run, sampler)))
            run.end()
        for size, part in found:
            outcome.take(dataclasses.replace(part, panels=[]), f"{size:,} rows: ")
        for name in ("commit time", "CPU per row"):
            outcome.add(f"{name}, last to first", found[-1][1].value(name) / found[0][1].value(name), "")
            outcome.panels.append(_panel(name, found))
        outcome.panels += panels.processes(sampler.samples)
        stand.verify(subject, outcome)
        return outcome

    def sizes(self) -> Iterator[int]:
        """Yield the sizes, the largest last."""
        size = self.smallest
        while size < self.largest:
            yield size
            size *= 10
        yield self.largest


def _spare_disk(url: str) -> None:
    """Have the source write no whole pages: with a large table each update would, and no disk keeps up with that."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET full_page_writes = off")
        connection.execute("SELECT pg_reload_conf()")


def _grow(url: str, load: Workload, before: int, after: int) -> workload.Mark:
    with psycopg.connect(url, autocommit=True) as connection:
        for first in range(before + 1, after + 1, _AT_ONCE):
            connection.execute(load.fill(_TABLE, first, min(after, first + _AT_ONCE - 1)))
        connection.execute(f"VACUUM ANALYZE {_TABLE}")
        connection.execute("CHECKPOINT")
    os.sync()  # what is on its way to the disk would be paid for by the updates that are measured next
    return workload.last_mark(url, {_TABLE: "id"}, after - before)


def _panel(name: str, found: list[tuple[int, Outcome]]) -> Panel:
    values = [part.value(name) for _, part in found]
    series = {name: ([size / 1e6 for size, _ in found], values)}
    return Panel(title=name, look=Look.LINES, x="million rows", y=found[0][1].unit(name), series=series)
