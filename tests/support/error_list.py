"""The errors as docs/errors.md lists them: the kinds from their classes, and what each says where it is raised.

`python -m tests.support.error_list` writes them into the page.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kuvasz import errors
from kuvasz.errors import KuvaszError
from tests.support import generated
from tests.support.source_code import files, nodes, tree

PAGE = generated.DOCS / "errors.md"

#: What stands for a value that only the moment has.
_ANY = "…"

#: Functions that make a hint, or a piece of one, of a name.
_MADE = {
    name: getattr(errors, name)(_ANY).replace("'", "")
    for name in ("resync_of", "retry_of", "resume_of", "start_over", "another_cluster")
}

_MEANINGS = {"never": "no", "human": "by a person, after mending it", "timed": "by itself"}


def kinds(kind: type[KuvaszError] = KuvaszError) -> Iterator[type[KuvaszError]]:
    """Yield all kinds of errors, each before those that are of it."""
    yield kind
    for one in kind.__subclasses__():
        if one.__module__ == errors.__name__:
            yield from kinds(one)


def kind_table() -> str:
    """Return what each kind means, and what comes of it."""
    head = ("Kind", "Exit code", "Stops", "Tried again", "Meaning")
    rows = [
        (
            f"{_depth(kind) * '· '}`{kind.__name__}`",
            str(kind.exit_code),
            kind.scope.value,
            _MEANINGS[kind.retry.value],
            (kind.__doc__ or "").partition("\n")[0],
        )
        for kind in kinds()
        if kind is not KuvaszError
    ]
    return generated.part("kinds of errors", "tests.support.error_list", generated.table(head, rows))


def message_list() -> str:
    """Return the messages of each kind with their hints."""
    found = messages()
    lines: list[str] = []
    for kind in kinds():
        if rows := sorted(found.get(kind.__name__, ())):
            lines += ["", f"### {kind.__name__}", "", *generated.table(("Message", "Hint"), rows)]
    return generated.part("messages", "tests.support.error_list", lines[1:])


@functools.cache
def messages() -> dict[str, set[tuple[str, str]]]:
    """Return kind -> the messages it is raised with and their hints, as far as the code itself says them."""
    names = {kind.__name__ for kind in kinds()}
    found: dict[str, set[tuple[str, str]]] = {}
    for file in files():
        constants = _assigned(tree(file).body)
        for function in _functions(nodes(file)):
            inside = tuple(ast.walk(function))
            ways = _Ways(constants | _assigned(inside))
            for call in inside:
                if isinstance(call, ast.Call) and call.args:
                    for name in names.intersection(ways.names(call.func)):
                        found.setdefault(name, set()).update(ways.messages(call))
    return found


def _functions(module: Iterable[ast.AST]) -> list[ast.AST]:
    return [one for one in module if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]


class _Ways:
    """The texts that expressions of one function may be, `…` for what is not known before.

    Args:
        known: Name -> what is assigned to it.
    """

    #: Names within names are followed so far.
    _DEEPEST = 4
    #: Many pieces with many ways each are no message that anybody looks for.
    _MOST = 6

    def __init__(self, known: Mapping[str, Sequence[ast.expr]]) -> None:
        self._known = known

    def names(self, function: ast.expr) -> list[str]:
        """Return the names that what is called may have."""
        inner = self._inner(function, 0)
        return [_name(function), *(_name(one) for way in inner for one in (way, *self._inner(way, 1)))]

    def messages(self, call: ast.Call) -> Iterator[tuple[str, str]]:
        """Yield the messages of an error that is made here, each with each hint."""
        hint = next((one.value for one in call.keywords if one.arg == "hint"), None)
        for message in self.of(call.args[0]):
            # The place stands in front of it.
            told = message.removeprefix(f"{_ANY}: ")
            if told.strip(f"{_ANY}: ;,."):
                yield from ((told, one) for one in ([""] if hint is None else self.of(hint)))

    def of(self, node: ast.expr, depth: int = 0) -> list[str]:
        """Return the texts of an expression."""
        match node:
            case ast.Constant():
                return ["" if node.value is None else str(node.value)]
            case ast.JoinedStr():
                return self._joined(node.values, depth)
            case ast.BinOp(op=ast.Add()):
                return self._joined([node.left, node.right], depth)
            case ast.Call():
                return [_MADE.get(_name(node.func), _ANY)]
        inner = self._inner(node, depth)
        return [text for one in inner for text in self.of(one, depth + 1)] if inner else [_ANY]

    def _inner(self, node: ast.expr, depth: int) -> Sequence[ast.expr]:
        """Return what an expression may be instead of itself."""
        match node:
            case ast.FormattedValue():
                return [node.value]
            case ast.IfExp():
                return [node.body, node.orelse]
            case ast.BoolOp():
                return node.values
            case ast.Name() if depth < self._DEEPEST:
                return self._known.get(node.id, ())
        return ()

    def _joined(self, nodes: Sequence[ast.expr], depth: int) -> list[str]:
        found = [""]
        for node in nodes:
            texts = list(dict.fromkeys(self.of(node, depth)))
            if len(found) * len(texts) > self._MOST:
                texts = [_ANY]
            found = [before + text for before in found for text in texts]
        return found


def _depth(kind: type[KuvaszError]) -> int:
    return len(kind.__mro__) - len(KuvaszError.__mro__) - 1


def _name(function: ast.expr) -> str:
    match function:
        case ast.Name():
            return function.id
        case ast.Attribute():
            return function.attr
    return ""


def _assigned(nodes: Iterable[ast.AST]) -> dict[str, list[ast.expr]]:
    """Return name -> what is assigned to it."""
    found: dict[str, list[ast.expr]] = {}
    for node in nodes:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                found.setdefault(name, []).append(value)
    return found


if __name__ == "__main__":
    generated.write(PAGE.name, "kinds of errors", kind_table())
    generated.write(PAGE.name, "messages", message_list())
