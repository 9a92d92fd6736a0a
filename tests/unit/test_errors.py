from __future__ import annotations

import pickle
import re
from collections.abc import Iterator

import pytest

from kuvasz import errors
from kuvasz.errors import KuvaszError, Retry, Scope


def _all(kind: type[KuvaszError] = KuvaszError) -> Iterator[type[KuvaszError]]:
    yield kind
    for one in kind.__subclasses__():
        if one.__module__ == errors.__name__:
            yield from _all(one)


TREE = re.compile(r"^ {4}([│ ]*)[├└]── (\w+) +(\d) +(\w+) +(\w+) ", re.MULTILINE)


def test_the_tree_in_the_documentation_is_the_tree() -> None:
    drawn = {name: (int(code), retry, scope) for _, name, code, retry, scope in TREE.findall(errors.__doc__ or "")}
    real = {kind.__name__: (kind.exit_code, kind.retry.value, kind.scope.value) for kind in _all()}
    del real["KuvaszError"]
    assert drawn == real


def test_the_tree_hangs_together_as_drawn() -> None:
    parents: list[str] = ["KuvaszError"]
    for indent, name, *_ in TREE.findall(errors.__doc__ or ""):
        depth = len(indent) // 4
        parents = [*parents[: depth + 1], name]
        assert getattr(errors, name).__bases__ == (getattr(errors, parents[depth]),)


@pytest.mark.parametrize("kind", list(_all()))
@pytest.mark.parametrize("hint", [None, "do this"])
def test_errors_say_what_to_do_and_survive_pickling(kind: type[KuvaszError], hint: str | None) -> None:
    error = kind("table t: no", hint=hint)
    assert str(error) == ("table t: no" if hint is None else "table t: no\nhint: do this")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.message, again.hint) == (kind, "table t: no", hint)


def test_errors_of_a_table_stop_a_table_alone() -> None:
    for kind in _all():
        is_of_table = issubclass(kind, (errors.TableError, errors.LakeError))
        assert (kind.scope is Scope.TABLE) == is_of_table
        assert (kind.retry is Retry.TIMED) <= issubclass(kind, (errors.SourceError, errors.LakeError))
