"""Which lines of kuvasz ran, package by package: printed at the end of a run with `COVERAGE=1`.

From Python 3.12 on the interpreter tells of a line once, which costs next to nothing: all tests are measured. Before,
it tells of every line each time, which doubles the work of a test; so unit tests alone are, each with its first
parameters, but for those that run the same lines with many examples; and the lines that modules run when they are
imported are read off them: to have them told doubles what it takes to collect the tests, in each process. What numba
compiles is left out, and what runs in other processes (a command, Spark's tasks) is not seen.

From Python 3.12 on measuring begins when this is imported, which has to be before any module of kuvasz is.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "kuvasz"

#: All tests are measured, not only those for which it matters little.
IS_CHEAP = sys.version_info >= (3, 12)

_coverage = coverage.Coverage(data_file=None, source=[str(PACKAGE)], config_file=str(ROOT / "pyproject.toml"))
if IS_CHEAP:
    _coverage.set_option("run:core", "sysmon")
    _coverage.start()

_measured: set[tuple[Path, str]] = set()  #: file and name of the tests that were


def totals() -> Iterator[tuple[str, int, int]]:
    """Yield each package (modules without one together), how many of its lines ran, and how many it has."""
    ran: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for file in sorted(PACKAGE.rglob("*.py")):
        _, statements, _, missing, _ = _coverage.analysis2(str(file))
        room = file.relative_to(PACKAGE).parts[0] if file.parent != PACKAGE else "its own modules"
        ran[room] += len(statements) - len(missing)
        lines[room] += len(statements)
    yield from ((room, ran[room], lines[room]) for room in lines if lines[room])
    yield "kuvasz", ran.total(), lines.total()


def is_measured(item: pytest.Item) -> bool:
    """Return whether a test is measured where that is dear: the same with other parameters runs most lines again."""
    is_drawn = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    if is_drawn or ROOT / "tests" / "unit" not in item.path.parents:
        return False
    return test_of(item) not in _measured


def test_of(item: pytest.Item) -> tuple[Path, str]:
    """Return file and name of a test, which are the same for all its parameters."""
    return item.path, getattr(item, "originalname", item.name)


def imported_lines(statements: Iterable[ast.stmt]) -> Iterator[int]:
    """Yield the lines of a module that run when it is imported: those of no function, and of no branch not taken."""
    for node in statements:
        yield node.lineno
        yield from (line.lineno for line in getattr(node, "decorator_list", ()))
        is_taken = not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
        if is_taken and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from imported_lines(getattr(node, "body", ()))


def note_imports() -> None:
    """Count the lines of all modules that were imported."""
    files = {module.__file__ for module in list(sys.modules.values()) if getattr(module, "__file__", None)}
    for file in files:
        path = Path(str(file))
        if path.suffix == ".py" and PACKAGE in path.parents:
            _coverage.get_data().add_lines({str(file): set(imported_lines(ast.parse(path.read_text("utf-8")).body))})


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Measure a test with its fixtures."""
    if IS_CHEAP or not is_measured(item):
        return (yield)
    _measured.add(test_of(item))
    _coverage.start()
    try:
        return (yield)
    finally:
        _coverage.stop()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand a worker's lines to the process that prints."""
    if IS_CHEAP:
        _coverage.stop()
    else:
        note_imports()
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["lines"] = _coverage.get_data().dumps()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over a worker's lines; one that crashed has none."""
    lines = getattr(node, "workeroutput", {}).get("lines")
    if lines is not None:
        found = coverage.CoverageData(no_disk=True)
        found.loads(lines)
        _coverage.get_data().update(found)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line per package, and one for all."""
    tests = "all tests" if IS_CHEAP else "unit tests with few examples, once each,"
    terminalreporter.write_sep("-", f"coverage: lines that {tests} ran in their own process")
    for room, ran, lines in totals():
        terminalreporter.write_line(f"{room:<16} {ran:>6} of {lines:>6}  {ran / lines:>4.0%}")
