"""Metrics in Prometheus' text format, made of what is known already. Pure.

The client library keeps an object for each sample, which is right for what adds up between scrapes; for some ten
thousand gauges of a moment it takes seconds. Format: prometheus.io/docs/instrumenting/exposition_formats, "Text-based
format".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

#: Label values and a value; what is not known is left out.
Sample: TypeAlias = tuple[tuple[str, ...], float | None]


def family(name: str, told: str, kind: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> str:
    """Return one metric with all of its samples.

    Args:
        name: As it is asked for: a counter's ends in ``_total``.
        told: What it means, on one line.
        kind: ``gauge`` or ``counter``.
        labels: The labels' names.
        samples: Their values, and the metric's.
    """
    shape = "{" + ",".join(f'{label}="%s"' for label in labels) + "}" if labels else ""
    lines = [f"# HELP {name} {told}", f"# TYPE {name} {kind}"]
    lines += [
        f"{name}{shape % tuple(map(_escaped, values))} {float(value)!r}"
        for values, value in samples
        if value is not None
    ]
    return "\n".join([*lines, ""])


def _escaped(value: str) -> str:
    # By far most names are one word of letters: one look at them, not three.
    if value.isidentifier():
        return value
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


__all__ = ["Sample", "family"]
