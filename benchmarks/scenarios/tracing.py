"""How long `kuvasz trace` takes: single rows of a large table, behind many snapshots that changed others."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from typing_extensions import override

from benchmarks.outcome import Outcome, WrongResultError, percentiles
from benchmarks.run import APPLY_S, START_S
from benchmarks.scenario import Scenario
from benchmarks.subject import Group, Subject
from benchmarks.workload import Workload
from kuvasz import lsn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.stand import Stand

_TABLE = "load_0"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tracing(Scenario):
    """Every snapshot changes rows all over the table; traced are rows that many of them changed, and others."""

    rows: int = 10_000_000
    snapshots: int = 500
    updates: int = 40  #: in each
    keys: int = 4  #: that are traced: half of them are changed by every tenth snapshot
    seed: int = 1

    @override
    def measure(self, stand: Stand) -> Outcome:
        load = Workload(rows=self.rows, seed=self.seed)
        url = stand.database("bench")
        stand.say("filling the source")
        load.create(url)
        subject = Subject(
            stand.folder, [Group(database="bench", urls=[(None, url)], fields=load.fields)],
            {"commit_interval": "50ms"}, maintenance={"enabled": False},
        )  # fmt: skip
        stand.copied(subject)
        draw = random.Random(self.seed)
        traced = draw.sample(range(1, self.rows + 1), self.keys)
        stand.say(f"{self.snapshots} commits")
        counts = self._change(subject, url, draw, traced)
        outcome = Outcome()
        stand.verify(subject, outcome)
        stand.say("tracing")
        self._trace(subject, traced, counts, outcome)
        return outcome

    def _change(self, subject: Subject, url: str, draw: random.Random, traced: Sequence[int]) -> dict[int, int]:
        """Have every transaction be a commit; return how many of them changed each row that is traced."""
        counts = dict.fromkeys(traced, 0)
        often = traced[: len(traced) // 2]
        with subject.start() as run:
            run.wait_for("streaming", timeout_s=START_S)
            with subject.watch() as watch, psycopg.connect(url) as connection:
                for number in range(self.snapshots):
                    keys = {key for key in draw.sample(range(1, self.rows + 1), self.updates) if key not in counts}
                    keys |= set(often) if number % 10 == 0 else set()
                    connection.execute(f"UPDATE {_TABLE} SET amount = amount + 0.01 WHERE id = ANY (%s)", [[*keys]])
                    [(place,)] = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()
                    connection.commit()
                    for key in keys & counts.keys():
                        counts[key] += 1
                    goals = subject.places({url: lsn.parse(place)})
                    watch.wait_for(goals, timeout_s=APPLY_S, is_alive=run.check)
            run.end()
        return counts

    def _trace(self, subject: Subject, traced: Sequence[int], counts: dict[int, int], outcome: Outcome) -> None:
        seconds, files = [], []
        for key in traced:
            began = time.monotonic()
            found = _traced(subject, key)
            seconds.append(time.monotonic() - began)
            files.append(found["files_read"])
            (row,) = found["rows"]
            changed = sum(event["what"] == "changed" for event in row["events"])
            if changed != counts[key]:
                raise WrongResultError(f"key {key}: {counts[key]} snapshots changed it, and {changed} are told")
        (median,) = percentiles(seconds, 50)
        outcome.add("snapshots", found["snapshots"], "")
        outcome.add("trace, median", median, "s")
        outcome.add("trace, slowest", max(seconds), "s")
        outcome.add("files read", max(files), "")


def _traced(subject: Subject, key: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "kuvasz", "trace", "--table", _TABLE, "--key", str(key), "--json",
               "--config", str(subject.map)]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, cwd=subject.folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"trace ended with {done.returncode}: {done.stderr[-3000:]}")
    (table,) = json.loads(done.stdout)["tables"]
    return dict(table)


__all__ = ["Tracing"]
