"""What keeps the house in order.

Names, sizes of rooms and classes, no two modules that need each other, and one way for one thing.
"""

from __future__ import annotations

import ast
import collections
import functools
import re
from pathlib import Path

import grimp
import pytest

from kuvasz.events import Event
from tests.support.source_code import nodes, tree

pytestmark = pytest.mark.text

ROOT = Path(__file__).parents[2] / "kuvasz"
FILES = sorted(file for file in ROOT.rglob("*.py") if "__pycache__" not in file.parts)

#: Modules of one folder.
MOST_MODULES = 15

#: Of one class, unless its docstring has a paragraph that begins with `REASON`.
MOST_METHODS = 20
MOST_ATTRIBUTES = 12
#: Of a value: nothing goes on among its fields, so more of them are seen at a glance than of attributes.
MOST_FIELDS = 16
REASON = "Large because "


#: Where records are made and formatted; and where an engine's logger is told to be silent.
LOGGERS = {"events.py", "log/lines.py", "tracing/open_telemetry.py", "lake/executors/analyzer.py"}


def attributes(of: str) -> dict[str, set[str]]:
    """Return which attributes of a name are used: attribute -> files."""
    found = collections.defaultdict(set)
    for file in FILES:
        for node in nodes(file):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == of:
                found[node.attr].add(str(file.relative_to(ROOT)))
    return found


def test_what_happens_is_told_in_one_way() -> None:
    assert attributes("logging")["getLogger"] == LOGGERS, "the others have an EventLog"


def test_every_event_is_told_somewhere() -> None:
    assert attributes("Event").keys() == {event.name for event in Event}


#: Another way to write what a function does -> files that mean something else.
OTHER_WAYS = {
    # `terminal.add_row`. To rich's own, names are markup; the demo's are its own.
    r"(?<!terminal)\.add_row\(": {"shown/terminal.py", "demo/run.py"},
    # `place_of`. What a person asked for, in his words, is no place.
    r'f"(?:source \{[^{}]+\}(?:: |, table |")|table \{[^{}]+\}(?:: |"))': {
        "admin/commands.py",
        "admin/sources/mapped_url.py",
    },
    # `resync_of` and the like.
    r"kuvasz \w+ --table \{": set(),
}


@pytest.mark.parametrize(("other_way", "exempt"), OTHER_WAYS.items(), ids=["row", "place", "command"])
def test_what_people_read_is_written_in_one_way(other_way: str, exempt: set[str]) -> None:
    found = {str(file.relative_to(ROOT)) for file in FILES if re.search(other_way, file.read_text("utf-8"))}
    assert found == exempt, "there is a function for that"


def test_no_two_classes_have_one_name() -> None:
    places = collections.defaultdict(list)
    for file in FILES:
        for node in tree(file).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(file.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


@pytest.mark.parametrize("folder", sorted({file.parent for file in FILES}), ids=lambda folder: folder.name)
def test_a_room_is_seen_at_a_glance(folder: Path) -> None:
    modules = [file.stem for file in FILES if file.parent == folder and file.stem != "__init__"]
    assert len(modules) <= MOST_MODULES, modules
    assert ast.get_docstring(tree(folder / "__init__.py")), "says what lives here"


@functools.cache
def classes() -> list[tuple[Path, ast.ClassDef]]:
    """Return all classes, with their files."""
    return [(file, node) for file in FILES for node in nodes(file) if isinstance(node, ast.ClassDef)]


@functools.cache
def size(node: ast.ClassDef) -> tuple[int, int, int]:
    """Return how many methods a class has, how many attributes they assign on `self`, and how many fields it has."""
    methods = [one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    assigned = {
        one.attr
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store) and ast.unparse(one.value) == "self"
    }
    fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
    return len(methods), len(assigned), len(fields)


def is_large(node: ast.ClassDef) -> bool:
    """Whether a class holds more than one sees at a glance."""
    methods, attributes, fields = size(node)
    return methods > MOST_METHODS or attributes > MOST_ATTRIBUTES or fields > MOST_FIELDS


def has_reason(node: ast.ClassDef) -> bool:
    """Whether a class says why it is as large as it is."""
    paragraphs = (ast.get_docstring(node) or "").split("\n\n")
    return any(paragraph.startswith(REASON) for paragraph in paragraphs)


def test_no_class_holds_too_much_without_a_reason() -> None:
    found = {
        f"{file.relative_to(ROOT)}: {node.name}": size(node)
        for file, node in classes()
        if is_large(node) and not has_reason(node)
    }
    assert found == {}, "(methods, attributes, fields): split it, or say why it is large"


def test_only_large_classes_say_why_they_are() -> None:
    assert [node.name for _, node in classes() if has_reason(node) and not is_large(node)] == []


#: What a docstring's first sentence, and an argument's or an exception's, may not be: a stranger reads it once, and
#: finds no noun in it.
FRAGMENT = re.compile(r"(?:Of|It|They|Them|That|Those|These|One of them)\b")
#: "Store it.", where nothing says what.
PRONOUN = re.compile(r"\w+ (?:it|them|that|those)(?:[,.:;]|$)")
ARGUMENT = re.compile(
    r"^ +\*{0,2}\w+: (?=(?:Of|That|Those|These|Them|Its own)\b|It[.;]|They[.;]"
    r"|(?:It|They) (?:is|are|was|were|do|does|did|has)(?: not| none| so)?[.]$)"
)


def fragments(docstring: str) -> list[str]:
    """Return the sentences of a docstring that name no noun."""
    first, *others = docstring.splitlines() or [""]
    found = [first] if FRAGMENT.match(first) or PRONOUN.match(first) else []
    return found + [line.strip() for line in others if ARGUMENT.match(line)]


def test_a_docstring_names_its_noun() -> None:
    found = [
        f"{file.relative_to(ROOT)}: {fragment}"
        for file in FILES
        for node in nodes(file)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for fragment in fragments(ast.get_docstring(node) or "")
    ]
    assert found == [], "say of what, or whose"


def test_no_modules_need_each_other() -> None:
    graph = grimp.build_graph("kuvasz")
    needs = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert [sorted(circle) for circle in _circles(needs) if len(circle) > 1] == []


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
