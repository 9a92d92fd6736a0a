"""Fairness: what the flood of one source, or its return after a long absence, does to the lag of quiet ones."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import threading
import time
from typing import TYPE_CHECKING

import psycopg
from typing_extensions import override

from benchmarks import panels, workload
from benchmarks.outcome import Outcome, percentiles
from benchmarks.run import APPLY_S, START_S
from benchmarks.sampler import OURS, used
from benchmarks.scenario import Scenario
from benchmarks.scenarios.steady import lags
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from benchmarks.run import Run
    from benchmarks.sampler import Sampler
    from benchmarks.stand import Stand
    from benchmarks.subject import Subject
    from benchmarks.watch import Watch
    from benchmarks.workload import Mark

#: Rows of one transaction of the flood.
_AT_ONCE = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class FleetFlood(Scenario):
    """Quiet sources of one server, whose rows change in turn, and one of another server, which is flooded.

    Were it of the same server, each walsender there would decode the flood.
    """

    sources: int = 200  #: quiet ones
    rows: int = 200  #: of each source at the beginning
    rate: float = 200.0  #: of changes in all quiet sources together
    flood: float = 100_000.0  #: rows a second, if the server can
    seconds: float = 30.0
    calm: float = 15.0  #: seconds without the flood before it
    absent: bool = False  #: the flood was made while kuvasz was stopped
    interval: str = "1s"  #: pipeline.commit_interval
    seed: int = 1

    @override
    def measure(self, stand: Stand) -> Outcome:
        load = Workload(rows=self.rows, tables=1, seed=self.seed)
        subject = stand.fleet(
            load, self.sources, "quiet", pipeline={"commit_interval": self.interval}, beside="flood"
        )
        stand.copied(subject)
        outcome = Outcome()
        *quiet, flooded = subject.urls
        if self.absent:
            stand.say("making the flood while nobody reads")
            _flood(flooded, self.rows, self.flood * self.seconds, 0.0, threading.Event())
        with subject.watch() as watch, subject.start() as run, stand.sampler(run) as sampler:
            run.wait_for("streaming", timeout_s=START_S + APPLY_S, count=len(subject.urls))
            if not self.absent:
                self._quiet(stand, subject, quiet, self.calm, watch, run, outcome, "before")
            self._flooded(stand, subject, quiet, watch, run, sampler, outcome)
            run.end()
        outcome.panels += panels.processes(sampler.samples)
        stand.verify(subject, outcome)
        return outcome

    def _flooded(
        self,
        stand: Stand,
        subject: Subject,
        quiet: list[str],
        watch: Watch,
        run: Run,
        sampler: Sampler,
        outcome: Outcome,
    ) -> None:
        flooded, over = subject.urls[-1], threading.Event()
        first = sampler.mark()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            rows = 0.0 if self.absent else self.flood * self.seconds * 2
            making = pool.submit(_flood, flooded, self.rows, rows, self.flood, over)
            try:
                self._quiet(stand, subject, quiet, self.seconds, watch, run, outcome, "during the flood")
            finally:
                over.set()
            made, mark = making.result()
        begin = time.monotonic()
        goals = subject.places(dict.fromkeys(subject.urls, mark.lsn))
        source = _source_of(subject, flooded)
        watch.wait_for(
            {place: at for place, at in goals.items() if place[1] == source}, timeout_s=APPLY_S, is_alive=run.check
        )
        last = sampler.mark()
        outcome.add("rows of the flood", made or self.flood * self.seconds, "rows")
        outcome.add("flood visible after the quiet load", time.monotonic() - begin, "s")
        cpu = used(first, last)
        for kind in OURS:
            outcome.add(f"CPU of one core, {kind}", cpu[kind] / (last.at - first.at) * 100, "%")

    def _quiet(
        self,
        stand: Stand,
        subject: Subject,
        quiet: list[str],
        seconds: float,
        watch: Watch,
        run: Run,
        outcome: Outcome,
        name: str,
    ) -> None:
        """Change rows of the quiet sources, and note their lag."""
        stand.say(f"{self.rate:,.0f} changes/s in {len(quiet)} quiet sources for {seconds:g} s, {name}")
        marks = workload.in_turn(
            quiet, tables=subject.tables, changes_per_second=self.rate, seconds=seconds, keys=self.rows
        )
        sources = {_source_of(subject, url): url for url in quiet}
        lsns = {url: mine[-1].lsn for url, mine in marks.items()} | {subject.urls[-1]: 0}
        places = {place: at for place, at in subject.places(lsns).items() if place[1] in sources}
        watch.wait_for(places, timeout_s=APPLY_S, is_alive=run.check)
        late = [lag for place in places for lag in lags(marks[sources[place[1]]], watch.seen[place])]
        for at, value in zip(("p50", "p99", "worst"), percentiles(late, 50, 99, 100), strict=True):
            outcome.add(f"lag {at}, {name}", value, "s")


def _source_of(subject: Subject, url: str) -> str:
    return next(source for group in subject.groups for source, _, at in group.sources() if at == url)


def _flood(url: str, above: int, rows: float, rate: float, over: threading.Event) -> tuple[int, Mark]:
    """Insert rows until there are so many, or it is over; return how many they were, and the last one's place.

    Args:
        url: The database.
        above: The largest key that is there.
        rows: How many at most.
        rate: Rows a second at most; 0: as fast as they go.
        over: Ends it.
    """
    made, began = 0, time.monotonic()
    load = Workload(rows=0, tables=1)
    with psycopg.connect(url, autocommit=True) as connection:
        while made < rows and not over.is_set():
            first = above + made + 1
            connection.execute(load.fill("load_0", first, first + _AT_ONCE - 1))
            made += _AT_ONCE
            ahead = made / rate - (time.monotonic() - began) if rate else 0.0
            if ahead > 0:
                over.wait(ahead)
    return made, workload.last_mark(url, {"load_0": "id"}, made)
