"""Read cost: what a table that took many changes costs its readers, against the same rows freshly written."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from benchmarks.outcome import Look, Outcome, Panel
from benchmarks.run import APPLY_S
from benchmarks.scenario import Scenario
from benchmarks.scenarios.backlog import make_changes
from benchmarks.workload import Mix, Workload

if TYPE_CHECKING:
    from benchmarks.stand import Stand
    from benchmarks.subject import Subject


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading(Scenario):
    """Mixed changes, then Spark reads the live table and its fresh copy in turn; and again after maintenance."""

    rows: int = 2_000_000
    changes: int = 1_000_000
    hot: float = 0.0
    repeats: int = 10
    seed: int = 1

    @override
    def measure(self, stand: Stand) -> Outcome:
        load = Workload(rows=self.rows, changes=self.changes, mix=Mix(hot=self.hot), seed=self.seed)
        subject = stand.subject(load)
        stand.copied(subject)
        make_changes(stand, subject, load)
        stand.say("applying them")
        with subject.start("--until-caught-up") as run:
            run.wait(APPLY_S)
        outcome = Outcome()
        stand.verify(subject, outcome)
        stand.say("reading with Spark")
        outcome.take(_outcome(_read(subject, subject.tables[0], self.repeats)))
        stand.say("maintenance")
        _maintain(subject)
        stand.say("reading again")
        outcome.take(_outcome(_read(subject, subject.tables[0], self.repeats)), "looked after: ")
        return outcome


def _maintain(subject: Subject) -> None:
    """Have the tables looked after once, as a running kuvasz does every minute."""
    command = [sys.executable, "-m", "kuvasz", "maintain", "--config", str(subject.map)]
    done = subprocess.run(command, cwd=subject.folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"maintenance ended with {done.returncode}: {done.stderr[-3000:]}")


def _read(subject: Subject, table: str, repeats: int) -> dict[str, dict[str, list[float]]]:
    command = [sys.executable, "-m", "benchmarks.spark_reader", "--config", str(subject.map), "--table", table,
               "--repeats", str(repeats)]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, cwd=subject.folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the reader ended with {done.returncode}: {done.stderr[-3000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _outcome(found: dict[str, dict[str, list[float]]]) -> Outcome:
    outcome = Outcome()
    for query, times in found.items():
        for table, seconds in times.items():
            outcome.add(f"{query}, {table}", min(seconds), "s")
        outcome.add(f"{query} to fresh", min(times["live"]) / min(times["fresh"]), "")
    series = {query: (list(times), [min(seconds) for seconds in times.values()]) for query, times in found.items()}
    outcome.panels.append(Panel(title="reading", look=Look.BARS, x="", y="s", series=series))
    return outcome
