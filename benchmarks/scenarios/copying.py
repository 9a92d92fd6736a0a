"""Initial copy: a table of one source, against one bare COPY into nothing and one COPY into a Parquet file."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from typing_extensions import override

from benchmarks import panels, reference
from benchmarks.outcome import Outcome
from benchmarks.run import APPLY_S, START_S
from benchmarks.sampler import OURS
from benchmarks.scenario import Scenario
from benchmarks.shapes import SHAPES
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from benchmarks.stand import Stand
    from benchmarks.subject import Subject


@dataclasses.dataclass(frozen=True, kw_only=True)
class Copying(Scenario):
    """See the module."""

    rows: int = 2_000_000
    shape: str = "narrow"
    seed: int = 1

    @override
    def measure(self, stand: Stand) -> Outcome:
        subject = stand.subject(Workload(rows=self.rows, shape=SHAPES[self.shape], seed=self.seed))
        outcome = copy(stand, subject, self.rows)
        stand.verify(subject, outcome)
        return outcome


def copy(stand: Stand, subject: Subject, rows: int) -> Outcome:
    """Measure the copy of a subject's only table."""
    [url], [table] = subject.urls, subject.tables
    stand.say("bare COPY")
    bare = min((reference.bare_copy(url, table) for _ in range(2)), key=lambda run: run.seconds)
    stand.say("COPY to Parquet")
    parquet = reference.copy_to_parquet(url, table, stand.folder / "reference.parquet")
    stand.say("initial copy by kuvasz")
    with subject.start("--until-caught-up") as run, stand.sampler(run) as sampler, stand.profiled(run, "copy"):
        [copied] = run.wait_for("copied", timeout_s=START_S + APPLY_S)
        run.wait(APPLY_S)
        total = time.time() - run.started_at
    if not copied["rows"] == bare.rows == rows:
        raise RuntimeError(f"kuvasz copied {copied['rows']} rows, COPY {bare.rows}, of {rows}")
    end = copied["seen_at"]
    begin = end - copied["seconds"]
    cpu = sampler.cpu_between(begin, end)
    outcome = Outcome()
    outcome.add("rows copied", rows / copied["seconds"], "rows/s")
    outcome.add("bare COPY", bare.rows_per_second, "rows/s")
    outcome.add("COPY to Parquet", parquet.rows_per_second, "rows/s")
    outcome.add("ratio to bare COPY", bare.seconds / copied["seconds"], "")
    outcome.add("ratio to COPY to Parquet", parquet.seconds / copied["seconds"], "")
    outcome.add("CPU per row", sum(cpu[kind] for kind in OURS) / rows * 1e6, "µs")
    outcome.add("whole process", total, "s")
    outcome.panels += [panels.cpu({"copy": cpu}, rows), *panels.processes(sampler.samples)]
    return outcome
