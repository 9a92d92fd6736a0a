"""Starts of a fleet: the first, with all copies, and the one after a SIGKILL, until every source streams."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from typing import TYPE_CHECKING

from typing_extensions import override

from benchmarks import panels
from benchmarks.outcome import Outcome
from benchmarks.run import APPLY_S, AS_USERS_LOG
from benchmarks.sampler import KINDS, Sample, used
from benchmarks.scenario import Scenario
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from benchmarks.run import Run
    from benchmarks.stand import Stand
    from benchmarks.subject import Subject


@dataclasses.dataclass(frozen=True, kw_only=True)
class FleetStart(Scenario):
    """Many small sources with the same tables, and one of them alone, whose start is what Spark's costs."""

    sources: int = 150
    servers: int = 1  #: that have their databases
    tables: int = 5
    rows: int = 20  #: of each table
    seed: int = 1

    @override
    def measure(self, stand: Stand) -> Outcome:
        outcome = Outcome()
        outcome.take(self._measured(stand, "many", self.sources))
        outcome.take(self._measured(stand, "one", 1), "one source: ")
        return outcome

    def _measured(self, stand: Stand, name: str, sources: int) -> Outcome:
        load = Workload(rows=self.rows * self.tables, tables=self.tables, seed=self.seed)
        return self.started(stand, stand.fleet(load, sources, name, servers=min(self.servers, sources)))

    def started(self, stand: Stand, subject: Subject) -> Outcome:
        """Start twice, and compare."""
        outcome = Outcome()
        stand.say("first start")
        with subject.start(*AS_USERS_LOG) as run:
            self._started(stand, subject, run, outcome, "first start")
            _kill(run)
        stand.say("start after SIGKILL")
        with subject.start(*AS_USERS_LOG) as run:
            self._started(stand, subject, run, outcome, "start after SIGKILL")
            run.end()
        stand.verify(subject, outcome)
        return outcome

    def _started(self, stand: Stand, subject: Subject, run: Run, outcome: Outcome, name: str) -> None:
        with stand.sampler(run) as sampler, stand.profiled(run, f"{subject.folder.name}-{name.replace(' ', '-')}"):
            streaming = run.wait_for("streaming", timeout_s=APPLY_S, count=len(subject.urls))
            last = sampler.mark()
        outcome.add(name, streaming[-1]["seen_at"] - run.started_at, "s")
        cpu = used(_nothing(sampler.samples[0]), last)
        for kind in KINDS:
            outcome.add(f"{name}: CPU, {kind}", cpu[kind], "s")
        outcome.add(f"{name}: driver and workers", sum(last.rss[kind] for kind in ("driver", "workers")) / 1e6, "MB")
        outcome.panels += panels.processes(sampler.samples)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreStart(FleetStart):
    """One source with many tables, whose lake is on an object store: what a start reads of each, it waits for."""

    sources: int = 1
    tables: int = 100
    delay: float = 40.0  #: milliseconds of each request

    @override
    def measure(self, stand: Stand) -> Outcome:
        with stand.object_store(self.delay) as store:
            load = Workload(rows=self.rows * self.tables, tables=self.tables, seed=self.seed)
            return self.started(stand, stand.subject(load, store=store))


def _nothing(first: Sample) -> Sample:
    """Return the first sample as if kuvasz had not used anything before: it has been started a moment ago."""
    return dataclasses.replace(first, cpu_s={kind: first.cpu_s[kind] * (kind == "source") for kind in KINDS})


def _kill(run: Run) -> None:
    os.killpg(run.pid, signal.SIGKILL)
    time.sleep(1.0)  # the servers see that the sessions are gone
