from __future__ import annotations

import pickle
import re
import shlex
from collections.abc import Iterator

import pytest

from kuvasz import errors
from kuvasz.errors import KuvaszError, Retry, Scope
from kuvasz.model import TableName


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
    hint = hint or getattr(kind, "HINT", None)
    assert str(error) == ("table t: no" if hint is None else f"table t: no\nhint: {hint}")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.message, again.hint) == (kind, "table t: no", hint)


def test_errors_of_a_table_stop_a_table_alone() -> None:
    for kind in _all():
        is_of_table = issubclass(kind, (errors.TableError, errors.LakeError))
        assert (kind.scope is Scope.TABLE) == is_of_table
        assert (kind.retry is Retry.TIMED) <= issubclass(kind, (errors.SourceError, errors.LakeError))


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (errors.place_of("shop_eu"), "source shop_eu"),
        (errors.place_of(table="shop.items"), "table shop.items"),
        (errors.place_of("shop_eu", TableName(schema="public", name="items")), "source shop_eu, table public.items"),
        (errors.place_of("shop_eu", "shop.items", "price"), "source shop_eu, table shop.items, column price"),
        (errors.place_of("eu", "Größe", "a\nhint: b\x1b"), r"source eu, table Größe, column a\nhint: b\x1b"),
    ],
)  # fmt: skip
def test_a_place_is_named_in_one_way_and_on_one_line(place: str, text: str) -> None:
    assert place == text


def test_the_first_error_of_ours_is_found_in_whatever_holds_it() -> None:
    first, second = errors.TableError("a"), errors.LakeError("b")
    group = BaseExceptionGroup("", [ValueError(), BaseExceptionGroup("", [KeyError(), first]), second])
    assert errors.first_of(group) is first
    assert errors.first_of(BaseExceptionGroup("", [ValueError()])) is None


def test_errors_of_ours_that_come_together_are_told_as_the_most_telling() -> None:
    error, lost = errors.TableError("a"), errors.SlotLost("b")
    assert errors.ours_in(error) is error
    assert errors.ours_in(BaseExceptionGroup("", [BaseExceptionGroup("", [error])])) is error
    both = BaseExceptionGroup("", [error, BaseExceptionGroup("", [lost])])
    assert errors.ours_in(both) is error
    assert errors.ours_in(both, errors.ConfigError, errors.SlotLost) is lost


@pytest.mark.parametrize("other", [ValueError(), KeyboardInterrupt()])
def test_what_is_not_ours_is_not_told_as_if_it_were(other: BaseException) -> None:
    assert errors.ours_in(other) is None
    assert errors.ours_in(BaseExceptionGroup("", [errors.TableError("a"), other])) is None


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (errors.resync_of("shop.items"), "kuvasz resync --table shop.items"),
        (errors.retry_of(TableName(schema="public", name="items")), "kuvasz retry --table public.items"),
        (errors.resume_of("shop.what's left"), """kuvasz resume --table 'shop.what'"'"'s left'"""),
    ],
)
def test_a_command_in_a_hint_can_be_given_to_a_shell(command: str, text: str) -> None:
    assert command == text
    assert shlex.split(command)[:3] == ["kuvasz", text.split()[1], "--table"]
    assert len(shlex.split(command)) == 4


def test_a_message_has_an_end_whatever_a_server_says() -> None:
    """It is in the log, in the status of all, and tried again with each attempt."""
    error = errors.SourceError("x" * 1_000_000, hint="look")
    assert len(error.message) < 10_000
    assert len(str(error.args)) < 10_000
    assert error.hint == "look"
    faults = "\n".join(["a fault"] * 5000)
    assert errors.ConfigError(faults).message == faults
