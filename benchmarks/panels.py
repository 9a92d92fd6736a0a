"""The plots that scenarios have in common."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from benchmarks.outcome import Look, Panel, rates
from benchmarks.sampler import KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.sampler import Sample


def cpu(used: Mapping[str, Mapping[str, float]], rows: int) -> Panel:
    """CPU per row by kind of process, a bar for each measurement."""
    series = {name: (KINDS, [spent[kind] / rows * 1e6 for kind in KINDS]) for name, spent in used.items()}
    return Panel(title="CPU per row", look=Look.BARS, x="", y="µs", series=series)


def processes(samples: Sequence[Sample]) -> list[Panel]:
    """Memory and busy cores over time, by kind of process."""
    seconds = [sample.at - samples[0].at for sample in samples]
    memory = {kind: (seconds, [sample.rss[kind] / 1e6 for sample in samples]) for kind in KINDS}
    steps = list(itertools.pairwise(samples))
    busy = {
        kind: (seconds[1:], [(b.cpu_s[kind] - a.cpu_s[kind]) / max(b.at - a.at, 1e-3) for a, b in steps])
        for kind in KINDS
    }
    return [
        Panel(title="resident memory", look=Look.LINES, x="s", y="MB", series=memory),
        Panel(title="busy cores", look=Look.LINES, x="s", y="cores", series=busy),
    ]


def throughput(
    committed: Sequence[Mapping[str, Any]], *, begin: float, end: float, references: Mapping[str, float]
) -> Panel:
    """Row changes committed per second, with the references' averages as lines."""
    at, counts = [event["seen_at"] for event in committed], [event["rows"] for event in committed]
    series = {"kuvasz": rates(at, counts, begin=begin, end=end)}
    for name, rate in references.items():
        series[name] = ([0.0, end - begin], [rate, rate])
    return Panel(title="throughput", look=Look.LINES, x="s", y="rows/s", series=series)


def lags(at: Sequence[float], found: Sequence[float]) -> list[Panel]:
    """Lag as a distribution and over time; `at` are epoch seconds of the commits at the source."""
    seconds = [moment - at[0] for moment in at]
    return [
        Panel(title="lag, share at or below", look=Look.DISTRIBUTION, x="s", y="", series={"lag": (found, [])}),
        Panel(title="lag over time", look=Look.LINES, x="s", y="s", series={"lag": (seconds, found)}),
    ]
