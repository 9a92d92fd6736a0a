"""What a reader meets at any moment of a stream of small commits: files, and scans against those of a fresh table."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.catalog import load_catalog
from typing_extensions import override

from benchmarks import workload
from benchmarks.outcome import Outcome, percentiles
from benchmarks.run import START_S
from benchmarks.scenario import Scenario
from benchmarks.subject import NAMESPACE
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyiceberg.catalog import Catalog

    from benchmarks.run import Run
    from benchmarks.stand import Stand
    from benchmarks.subject import Subject

#: Between two looks of a reader, at random, in seconds.
_PAUSES_S = (2.0, 10.0)

#: Seconds for the last change to be visible, and for Spark's last scan.
_PATIENCE_S = 120.0

_TABLE, _COPY = "load_0", "load_0_copy"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scanning(Scenario):
    """Two transactions of updates a second, each a commit, while PyIceberg and Spark look at random moments.

    Each scan of the live table stands beside one of its fresh copy, so that a busy machine is busy for both.
    """

    rows: int = 1_000_000
    rate: float = 200.0  #: changes a second
    per_transaction: int = 100
    seconds: float = 600.0
    interval: str = "500ms"  #: pipeline.commit_interval
    seed: int = 1

    @override
    def measure(self, stand: Stand) -> Outcome:
        load = Workload(rows=self.rows, changes=0, seed=self.seed)
        subject = stand.subject(load, pipeline={"commit_interval": self.interval})
        stand.copied(subject)
        catalog = load_catalog("kuvasz", type="sql", uri=f"sqlite:///{subject.folder}/lake/catalog.db")
        _copy(catalog, f"file://{subject.folder.absolute()}/lake/copy")
        outcome = Outcome()
        with subject.watch() as watch, subject.start() as run:
            run.wait_for("streaming", timeout_s=START_S)
            stand.say(f"{self.rate:,.0f} changes/s for {self.seconds:g} s, and readers")
            with _spark(subject, self.seconds) as spark, concurrent.futures.ThreadPoolExecutor(1) as pool:
                [url] = subject.urls
                making = pool.submit(
                    workload.steady, url, changes_per_second=self.rate, seconds=self.seconds,
                    per_transaction=self.per_transaction, keys=self.rows,
                )  # fmt: skip
                looks = list(_looks(catalog, run, making))
                places = subject.places({url: making.result()[-1].lsn})
                watch.wait_for(places, timeout_s=_PATIENCE_S, is_alive=run.check)
                answer, _ = spark.communicate(timeout=_PATIENCE_S)
            run.end()
        stand.verify(subject, outcome)
        outcome.add("commits", len(run.named("committed")), "")
        outcome.add("looks", len(looks), "")
        outcome.add("most files at a look", max(files for files, _ in looks), "")
        _add(outcome, "PyIceberg", [pair for _, pair in looks])
        _add(outcome, "Spark", json.loads(answer.splitlines()[-1]))
        return outcome


def _add(outcome: Outcome, reader: str, pairs: Sequence[Sequence[float]]) -> None:
    ratios = [live / fresh for live, fresh in pairs]
    for name, value in zip(("median", "p90"), percentiles(ratios, 50, 90), strict=True):
        outcome.add(f"{reader}, full scan to fresh, {name}", value, "")


def _copy(catalog: Catalog, location: str) -> None:
    """Write the rows anew into a table of its own, in the order of the key, as a copy would."""
    rows = catalog.load_table(f"{NAMESPACE}.{_TABLE}").scan().to_arrow().sort_by("id")
    catalog.create_table(f"{NAMESPACE}.{_COPY}", schema=rows.schema, location=location).append(rows)


def _looks(
    catalog: Catalog, run: Run, making: concurrent.futures.Future[list[workload.Mark]]
) -> Iterator[tuple[int, tuple[float, float]]]:
    """Yield at random moments how many files there are, and the seconds of a scan of both tables."""
    dice = random.Random(1)
    while not making.done():
        time.sleep(dice.uniform(*_PAUSES_S))
        run.check()
        live, fresh = (catalog.load_table(f"{NAMESPACE}.{name}") for name in (_TABLE, _COPY))
        files = len(list(live.scan().plan_files()))
        spent = []
        for table in (live, fresh):
            began = time.perf_counter()
            table.scan().to_arrow()
            spent.append(time.perf_counter() - began)
        yield files, (spent[0], spent[1])


def _spark(subject: Subject, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.spark_reader", "--config", str(subject.map), "--table", _TABLE,
               "--seconds", str(seconds)]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen(command, cwd=subject.folder, env=environment, stdout=subprocess.PIPE, text=True)
