"""On an object store: what a commit asks of it, how long that takes, and what it costs.

The store is an emulator behind a proxy in which each request takes `delay` milliseconds (`benchmarks.store`). Both
run on the same cores as all else; what they use is told apart.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import time
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from benchmarks.outcome import Outcome
from benchmarks.scenarios.backlog import Backlog, drain, drained, make_changes
from benchmarks.scenarios.steady import Pace, Steady, follow
from benchmarks.store.requests import MONTH_S, Kind, commits, counts, price
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.stand import Stand
    from benchmarks.store.emulator import ObjectStore
    from benchmarks.store.requests import Request, StoreCommit

#: Shapes of commits that are shown.
_SHOWN = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreSteady(Steady):
    """An even rate into one table."""

    delay: float = 40.0

    @override
    def measure(self, stand: Stand) -> Outcome:
        with stand.object_store(self.delay) as store:
            load = Workload(rows=self.rows, seed=self.seed)
            subject = stand.subject(load, pipeline={"commit_interval": self.interval}, store=store)
            stand.copied(subject)
            pace = Pace(rate=self.rate, seconds=self.seconds, per_transaction=self.per_transaction, keys=self.rows)
            asked = Outcome()
            with asking(stand, store, asked):
                outcome = follow(stand, subject, pace)
            outcome.take(asked)
            stand.verify(subject, outcome)
            return outcome


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreBacklog(Backlog):
    """The same backlog into a local folder, and into the store."""

    delay: float = 40.0

    @override
    def measure(self, stand: Stand) -> Outcome:
        load = self.load(stand)
        outcome = Outcome()
        local = stand.subject(load)
        stand.copied(local)
        outcome.take(drain(stand, local, load), "local: ")
        with stand.object_store(self.delay) as store:
            subject = stand.subject(load, store=store)
            stand.copied(subject)
            marks = make_changes(stand, subject, load)
            asked = Outcome()
            with asking(stand, store, asked):
                outcome.take(drained(stand, subject, marks)[0])
            outcome.take(asked)
            outcome.add("ratio to local", outcome.value("rows drained") / outcome.value("local: rows drained"), "")
            stand.verify(subject, outcome)
        return outcome


@contextlib.contextmanager
def asking(stand: Stand, store: ObjectStore, outcome: Outcome) -> Iterator[None]:
    """Add to an outcome what the body asks of the store."""
    begin, cpu = time.time(), store.cpu_s()
    yield
    outcome.add("CPU of the store", store.cpu_s() - cpu, "s")
    requests = store.requests(begin, time.time())
    outcome.add("connections to the store", len({request.connection for request in requests}), "")
    found = [commit for commit in commits(requests) if _has_rows(commit)]
    if not found:
        return
    _add_commits(outcome, found)
    _add_costs(outcome, requests, len(found))
    shapes = collections.Counter(commit.shape for commit in found)
    for shape, count in shapes.most_common(_SHOWN):
        stand.say(f"{count} of {len(found)} commits: {shape} > catalog")


def _has_rows(commit: StoreCommit) -> bool:
    return any(request.part in {"data", "deletes"} and request.kind is Kind.PUT for request in commit.requests)


def _add_commits(outcome: Outcome, found: Sequence[StoreCommit]) -> None:
    """Add what the usual commit asks for on its way, with the catalog as one more in the chain."""
    outcome.add("commits that were noted", len(found), "")
    outcome.add("chain, requests", float(np.median([commit.chain + 1 for commit in found])), "")
    outcome.add("chain, p95", float(np.percentile([commit.chain + 1 for commit in found], 95)), "")
    outcome.add("chain, time without the catalog", float(np.median([commit.seconds for commit in found])), "s")
    for kind in Kind:
        counted = [counts(commit.way)[kind] for commit in found]
        outcome.add(f"{kind} on the way", float(np.median(counted)), "")
    for part in ("metadata", "list", "manifest", "deletes", "data"):
        sizes = [sum(one.sent for one in commit.way if one.part == part) for commit in found]
        outcome.add(f"bytes of {part}", float(np.median(sizes)) / 1000, "kB")


def _add_costs(outcome: Outcome, requests: Sequence[Request], count: int) -> None:
    """Add what all requests come to for each commit, those of maintenance and of looks included."""
    for kind, asked in counts(requests).items():
        outcome.add(f"{kind} a commit, all", asked / count, "")
    outcome.add("bytes sent a commit, all", sum(request.sent for request in requests) / count / 1e6, "MB")
    outcome.add("bytes received a commit, all", sum(request.received for request in requests) / count / 1e6, "MB")
    outcome.add("dollars a month at a commit a second", price(requests) / count * MONTH_S, "")
