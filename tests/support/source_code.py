"""The program's own source for the tests of the house: each file is parsed once in a process."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "kuvasz"


@functools.cache
def tree(file: Path) -> ast.Module:
    """Return what a file parses to."""
    return ast.parse(file.read_text(encoding="utf-8"))


@functools.cache
def nodes(file: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of what a file parses to: several tests look at each of them."""
    return tuple(ast.walk(tree(file)))


@functools.cache
def files() -> list[Path]:
    """Return the files of the program."""
    return sorted(file for file in PACKAGE.rglob("*.py") if "__pycache__" not in file.parts)
