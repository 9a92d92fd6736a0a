"""The position index: its size and look-ups by itself, and what it takes to read a lost one again."""

from __future__ import annotations

import dataclasses
import shutil
import time
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from benchmarks import micro_index
from benchmarks.outcome import Look, Outcome, Panel, percentiles
from benchmarks.run import APPLY_S, START_S
from benchmarks.sampler import resident
from benchmarks.scenario import Scenario
from benchmarks.scenarios.backlog import make_changes, waiting
from kuvasz.index.positions import ABSENT, PositionIndex

if TYPE_CHECKING:
    from benchmarks.stand import Stand

_BATCHES = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Indexing(Scenario):
    """Hashed keys, filled as by a copy, then looked up in batches of known keys; one thread."""

    rows: int = 2_000_000
    batch: int = 50_000
    seed: int = 1

    @override
    def measure(self, stand: Stand) -> Outcome:
        micro_index.compile_all()
        stand.say(f"an index of {self.rows:,} rows")
        index = PositionIndex.open(stand.folder / "index")
        filled = micro_index.fill(index, micro_index.hashed, self.rows)
        index.checkpoint({})
        seconds = [self._look_up(index, number) for number in range(_BATCHES + 1)][1:]
        heap, disk = index.heap_bytes, index.disk_bytes
        index.close()
        outcome = Outcome()
        outcome.add("disk per row", disk / self.rows, "bytes")
        outcome.add("heap per row", heap / self.rows, "bytes")
        outcome.add("filled", self.rows / filled / 1e6, "M rows/s")
        outcome.add("look-ups", self.batch / percentiles(seconds, 50)[0] / 1e6, "M keys/s")
        times = [one / self.batch * 1e9 for one in seconds]
        title = "look-ups, share at or below"
        outcome.panels.append(
            Panel(title=title, look=Look.DISTRIBUTION, x="ns a key", y="", series={"look-up": (times, [])})
        )
        return outcome

    def _look_up(self, index: PositionIndex, number: int) -> float:
        drawn = np.random.default_rng(self.seed * 1000 + number).integers(0, self.rows, self.batch)
        keys = micro_index.hashed(drawn)
        began = time.thread_time()
        file, _ = index.lookup(keys)
        spent = time.thread_time() - began
        if (file == ABSENT).any():
            raise RuntimeError("the index does not know a key that it was given")
        return spent


@dataclasses.dataclass(frozen=True, kw_only=True)
class LostIndex(Scenario):
    """A start for which the index is lost and changes wait: its keys are read from the table."""

    rows: int = 1_000_000
    changes: int = 20_000  #: that wait; half of them are updates
    seed: int = 1

    @override
    def measure(self, stand: Stand) -> Outcome:
        load = waiting(self.rows, self.changes, self.seed)
        subject = stand.subject(load)
        stand.copied(subject)
        marks = make_changes(stand, subject, load)
        goals = subject.places({url: mark.lsn for url, mark in marks.items()})
        shutil.rmtree(subject.folder / ".kuvasz" / "index")
        stand.say("a start without the index")
        outcome = Outcome()
        with subject.watch() as watch, subject.start() as run:
            run.wait_for("lake_open", timeout_s=START_S)
            with stand.sampler(run, interval_s=0.25) as sampler, stand.profiled(run, "lost-index"):
                (begun,) = run.wait_for("index_read", timeout_s=APPLY_S)
                ended = watch.wait_for(goals, timeout_s=APPLY_S, is_alive=run.check)
                cpu = sampler.cpu_between(sampler.samples[0].at, sampler.mark().at)
            run.end()
        memory = resident(sampler.samples)
        outcome.add("index read, changes visible", ended - begun["seen_at"], "s")
        for kind, seconds in cpu.items():
            outcome.add(f"CPU, {kind}", seconds, "s")
        outcome.add("RSS growth", (max(memory) - memory[0]) / 1e6, "MB")
        stand.verify(subject, outcome)
        return outcome
