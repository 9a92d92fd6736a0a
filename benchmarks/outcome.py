"""What a scenario found: figures to compare with targets, and panels to look at."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class WrongResultError(Exception):
    """The lake differs from its source, so there is no result. `args` are the differences."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number."""

    name: str
    value: float
    unit: str


class Look(enum.StrEnum):
    """How a panel is drawn."""

    LINES = "lines"  #: series of x and y
    BARS = "bars"  #: one bar a series, with its parts one upon another
    DISTRIBUTION = "distribution"  #: share of the values at or below x; y is not used


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One plot. A series is x and y values, for bars the names of the parts and their heights."""

    title: str
    look: Look
    x: str
    y: str
    series: Mapping[str, tuple[Sequence[float | str], Sequence[float]]]


@dataclasses.dataclass(slots=True)
class Outcome:
    """One run of a scenario, or a part of one."""

    figures: list[Figure] = dataclasses.field(default_factory=list)
    panels: list[Panel] = dataclasses.field(default_factory=list)

    def add(self, name: str, value: float, unit: str) -> None:
        """Add a figure."""
        self.figures.append(Figure(name=name, value=float(value), unit=unit))

    def take(self, other: Outcome, prefix: str = "") -> None:
        """Add all that another part found, its names after `prefix`."""
        self.figures += [dataclasses.replace(figure, name=prefix + figure.name) for figure in other.figures]
        self.panels += [dataclasses.replace(panel, title=prefix + panel.title) for panel in other.panels]

    def value(self, name: str) -> float:
        """Return a figure's value."""
        return self._figure(name).value

    def unit(self, name: str) -> str:
        """Return a figure's unit."""
        return self._figure(name).unit

    def _figure(self, name: str) -> Figure:
        return next(figure for figure in self.figures if figure.name == name)


def rates(
    at: Sequence[float], counts: Sequence[float], *, begin: float, end: float
) -> tuple[list[float], list[float]]:
    """Return seconds since `begin` and counts per second, in about thirty bins."""
    edges = np.linspace(begin, max(end, begin + 1e-3), 31)
    # A last event may be told a moment after its effect was seen.
    sums, _ = np.histogram(np.clip(at, edges[0], edges[-1]), edges, weights=counts)
    return (edges[1:] - begin).tolist(), (sums / np.diff(edges)).tolist()


def percentiles(values: Iterable[float], *shares: float) -> list[float]:
    """Return the percentiles of values; NaN where there are none."""
    found = np.fromiter(values, float)
    return [float(np.percentile(found, share)) if len(found) else float("nan") for share in shares]
