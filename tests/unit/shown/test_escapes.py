from __future__ import annotations

import json
import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuvasz import errors
from kuvasz.shown import escapes

#: A line break, clear screen, the same in C1, a bidi override, a zero-width space, half a surrogate pair.
HOSTILE = "a\n\x1b[2J\x9b2J\u202e\u200b\udc80[/b]"
SHOWN = r"a\n\x1b[2J\u009b2J\u202e\u200b\udc80[/b]"


def test_what_steers_a_terminal_stands_there_as_its_escape() -> None:
    assert escapes.one_line(HOSTILE) == SHOWN
    assert escapes.one_line("Größe, ценa 価格") == "Größe, ценa 価格"


def test_lines_of_ones_own_stay() -> None:
    assert escapes.lines("map.yaml:1:2: no\nmap.yaml:2:1: \x1b[2J\r") == "map.yaml:1:2: no\nmap.yaml:2:1: \\x1b[2J\\r"


@given(st.text())
def test_one_line_prints_and_is_one(text: str) -> None:
    assert escapes.one_line(text).isprintable()
    assert len(escapes.lines(text).split("\n")) == text.count("\n") + 1


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_keeps_its_value_and_prints(value: object) -> None:
    shown = escapes.json(json.dumps(value, indent=2, ensure_ascii=False))
    assert json.loads(shown) == value
    assert shown.replace("\n", "").isprintable()


def test_no_error_has_more_lines_or_other_characters_than_it_was_given() -> None:
    error = errors.TableError(f"table t: no column {HOSTILE}", hint=f"drop {HOSTILE}")
    assert str(error) == f"table t: no column {SHOWN}\nhint: drop {SHOWN}"
    assert str(errors.ConfigError("map.yaml:1:1: no\nmap.yaml:2:1: \x1b")) == "map.yaml:1:1: no\nmap.yaml:2:1: \\x1b"
    assert errors.MapMismatch("no\ncolumn").message == r"no\ncolumn"


@pytest.mark.parametrize("name", ["shop.a\nb", "shop.\x1b[2J'", "shop.\u202e\\x41", "shop.\x9b\u00a0\U000e0001"])
def test_a_command_prints_and_means_the_table_all_the_same(name: str) -> None:
    command = errors.resync_of(name)
    assert command.isprintable()
    given = command.removeprefix("kuvasz resync --table ")
    told = subprocess.run(
        ["bash", "-c", f"printf %s {given}"], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert told.stdout.decode() == name


def test_a_command_for_a_plain_name_stays_plain() -> None:
    assert shlex.split(errors.retry_of("shop.items"))[-1] == "shop.items"
