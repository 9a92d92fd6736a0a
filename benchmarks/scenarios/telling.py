"""What the tables about the lake cost: two kuvaszes follow the same tables at once, one of which has them.

So whatever else the machine does falls on both alike.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING

from typing_extensions import override

from benchmarks import workload
from benchmarks.outcome import Outcome
from benchmarks.run import START_S
from benchmarks.sampler import OURS, Sampler
from benchmarks.scenario import Scenario
from benchmarks.subject import Group, Subject
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from benchmarks.stand import Stand

#: Seconds in which what was changed last must be visible.
_PATIENCE_S = 120.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Telling(Scenario):
    """Each transaction changes a row of every table."""

    tables: int = 5
    rows: int = 20_000  #: of each table
    rate: float = 1000.0
    seconds: float = 120.0
    warm_seconds: float = 30.0  #: of the same load before, that do not count
    interval: str = "1s"  #: pipeline.commit_interval
    seed: int = 1

    @override
    def measure(self, stand: Stand) -> Outcome:
        load = Workload(rows=self.rows * self.tables, tables=self.tables, seed=self.seed)
        url = stand.database("bench")
        stand.say("filling the source")
        load.create(url)
        subjects = {
            name: Subject(
                stand.folder / name, [Group(database=f"bench_{name}", urls=[(None, url)], fields=load.fields)],
                {"commit_interval": self.interval}, lake=lake,
            )
            for name, lake in (("without", {}), ("with", {"about": "_kuvasz"}))
        }  # fmt: skip
        for subject in subjects.values():
            stand.copied(subject)
        outcome = self._follow(stand, subjects, url)
        stand.say("comparing the lakes with the source")
        outcome.add("rows compared", sum(subject.compare() for subject in subjects.values()), "")
        return outcome

    def _follow(self, stand: Stand, subjects: dict[str, Subject], url: str) -> Outcome:
        outcome = Outcome()
        with contextlib.ExitStack() as stack:
            runs = {
                name: stack.enter_context(subject.start("--log-level", "info")) for name, subject in subjects.items()
            }
            samplers = {name: stack.enter_context(Sampler(run.pid)) for name, run in runs.items()}
            for run in runs.values():
                run.wait_for("streaming", timeout_s=START_S)
            self._change(url, self.warm_seconds)
            stand.say(f"{self.rate:,.0f} changes/s for {self.seconds:g} s")
            begin = {name: sampler.mark().at for name, sampler in samplers.items()}
            self._change(url, self.seconds)
            used = {}
            for name, sampler in samplers.items():
                end = sampler.mark().at
                cpu = sampler.cpu_between(begin[name], end)
                used[name] = sum(cpu[kind] for kind in OURS) / (end - begin[name]) * 100
                outcome.add(f"CPU of one core, {name}", used[name], "%")
                for kind in OURS:
                    outcome.add(f"CPU of {kind}, {name}", cpu[kind], "s")
            outcome.add("CPU of the tables about the lake", (used["with"] / used["without"] - 1) * 100, "%")
            for name, run in runs.items():
                mark = workload.last_mark(url, dict.fromkeys(workload.table_names(self.tables), "id"), 0)
                with subjects[name].watch() as watch:
                    watch.wait_for(subjects[name].places({url: mark.lsn}), timeout_s=_PATIENCE_S, is_alive=run.check)
                run.end()
        return outcome

    def _change(self, url: str, seconds: float) -> None:
        workload.in_turn(
            [url], tables=workload.table_names(self.tables), changes_per_second=self.rate, seconds=seconds,
            keys=self.rows,
        )  # fmt: skip


__all__ = ["Telling"]
