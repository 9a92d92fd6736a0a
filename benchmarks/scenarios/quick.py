"""``make bench-quick``: copy, backlog and lag of one source in one run of under three minutes."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from typing_extensions import override

from benchmarks.scenario import Scenario
from benchmarks.scenarios.backlog import drain
from benchmarks.scenarios.copying import copy
from benchmarks.scenarios.steady import Pace, follow
from benchmarks.workload import Mix, Workload

if TYPE_CHECKING:
    from benchmarks.outcome import Outcome
    from benchmarks.stand import Stand


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quick(Scenario):
    """See the module."""

    rows: int = 2_000_000
    changes: int = 400_000
    per_transaction: int = 100
    rate: float = 1000.0
    seconds: float = 20.0
    seed: int = 1

    @override
    def measure(self, stand: Stand) -> Outcome:
        load = Workload(
            rows=self.rows, changes=self.changes, mix=Mix(per_transaction=self.per_transaction), seed=self.seed
        )
        subject = stand.subject(load)
        outcome = copy(stand, subject, self.rows)
        outcome.take(drain(stand, subject, load), "backlog: ")
        pace = Pace(rate=self.rate, seconds=self.seconds, per_transaction=10, keys=self.rows)
        outcome.take(follow(stand, subject, pace), "steady: ")
        stand.verify(subject, outcome)
        return outcome
