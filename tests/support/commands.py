"""The commands that a text names in backticks, and whether kuvasz has them."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterable

import typer.main
from typer.core import TyperGroup

from kuvasz import cli


def inline(text: str) -> list[list[str]]:
    """Return the arguments of every kuvasz command that stands in backticks."""
    return arguments(re.findall(r"(?<!`)`(kuvasz(?: [^`]+)?)`(?!`)", text))


def arguments(lines: Iterable[str]) -> list[list[str]]:
    """Return the arguments of each command on the lines; of pipes nothing."""
    parts = [part.strip() for line in lines for part in line.split("&&")]
    return [shlex.split(part)[1:] for part in parts if "|" not in part]


def is_taken(arguments: list[str]) -> bool:
    """Whether each verb and option of a command line is one of kuvasz's."""
    group = _group()
    verbs = [word for word in arguments if word in group.commands]
    commands = [group, *(group.commands[verb] for verb in verbs)]
    known = {name for command in commands for parameter in command.params for name in parameter.opts}
    if "demo" in verbs:
        known |= {"--seconds", "--rate", "--seed"}
    known |= {"-h", "--help"}
    names = {word.partition("=")[0] for word in arguments if word.startswith("-") and word != "-"}
    return names <= known and (not arguments or bool(verbs) or arguments[0].startswith("-"))


@functools.cache
def _group() -> TyperGroup:
    group = typer.main.get_command(cli.app)
    assert isinstance(group, TyperGroup)
    return group


__all__ = ["arguments", "inline", "is_taken"]
