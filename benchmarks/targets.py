"""What kuvasz aims at. A target holds for a size: a smaller run shows it, and does not judge."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A limit on the median of the runs."""

    limit: float
    is_ceiling: bool
    sizes: Mapping[str, float]  #: options of the scenario that are at least so large, or the target says nothing

    @override
    def __str__(self) -> str:
        return f"{'≤' if self.is_ceiling else '≥'} {self.limit:g}"

    def is_met(self, value: float) -> bool:
        """Say whether a value keeps the limit."""
        return value <= self.limit if self.is_ceiling else value >= self.limit

    def applies(self, options: Mapping[str, object]) -> bool:
        """Say whether a run of these options is large enough to be judged."""
        return all(float(str(options[name])) >= size for name, size in self.sizes.items())


def _at_least(limit: float, **sizes: float) -> Target:
    return Target(limit=limit, is_ceiling=False, sizes=sizes)


def _at_most(limit: float, **sizes: float) -> Target:
    return Target(limit=limit, is_ceiling=True, sizes=sizes)


_CPU_PER_ROW = _at_most(6, changes=1_000_000)

#: (scenario, figure) -> target
TARGETS: Mapping[tuple[str, str], Target] = {
    ("backlog-mixed", "ratio to pg_recvlogical"): _at_least(1.4, changes=1_000_000),
    ("backlog-mixed", "CPU per row"): _CPU_PER_ROW,
    ("backlog-hot", "CPU per row"): _CPU_PER_ROW,
    ("backlog-inserts", "ratio to pg_recvlogical"): _at_least(1.3, changes=2_000_000),
    ("backlog-inserts", "CPU per row"): _CPU_PER_ROW,
    ("backlog-100-tables", "ratio to pg_recvlogical"): _at_least(1.0, changes=1_000_000),
    ("clustered-backlog-mixed", "CPU per row, to alone"): _at_most(1.35, changes=1_000_000),
    ("transaction", "ratio to pg_recvlogical"): _at_least(0.9, changes=5_000_000),
    ("transaction", "RSS growth"): _at_most(600, changes=5_000_000),
    ("copy-narrow", "ratio to bare COPY"): _at_least(0.6, rows=10_000_000),
    ("steady-1k", "lag p50"): _at_most(0.9, seconds=60),
    ("steady-1k", "lag p99"): _at_most(1.8, seconds=60),
    ("steady-shortest", "lag p50"): _at_most(0.4, seconds=60),
    ("steady-shortest", "lag p99"): _at_most(0.9, seconds=60),
    ("steady-10k", "lag p99"): _at_most(3, seconds=300),
    ("steady-10k", "lag drift"): _at_most(1.25, seconds=300),
    ("growth", "commit time, last to first"): _at_most(1.3, largest=50_000_000),
    ("growth", "CPU per row, last to first"): _at_most(1.3, largest=50_000_000),
    ("index", "disk per row"): _at_most(16.1, rows=1_000_000),
    ("index", "heap per row"): _at_most(1, rows=1_000_000),
    ("index", "look-ups"): _at_least(1, rows=1_000_000),
    ("lost-index", "index read, changes visible"): _at_most(30, rows=50_000_000),
    ("read", "full scan to fresh"): _at_most(1.5, changes=1_000_000),
    ("read", "looked after: full scan to fresh"): _at_most(1.5, changes=1_000_000),
    ("idle", "CPU of one core"): _at_most(3, seconds=60),
    ("about", "CPU of the tables about the lake"): _at_most(2, seconds=60),
    ("trace", "trace, slowest"): _at_most(5, rows=10_000_000, snapshots=500),
}
