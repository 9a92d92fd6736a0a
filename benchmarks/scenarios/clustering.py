"""In a cluster: what a staged log costs a backlog, and what it takes to have another machine's tables."""

from __future__ import annotations

import dataclasses
import json
import shutil
from typing import TYPE_CHECKING

from typing_extensions import override

from benchmarks.outcome import Outcome
from benchmarks.run import APPLY_S, START_S
from benchmarks.scenario import Scenario
from benchmarks.scenarios.backlog import Backlog, drained, make_changes, waiting

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.stand import Load, Stand
    from benchmarks.subject import Subject

#: Figures that are compared.
_COMPARED = ("rows drained", "CPU per row")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusteredBacklog(Backlog):
    """The same backlog of the same rows without a log, and read by one with `role: all` that stages it."""

    log_interval: str = "200ms"  #: cluster.log_interval

    @override
    def measure(self, stand: Stand) -> Outcome:
        load = self.load(stand)
        outcome = Outcome()
        for name, interval in (("alone: ", ""), ("", self.log_interval)):
            subject = stand.subject(load, log_interval=interval, name="bench_alone" if name else "bench")
            stand.copied(subject)
            outcome.take(drained(stand, subject, make_changes(stand, subject, load))[0], name)
            stand.verify(subject, outcome if not name else Outcome())
        for figure in _COMPARED:
            outcome.add(f"{figure}, to alone", outcome.value(figure) / outcome.value(f"alone: {figure}"), "")
        return outcome


@dataclasses.dataclass(frozen=True, kw_only=True)
class Takeover(Scenario):
    """A table that goes to a machine which never had it: from the lake's opening until what waited there is visible.

    Once its index is in the store (`cluster.indexes`, a local folder), and once its keys are read from the table.
    """

    rows: int = 1_000_000
    changes: int = 20_000  #: that wait; half of them are updates
    seed: int = 1

    @override
    def measure(self, stand: Stand) -> Outcome:
        load = waiting(self.rows, self.changes, self.seed)
        subject = stand.subject(load, keeps_indexes=True)
        store = subject.folder / "indexes"
        stand.copied(subject)
        if not any(path.is_file() for path in store.rglob("*")):  # an orderly end keeps it
            raise RuntimeError(f"there is no index in {store}")
        outcome = Outcome()
        kept = self._taken(stand, subject, load, "kept", outcome)
        shutil.rmtree(store)
        read = self._taken(stand, subject, load, "read", outcome)
        outcome.add("index kept, to read", kept / read, "")
        stand.verify(subject, outcome)
        return outcome

    def _taken(self, stand: Stand, subject: Subject, load: Load, name: str, outcome: Outcome) -> float:
        """Have another machine take the table over, and return the seconds it took."""
        marks = make_changes(stand, subject, load)
        goals = subject.places({url: mark.lsn for url, mark in marks.items()})
        _move(subject.map, subject.folder / f"state_{name}")
        stand.say(f"taken over, index {name}")
        with subject.watch() as watch, subject.start() as run:
            opened = run.wait_for("lake_open", timeout_s=START_S)
            with stand.sampler(run, interval_s=0.25) as sampler:
                ended = watch.wait_for(goals, timeout_s=APPLY_S, is_alive=run.check)
                cpu = sampler.cpu_between(sampler.samples[0].at, sampler.mark().at)
            if bool(run.named("index_brought")) != (name == "kept"):
                raise RuntimeError(f"the index was not {name}\n{run.tail()}")
            run.end()
        seconds = float(ended - opened[0]["seen_at"])
        outcome.add(f"visible, index {name}", seconds, "s")
        outcome.add(f"CPU, index {name}", sum(cpu.values()), "s")
        for event in run.named("index_brought"):
            outcome.add("index brought", event["seconds"], "s")
        return seconds


def _move(map_file: Path, state: Path) -> None:
    """Have kuvasz run on a machine that remembers nothing."""
    document = json.loads(map_file.read_text())
    document["pipeline"]["state"] = str(state)
    map_file.write_text(json.dumps(document, indent=2))


__all__ = ["ClusteredBacklog", "Takeover"]
