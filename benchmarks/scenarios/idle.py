"""Idle cost: many quiet sources, and the CPU that kuvasz takes all the same."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from typing_extensions import override

from benchmarks import panels
from benchmarks.outcome import Outcome
from benchmarks.run import AS_USERS_LOG, START_S
from benchmarks.sampler import OURS, SOURCE, used
from benchmarks.scenario import Scenario
from benchmarks.subject import Group, Subject
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from benchmarks.stand import Stand


@dataclasses.dataclass(frozen=True, kw_only=True)
class Idle(Scenario):
    """Each source has tables of its own."""

    sources: int = 10
    tables: int = 50  #: of all sources together
    rows: int = 1000  #: of each table
    settle: float = 75.0  #: seconds after the start that do not count: until maintenance has had its first look
    seconds: float = 60.0
    seed: int = 1

    @override
    def measure(self, stand: Stand) -> Outcome:
        each = self.tables // self.sources
        load = Workload(rows=self.rows * each, tables=each, seed=self.seed)
        stand.say(f"filling {self.sources} sources")
        groups = []
        for number in range(self.sources):
            url = stand.database(f"bench_{number}")
            load.create(url)
            groups.append(
                Group(database=f"bench_{number}", urls=[(None, url)], fields=load.fields, prefix=f"s{number}_")
            )
        subject = Subject(stand.folder, groups)
        stand.copied(subject)
        outcome = rest(stand, subject, settle=self.settle, seconds=self.seconds)
        stand.verify(subject, outcome)
        return outcome


@dataclasses.dataclass(frozen=True, kw_only=True)
class FleetIdle(Scenario):
    """All sources have the same tables; rows are those of each table of one source."""

    sources: int = 100
    servers: int = 1  #: that have their databases
    tables: int = 5
    rows: int = 20
    settle: float = 75.0  #: as above
    seconds: float = 60.0
    seed: int = 1

    @override
    def measure(self, stand: Stand) -> Outcome:
        load = Workload(rows=self.rows * self.tables, tables=self.tables, seed=self.seed)
        subject = stand.fleet(load, self.sources, "many", servers=self.servers)
        stand.copied(subject)
        outcome = rest(stand, subject, settle=self.settle, seconds=self.seconds)
        outcome.add("CPU of one core for each source", outcome.value("CPU of one core") / self.sources, "%")
        stand.verify(subject, outcome)
        return outcome


def rest(stand: Stand, subject: Subject, *, settle: float, seconds: float) -> Outcome:
    """Let kuvasz stream nothing."""
    with subject.start(*AS_USERS_LOG) as run, stand.sampler(run, interval_s=1.0) as sampler:
        run.wait_for("streaming", timeout_s=START_S, count=len(subject.urls))
        time.sleep(settle)
        stand.say(f"nothing happens for {seconds:g} s")
        with stand.profiled(run, "idle"):
            first = sampler.mark()
            time.sleep(seconds)
            last = sampler.mark()
        run.check()
        run.end()
    cpu = used(first, last)
    share = 100 / (last.at - first.at)
    outcome = Outcome()
    outcome.add("CPU of one core", sum(cpu[kind] for kind in OURS) * share, "%")
    for kind in (*OURS, SOURCE):
        outcome.add(f"CPU of one core, {kind}", cpu[kind] * share, "%")
    outcome.add("memory, driver", last.rss["driver"] / 1e6, "MB")
    outcome.panels += panels.processes(sampler.samples)
    return outcome
