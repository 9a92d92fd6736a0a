"""Steady rate: from the return of COMMIT at the source to the new metadata in the catalog."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from benchmarks import panels, workload
from benchmarks.log_counts import LogCounts
from benchmarks.outcome import Outcome, percentiles
from benchmarks.run import START_S
from benchmarks.sampler import OURS
from benchmarks.scenario import Scenario
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from benchmarks.run import Run
    from benchmarks.sampler import Sampler
    from benchmarks.stand import Stand
    from benchmarks.subject import Subject
    from benchmarks.watch import Watch
    from benchmarks.workload import Mark

#: Seconds in which what was changed last must be visible.
_PATIENCE_S = 120.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """An even load of updates."""

    rate: float  #: rows a second
    seconds: float
    per_transaction: int
    keys: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Steady(Scenario):
    """See the module."""

    rows: int = 1_000_000
    rate: float = 1000.0
    seconds: float = 60.0
    per_transaction: int = 10
    interval: str = "1s"  #: pipeline.commit_interval
    log_interval: str = ""  #: cluster.log_interval; empty: nothing is staged
    seed: int = 1

    @override
    def measure(self, stand: Stand) -> Outcome:
        load, pipeline = Workload(rows=self.rows, seed=self.seed), {"commit_interval": self.interval}
        subject = stand.subject(load, pipeline=pipeline, log_interval=self.log_interval)
        stand.copied(subject)
        pace = Pace(rate=self.rate, seconds=self.seconds, per_transaction=self.per_transaction, keys=self.rows)
        outcome = follow(stand, subject, pace)
        stand.verify(subject, outcome)
        return outcome


def follow(stand: Stand, subject: Subject, pace: Pace) -> Outcome:
    """Measure the lag of a subject's only table under a load."""
    with subject.watch() as watch, subject.start() as run, stand.sampler(run) as sampler:
        run.wait_for("streaming", timeout_s=START_S)
        with stand.profiled(run, "steady"):
            outcome = paced(stand, subject, pace, watch, run, sampler)
        run.end()
    outcome.panels += panels.processes(sampler.samples)
    return outcome


def paced(stand: Stand, subject: Subject, pace: Pace, watch: Watch, run: Run, sampler: Sampler) -> Outcome:
    """Make the load, wait until it is visible and return lag, commit time and CPU; for a kuvasz that streams."""
    stand.say(f"{pace.rate:,.0f} changes/s for {pace.seconds:g} s")
    [url] = subject.urls
    counts = LogCounts(subject.coordinator) if subject.coordinator else None
    first = sampler.mark()
    marks = workload.steady(
        url,
        changes_per_second=pace.rate,
        seconds=pace.seconds,
        per_transaction=pace.per_transaction,
        keys=pace.keys,
    )
    [place] = places = subject.places({url: marks[-1].lsn})
    watch.wait_for(places, timeout_s=_PATIENCE_S, is_alive=run.check)
    last = sampler.mark()
    late = lags(marks, watch.seen[place])
    at = [mark.at for mark in marks]
    seconds, rows = marks[-1].at - first.at, sum(mark.rows for mark in marks)
    cpu = sampler.cpu_between(first.at, last.at)
    commits = [event["seconds"] for event in run.named("committed") if first.at <= event["seen_at"] <= last.at]
    outcome = Outcome()
    outcome.add("changes made", rows / seconds, "rows/s")
    for name, value in zip(("p50", "p95", "p99", "worst"), percentiles(late, 50, 95, 99, 100), strict=True):
        outcome.add(f"lag {name}", value, "s")
    outcome.add("lag drift", _drift(late), "")
    outcome.add("commit time", percentiles(commits, 50)[0], "s")
    outcome.add("CPU per row", sum(cpu[kind] for kind in OURS) / rows * 1e6, "µs")
    outcome.add("CPU of one core", sum(cpu[kind] for kind in OURS) / (last.at - first.at) * 100, "%")
    if counts is not None:
        counts.add(outcome)
    for event in run.named("compacted")[-1:]:
        outcome.add("rewritten to changed bytes", event["rewritten_bytes"] / event["changed_bytes"], "")
    outcome.panels += [*panels.lags(at, late), panels.cpu({"steady": cpu}, rows)]
    return outcome


def lags(marks: list[Mark], seen: list[tuple[float, int]]) -> list[float]:
    """Return how long each transaction took to be seen, in seconds."""
    at = np.array([moment for moment, _ in seen])
    positions = np.maximum.accumulate(np.array([position for _, position in seen]))
    first = np.searchsorted(positions, [mark.lsn for mark in marks], side="right")
    return list(map(float, at[first] - np.array([mark.at for mark in marks])))


def _drift(lags: list[float]) -> float:
    """Return the median lag of the last third against that of the first."""
    third = max(1, len(lags) // 3)
    return percentiles(lags[-third:], 50)[0] / percentiles(lags[:third], 50)[0]
