"""The results of a scenario's runs: a table for the terminal, JSON, and a picture."""

from __future__ import annotations

import dataclasses
import json
import statistics
from typing import TYPE_CHECKING, Any

from benchmarks import plots
from benchmarks.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.outcome import Outcome
    from benchmarks.targets import Target

_HEAD = ("", "min", "median", "max", "", "target", "")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure over all runs."""

    name: str
    unit: str
    values: tuple[float, ...]
    target: Target | None
    verdict: str  #: met, missed, or why there is none

    @property
    def median(self) -> float:
        """The middle of the runs."""
        return statistics.median(self.values)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All runs of one scenario with the same options."""

    scenario: str
    options: Mapping[str, Any]
    machine: Mapping[str, str]
    outcomes: Sequence[Outcome]

    def rows(self) -> list[Row]:
        """Return the figures in the order of the first run."""
        found = []
        for figure in self.outcomes[0].figures:
            values = tuple(outcome.value(figure.name) for outcome in self.outcomes)
            target = TARGETS.get((self.scenario, figure.name))
            verdict = _verdict(target, statistics.median(values), self.options)
            found.append(Row(name=figure.name, unit=figure.unit, values=values, target=target, verdict=verdict))
        return found

    def text(self) -> str:
        """Return the table."""
        chosen = " ".join(f"{name}={value}" for name, value in self.options.items())
        lines = [
            (row.name, *map(_number, (min(row.values), row.median, max(row.values))), row.unit,
             str(row.target or ""), row.verdict)
            for row in self.rows()
        ]  # fmt: skip
        widths = [max(len(line[column]) for line in [_HEAD, *lines]) for column in range(len(_HEAD))]
        title = f"{self.scenario} ({chosen}), runs: {len(self.outcomes)}"
        return "\n".join([title, *(_aligned(line, widths) for line in [_HEAD, *lines])])

    def save(self, folder: Path) -> None:
        """Write ``<scenario>.json`` and, where matplotlib is at hand, ``<scenario>.png`` of the last run."""
        folder.mkdir(parents=True, exist_ok=True)
        document = {
            "scenario": self.scenario,
            "options": dict(self.options),
            "machine": dict(self.machine),
            "figures": [
                {"name": row.name, "unit": row.unit, "min": min(row.values), "median": row.median,
                 "max": max(row.values), "target": str(row.target or ""), "verdict": row.verdict}
                for row in self.rows()
            ],
            "runs": [dataclasses.asdict(outcome) for outcome in self.outcomes],
        }  # fmt: skip
        (folder / f"{self.scenario}.json").write_text(json.dumps(document, indent=2))
        plots.draw(
            self.outcomes[-1].panels, f"{self.scenario}, {self.machine['date']}", folder / f"{self.scenario}.png"
        )


def _verdict(target: Target | None, value: float, options: Mapping[str, Any]) -> str:
    if target is None:
        return ""
    if not target.applies(options):
        sizes = ", ".join(f"{name} {size:,.0f}" for name, size in target.sizes.items())
        return f"(for {sizes})"
    return "met" if target.is_met(value) else "MISSED"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 20 else f"{value:.2f}"


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    name, low, middle, high, *others = line
    cells = [name.ljust(widths[0])]
    cells += [text.rjust(width) for text, width in zip((low, middle, high), widths[1:4], strict=True)]
    cells += [text.ljust(width) for text, width in zip(others, widths[4:], strict=True)]
    return "  ".join(cells).rstrip()
