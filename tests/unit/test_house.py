"""What keeps the house in order: names, sizes of rooms, and no two modules that need each other."""

from __future__ import annotations

import ast
import collections
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2] / "kuvasz"
FILES = sorted(file for file in ROOT.rglob("*.py") if "__pycache__" not in file.parts)

#: Modules of one folder.
MOST_MODULES = 15

#: Helpers of a table that know the whole table still: to be handed what they use.
CIRCLES = {
    frozenset(
        f"kuvasz.lake.table.{name}"
        for name in ("checkpoints", "columns", "commit_builder", "keyless", "past", "recovery", "table")
    )
}


def test_no_two_classes_have_one_name() -> None:
    places = collections.defaultdict(list)
    for file in FILES:
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(file.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


@pytest.mark.parametrize("folder", sorted({file.parent for file in FILES}), ids=lambda folder: folder.name)
def test_a_room_is_seen_at_a_glance(folder: Path) -> None:
    modules = [file.stem for file in FILES if file.parent == folder and file.stem != "__init__"]
    assert len(modules) <= MOST_MODULES, modules
    assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))), "says what lives here"


def test_no_modules_need_each_other() -> None:
    graph = grimp.build_graph("kuvasz")
    needs = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    circles = {frozenset(circle) for circle in _circles(needs) if len(circle) > 1}
    assert circles == CIRCLES


def _circles(needs: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for needed in needs[module]:
            if needed not in index:
                visit(needed)
                low[module] = min(low[module], low[needed])
            elif needed in stack:
                low[module] = min(low[module], index[needed])
        if low[module] == index[module]:
            circle = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            found.append(circle)

    for module in needs:
        if module not in index:
            visit(module)
    return found
