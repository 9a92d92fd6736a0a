from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table

from kuvasz.shown import terminal


def drawn(*cells: str) -> str:
    grid = Table.grid(padding=(0, 1))
    terminal.add_row(grid, *cells)
    out = Console(file=io.StringIO(), width=80)
    out.print(grid)
    return out.file.getvalue().rstrip()


def test_a_string_is_no_markup() -> None:
    assert drawn("[/b]", "[red]x[/red]", ":smile:") == "[/b] [red]x[/red] :smile:"


def test_a_cell_is_one_line_and_steers_nothing() -> None:
    assert drawn("a\n\x1b[2J", "\x9b2J") == r"a\n\x1b[2J \u009b2J"


def test_a_cell_has_its_style() -> None:
    assert terminal.cell(7, "bold").markup == "[bold]7[/bold]"
