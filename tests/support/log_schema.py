"""The schema of the log's lines as it is in config/, and the table of their facts in docs/events.md.

`python -m tests.support.log_schema` writes both.
"""

from __future__ import annotations

import ast
import collections
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]

from kuvasz.log.facts import FACTS
from kuvasz.log.schema import schema
from tests.support import generated
from tests.support.source_code import files, nodes

FILE = Path(__file__).parents[2] / "config" / "log.schema.json"
PAGE = generated.DOCS / "events.md"


def text() -> str:
    """Return what stands in the file."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def table() -> str:
    """Return the facts as a table: name, kind, meaning."""
    rows = [(f"`{name}`", fact.kind.replace("|", ", "), fact.meaning) for name, fact in sorted(FACTS.items())]
    return generated.part(
        "facts", "tests.support.log_schema", generated.table(("fact", "value in JSON", "meaning"), rows)
    )


def violations(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what of some lines is not as the schema says; facts that it does not have are such a thing here."""
    validator = jsonschema.Draft202012Validator({**schema(), "additionalProperties": False})
    return [f"{error.message}: {line}" for line in lines for error in validator.iter_errors(line)]


def told() -> dict[str, set[str]]:
    """Return the names of all facts that the code gives by name -> the events, or what stands for them."""
    found = collections.defaultdict(set)
    for file in files():
        for node in nodes(file):
            if isinstance(node, ast.Call) and node.args and _tells(node.func):
                for keyword in node.keywords:
                    found[keyword.arg or f"**{ast.unparse(keyword.value)}"].add(ast.unparse(node.args[0]))
    return found


def _tells(function: ast.expr) -> bool:
    """Whether what is called writes a line of the log; to unparse all that is called in kuvasz takes seconds."""
    return (
        isinstance(function, ast.Attribute)
        and function.attr in {"tell", "_tell"}
        and ast.unparse(function) in {"_log.tell", "self._tell"}
    )


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
    generated.write(PAGE.name, "facts", table())
