"""Plain text for people: aligned columns that keep their words, since what stands in them is to be copied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kuvasz.shown import escapes


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows under headers, each column as wide as its widest entry; the last one ragged."""
    lines = [tuple(_one_line(entry) for entry in row) for row in (headers, *rows)]
    widths = [max(len(line[number]) for line in lines) for number in range(len(headers))]
    ruled = [lines[0], tuple("-" * width for width in widths), *lines[1:]]
    return "\n".join(
        "  ".join(entry.ljust(width) for entry, width in zip(line, widths, strict=True)).rstrip() for line in ruled
    )


def lines(parts: Iterable[str]) -> str:
    """Return lines one below the other, each on one line whatever is in it."""
    return "\n".join(map(escapes.one_line, parts))


def _one_line(text: str) -> str:
    return escapes.one_line(" ".join(text.split()))
