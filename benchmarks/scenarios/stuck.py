"""A table whose metadata the store refuses, and the lag of another one of the same worker beside it."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
from typing import TYPE_CHECKING

from typing_extensions import override

from benchmarks import workload
from benchmarks.outcome import Outcome, percentiles
from benchmarks.run import START_S
from benchmarks.scenario import Scenario
from benchmarks.scenarios.steady import lags
from benchmarks.workload import Workload, table_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.run import Run
    from benchmarks.stand import Stand
    from benchmarks.subject import Subject
    from benchmarks.watch import Watch

#: Seconds in which what was changed last must be visible; a table in error is tried again within a minute.
_PATIENCE_S = 300.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stuck(Scenario):
    """Both tables are changed all the time: first nothing is wrong, then the second one is stuck.

    With more than a minute of it, it is in error and parked for the rest.
    """

    rows: int = 200_000  #: of both tables together
    rate: float = 500.0  #: of each table
    seconds: float = 45.0
    per_transaction: int = 10
    seed: int = 1

    @override
    def measure(self, stand: Stand) -> Outcome:
        subject = stand.subject(
            Workload(rows=self.rows, tables=2, seed=self.seed), pipeline={"workers": 1, "commit_interval": "1s"}
        )
        stand.copied(subject)
        outcome = Outcome()
        with subject.watch() as watch, subject.start() as run:
            run.wait_for("streaming", timeout_s=START_S)
            stand.say("both tables are well")
            before = self._paced(subject, watch, run)
            stand.say("one of them is stuck")
            with refused(subject, table_names(2)[1]):
                beside = self._paced(subject, watch, run)
            self._wait(subject, watch, run, subject.tables)
            run.end()
        for name, value in (("before", before), ("beside a stuck table", beside)):
            for percentile in (50, 99):
                outcome.add(f"lag p{percentile} {name}", percentiles(value, percentile)[0], "s")
        outcome.add("lag p99, stuck to before", percentiles(beside, 99)[0] / percentiles(before, 99)[0], "")
        stand.verify(subject, outcome)
        return outcome

    def _paced(self, subject: Subject, watch: Watch, run: Run) -> list[float]:
        """Change both tables and return the lags of the first one's transactions."""
        [url] = subject.urls
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            first, _ = [
                pool.submit(
                    workload.steady,
                    url,
                    changes_per_second=self.rate,
                    seconds=self.seconds,
                    per_transaction=self.per_transaction,
                    keys=self.rows // 2,
                    table=table,
                )
                for table in table_names(2)
            ]
        marks = first.result()
        [place, _] = subject.places({url: marks[-1].lsn})
        watch.wait_for({place: marks[-1].lsn}, timeout_s=_PATIENCE_S, is_alive=run.check)
        return lags(marks, watch.seen[place])

    @staticmethod
    def _wait(subject: Subject, watch: Watch, run: Run, tables: list[str]) -> None:
        [url] = subject.urls
        mark = workload.last_mark(url, dict.fromkeys(tables, "id"), 0)
        watch.wait_for(subject.places({url: mark.lsn}), timeout_s=_PATIENCE_S, is_alive=run.check)


@contextlib.contextmanager
def refused(subject: Subject, table: str) -> Iterator[None]:
    """Have the store take no metadata of a table: a file lies where its folder should be."""
    [folder] = (subject.folder / "lake" / "warehouse").glob(f"**/{table}/metadata")
    away = folder.with_name("away")
    folder.rename(away)
    folder.touch()
    try:
        yield
    finally:
        folder.unlink()
        away.rename(folder)
