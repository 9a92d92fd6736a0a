"""The verbs with their options as docs/commands.md lists them, from the parser.

`python -m tests.support.command_list` writes them into the page.
"""

from __future__ import annotations

from collections.abc import Iterator

import typer.main
from typer.core import TyperCommand, TyperGroup, TyperOption

from kuvasz import cli
from tests.support import generated

PAGE = generated.DOCS / "commands.md"


def text() -> str:
    """Return a section for kuvasz itself and for each of its verbs."""
    return generated.part("commands", "tests.support.command_list", _lines())


def group() -> TyperGroup:
    """Return the parser."""
    found = typer.main.get_command(cli.app)
    assert isinstance(found, TyperGroup)
    return found


def _lines() -> Iterator[str]:
    yield from _section("kuvasz", group())
    for verb, command in verbs().items():
        yield ""
        yield from _section(f"kuvasz {verb}", command)


def verbs() -> dict[str, TyperCommand]:
    """Return each verb's parser, also of one that has two words."""
    found: dict[str, TyperCommand] = {}
    for name, command in group().commands.items():
        if isinstance(command, TyperGroup):
            found |= {
                f"{name} {second}": one for second, one in command.commands.items() if isinstance(one, TyperCommand)
            }
        else:
            assert isinstance(command, TyperCommand)
            found[name] = command
    return found


def _section(name: str, command: TyperGroup | TyperCommand) -> Iterator[str]:
    yield f"## {name}"
    yield ""
    yield " ".join((command.help or "").split())
    options = [one for one in command.params if isinstance(one, TyperOption)]
    if options:
        yield ""
        yield from generated.table(("Option", "Meaning"), map(_row, options))


def _row(option: TyperOption) -> tuple[str, str]:
    taken = "" if option.is_flag else " …"
    parts = [option.help or ""]
    if option.multiple and "repeated" not in parts[0]:
        parts.append("May be repeated.")
    if option.required:
        parts.append("Needed.")
    if option.default is not None and not option.is_flag:
        parts.append(f"By default `{option.default}`.")
    if option.envvar:
        parts.append(f"Or `{option.envvar}` in the environment.")
    return ", ".join(f"`{name}{taken}`" for name in (*option.opts, *option.secondary_opts)), " ".join(parts)


if __name__ == "__main__":
    generated.write(PAGE.name, "commands", text())
