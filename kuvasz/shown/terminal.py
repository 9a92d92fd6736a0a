"""Rows for a terminal, drawn by rich: text as it is, whatever a source calls its tables.

To rich a plain string is markup: a name with brackets loses them, or ends the drawing with a MarkupError. So strings
become `rich.text.Text` here, on one line and with escapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from kuvasz.shown import escapes

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


def cell(shown: object, style: str = "") -> Text:
    """Return a value as text on one line."""
    return Text(escapes.one_line(str(shown)), style=style)


def add_row(grid: Table, *cells: RenderableType) -> None:
    """Add a row to a table; of its cells, the strings as `cell` has them."""
    grid.add_row(*(cell(one) if isinstance(one, str) else one for one in cells))
