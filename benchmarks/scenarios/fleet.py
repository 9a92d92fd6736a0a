"""A fleet: many small sources into the same tables, against one source with the same rate, in the same run."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from pyiceberg.catalog import load_catalog
from typing_extensions import override

from benchmarks import panels, workload
from benchmarks.outcome import Outcome, percentiles
from benchmarks.run import APPLY_S, AS_USERS_LOG, START_S
from benchmarks.sampler import OURS, SOURCE, used
from benchmarks.scenario import Scenario
from benchmarks.scenarios.steady import lags
from benchmarks.subject import NAMESPACE
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.run import Run
    from benchmarks.sampler import Sampler
    from benchmarks.stand import Stand
    from benchmarks.subject import Subject
    from benchmarks.watch import Watch

#: Seconds in which what was changed last must be visible.
_PATIENCE_S = 120.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fleet(Scenario):
    """Rows are those of each table of one source; the rate is that of all sources together.

    Each transaction changes a row of every table of the next source. The sources are databases of one server, each of
    whose walsenders decodes all of its WAL: its CPU is told apart.
    """

    sources: int = 100
    servers: int = 1  #: that have their databases
    tables: int = 3
    rows: int = 200
    rate: float = 300.0
    seconds: float = 60.0
    interval: str = "1s"  #: pipeline.commit_interval
    seed: int = 1

    @override
    def measure(self, stand: Stand) -> Outcome:
        outcome = Outcome()
        one, many = self._measured(stand, "one", 1), self._measured(stand, "many", self.sources)
        outcome.take(many)
        outcome.take(one, "one source: ")
        outcome.add("CPU per row to that of one source", _ratio(many, one, "CPU per row"), "")
        outcome.add("files written to those of one source", _ratio(many, one, "files a commit"), "")
        return outcome

    def _measured(self, stand: Stand, name: str, sources: int) -> Outcome:
        load = Workload(rows=self.rows * self.tables, tables=self.tables, seed=self.seed)
        subject = stand.fleet(
            load, sources, name, servers=min(self.servers, sources), pipeline={"commit_interval": self.interval}
        )
        stand.copied(subject)
        outcome = self._follow(stand, subject)
        stand.verify(subject, outcome)
        return outcome

    def _follow(self, stand: Stand, subject: Subject) -> Outcome:
        quiet = subject.start(*AS_USERS_LOG)
        with subject.watch() as watch, quiet as run, stand.sampler(run) as sampler:
            run.wait_for("streaming", timeout_s=START_S + APPLY_S, count=len(subject.urls))
            with stand.profiled(run, f"{subject.folder.name}-first"):
                first_s = self._first(subject, watch, run)
            with stand.profiled(run, subject.folder.name):
                outcome = self._paced(stand, subject, watch, run, sampler)
            outcome.add("first change of each visible after", first_s, "s")
            run.end()
        outcome.panels += panels.processes(sampler.samples)
        return outcome

    def _first(self, subject: Subject, watch: Watch, run: Run) -> float:
        """Change a row of each table of each source, and return how long it took until all were visible, in seconds.

        Behind a start each source's tables are described once more: what a fleet's restart costs, not what it costs
        from then on.
        """
        marks = workload.in_turn(
            subject.urls, tables=subject.tables, changes_per_second=1e9, seconds=0, keys=self.rows
        )
        places = subject.places({url: mine[-1].lsn for url, mine in marks.items()})
        seen_at = watch.wait_for(places, timeout_s=_PATIENCE_S, is_alive=run.check)
        return seen_at - min(mine[0].at for mine in marks.values())

    def _paced(self, stand: Stand, subject: Subject, watch: Watch, run: Run, sampler: Sampler) -> Outcome:
        stand.say(f"{self.rate:,.0f} changes/s in {len(subject.urls)} sources for {self.seconds:g} s")
        before, first = written_files(subject), sampler.mark()
        marks = workload.in_turn(
            subject.urls, tables=subject.tables, changes_per_second=self.rate, seconds=self.seconds, keys=self.rows
        )
        places = subject.places({url: mine[-1].lsn for url, mine in marks.items()})
        watch.wait_for(places, timeout_s=_PATIENCE_S, is_alive=run.check)
        last, after = sampler.mark(), written_files(subject)
        url_of = {source: url for group in subject.groups for source, _, url in group.sources()}
        late = [lag for place in places for lag in lags(marks[url_of[place[1]]], watch.seen[place])]
        outcome = self._outcome(late, used(first, last), last.at - first.at, before, after)
        made_s = max(mine[-1].at for mine in marks.values()) - first.at
        outcome.add("changes made", len(late) / made_s, "rows/s")
        return outcome

    def _outcome(
        self,
        late: list[float],
        cpu: Mapping[str, float],
        seconds: float,
        before: tuple[int, int],
        after: tuple[int, int],
    ) -> Outcome:
        rows = len(late)  # a row of each table in each transaction
        commits, written = (now - then for now, then in zip(after, before, strict=True))
        outcome = Outcome()
        for name, value in zip(("p50", "p95", "p99", "worst"), percentiles(late, 50, 95, 99, 100), strict=True):
            outcome.add(f"lag {name}", value, "s")
        outcome.add("CPU per row", sum(cpu[kind] for kind in OURS) / rows * 1e6, "µs")
        for kind in (*OURS, SOURCE):
            outcome.add(f"CPU of one core, {kind}", cpu[kind] / seconds * 100, "%")
        outcome.add("commits", commits, "")
        outcome.add("files written", written, "")
        outcome.add("files a commit", written / max(1, commits), "")
        return outcome


def written_files(subject: Subject) -> tuple[int, int]:
    """Return how many commits brought rows to the tables of a lake so far, and in how many data files."""
    catalog = load_catalog("kuvasz", type="sql", uri=f"sqlite:///{subject.folder}/lake/catalog.db")
    added = [
        int(snapshot.summary.additional_properties.get("added-data-files", "0"))
        for table in subject.tables
        for snapshot in catalog.load_table(f"{NAMESPACE}.{table}").metadata.snapshots
        if snapshot.summary is not None and snapshot.summary.operation.value != "replace"
    ]
    return sum(count > 0 for count in added), sum(added)


def _ratio(many: Outcome, one: Outcome, name: str) -> float:
    return many.value(name) / one.value(name)
