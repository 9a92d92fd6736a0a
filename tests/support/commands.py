"""The commands that a text names in backticks, and whether kuvasz has them."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterable
from typing import Any

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
    verbs, commands = list[str](), list[Any]([group])
    for word in arguments:  # a verb of a group stands behind that
        holder = next((one for one in reversed(commands) if word in getattr(one, "commands", ())), None)
        if holder is not None:
            verbs.append(word)
            commands.append(holder.commands[word])
    parameters = [parameter for command in commands for parameter in command.params]
    known = {name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts)}
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
