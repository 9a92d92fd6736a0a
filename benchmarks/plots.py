"""Draws panels and flame graphs into PNG files; does nothing where matplotlib is not installed."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.outcome import Look, Panel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_COLUMNS = 2

#: Flames narrower than this share of all samples are left out.
_NARROWEST = 0.002


def is_at_hand() -> bool:
    """Say whether there is anything to draw with."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(panels: Sequence[Panel], title: str, file: Path) -> None:
    """Draw panels into one picture."""
    if not is_at_hand() or not panels:
        return
    rows = -(-len(panels) // _COLUMNS)
    figure = _figure(7 * _COLUMNS, 3.6 * rows)
    figure.suptitle(title)
    for number, panel in enumerate(panels):
        axes = figure.add_subplot(rows, _COLUMNS, number + 1)
        axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
        _DRAWERS[panel.look](axes, panel)
        axes.grid(alpha=0.3)
        if len(panel.series) > 1 or panel.look is Look.BARS:
            axes.legend(fontsize="small")
    figure.savefig(file, dpi=110)


def flames(stacks: Mapping[tuple[str, ...], int], file: Path) -> None:
    """Draw stacks, outermost frame first, as a flame graph."""
    if not is_at_hand():
        return
    depth = max(map(len, stacks))
    figure = _figure(20, max(4.0, 0.22 * depth))
    axes = figure.add_subplot()
    total = sum(stacks.values())
    _flame(axes, list(stacks.items()), 0, 0.0, total)
    axes.set(xlim=(0, total), ylim=(0, depth), xlabel=f"{total} samples")
    axes.set_yticks([])
    figure.savefig(file, dpi=110)


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _lines(axes: Any, panel: Panel) -> None:
    for name, (x, y) in panel.series.items():
        axes.plot(x, y, label=name, marker="." if len(x) < 10 else None, linewidth=1)
    axes.set_ylim(bottom=0)


def _bars(axes: Any, panel: Panel) -> None:
    parts = list(dict.fromkeys(part for names, _ in panel.series.values() for part in names))
    bottom = np.zeros(len(panel.series))
    for part in parts:
        heights = np.array(
            [dict(zip(names, values, strict=True)).get(part, 0.0) for names, values in panel.series.values()]
        )
        axes.bar(list(panel.series), heights, bottom=bottom, label=part, width=0.4)
        bottom += heights
    axes.set_xlim(-1, len(panel.series))


def _distribution(axes: Any, panel: Panel) -> None:
    for name, (values, _) in panel.series.items():
        ordered = np.sort(np.asarray(values, float))
        axes.plot(ordered, np.arange(1, len(ordered) + 1) / len(ordered), label=name)
    axes.set_ylim(0, 1)
    axes.set_xlim(left=0)


_DRAWERS = {Look.LINES: _lines, Look.BARS: _bars, Look.DISTRIBUTION: _distribution}


def _flame(axes: Any, stacks: list[tuple[tuple[str, ...], int]], level: int, left: float, total: int) -> None:
    """Draw one level of frames from `left` on, and what they call above them."""
    callers: dict[str, list[tuple[tuple[str, ...], int]]] = {}
    for stack, count in stacks:
        if len(stack) > level:
            callers.setdefault(stack[level], []).append((stack, count))
    for frame, of in sorted(callers.items()):
        width = sum(count for _, count in of)
        if width >= _NARROWEST * total:
            colour = ("#e8743b", "#f2a65a", "#eec170", "#f58549")[hash(frame) % 4]
            axes.add_patch(_box(left, level, width, colour))
            if width > 0.03 * total:
                text = ".".join(frame.split(".")[-2:])[: int(180 * width / total)]
                axes.text(left + width / 2, level + 0.5, text, ha="center", va="center", fontsize=6, clip_on=True,
                          parse_math=False)  # fmt: skip
            _flame(axes, of, level + 1, left, total)
        left += width


def _box(left: float, level: int, width: float, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((left, level), width, 0.95, facecolor=colour, edgecolor="white", linewidth=0.3)
