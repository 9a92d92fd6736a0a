"""The program's own source for the tests of the house: each file is parsed once in a process."""

from __future__ import annotations

import ast
import functools
import gc
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "kuvasz"


@functools.cache
def tree(file: Path) -> ast.Module:
    """Return what a file parses to."""
    return found if (found := _package().get(file)) is not None else _parsed(file)


@functools.cache
def nodes(file: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of what a file parses to: several tests look at each of them."""
    return tuple(ast.walk(tree(file)))


@functools.cache
def files() -> list[Path]:
    """Return the files of the program."""
    return sorted(file for file in PACKAGE.rglob("*.py") if "__pycache__" not in file.parts)


@functools.cache
def _package() -> dict[Path, ast.Module]:
    """Return what the files of the program parse to: hundreds of thousands of nodes, none of which goes again.

    The collector would pass over them all the time while they are made, which takes four times as long as to parse.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return {file: _parsed(file) for file in files()}
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))
