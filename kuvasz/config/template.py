"""``${VAR}``, ``${VAR:-default}``, ``${file:/run/secrets/x}`` and ``${exec:command}`` in values of the map.

Only values that are used are filled: one that the environment or a flag overrides may name a variable that is not
set. ``$${`` stands for ``${``; a ``$`` without a brace means itself.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from kuvasz.config import secrets
from kuvasz.config.secrets import SecretCommand, SecretFile, SecretPart, SecretText, SecretUrl

if TYPE_CHECKING:
    from collections.abc import Mapping

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Where relative paths begin, if nobody says otherwise.
_HERE = Path()

_MARK = re.compile(r"\$\$\{|\$\{|\}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A reference to an environment variable; the default counts when it is unset or empty, as in a shell."""

    name: str
    default: Template | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A reference to a file's content."""

    path: Template


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A reference to what a command prints; it is run without a shell."""

    line: Template


#: Text and references in their order.
Template: TypeAlias = tuple["str | Variable | File | Command", ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A value with its references filled in, and what of it must never be shown."""

    value: str | SecretText = dataclasses.field(repr=False)
    secrets: frozenset[str] = dataclasses.field(repr=False)


def parse(text: str) -> Template:
    """Return the text's parts.

    Raises:
        ValueError: A brace is not closed or the name is none; the message completes a sentence that begins with
            the option's name.
    """
    parts, end = _parse(text, 0, is_nested=False)
    assert end == len(text)
    return parts


def variables(text: str) -> frozenset[str]:
    """Return the names of the variables that a text refers to, also in defaults; none for a malformed text."""
    try:
        return _names(parse(text))
    except ValueError:
        return frozenset()


def refers(text: str) -> bool:
    """Say whether a text refers to a variable or a file."""
    return any(not isinstance(part, str) for part in parse(text))


def fill(text: str, environ: Mapping[str, str], *, place: str, folder: Path = _HERE) -> Filled:
    """Return a plain value, filled in.

    Raises:
        ValueError: A variable is unset, a file cannot be read, or the text is malformed.
        ConfigError: A file cannot be read.
    """
    pieces, known = _resolve(parse(text), environ, place, folder)
    contents = [piece.read() if isinstance(piece, SecretPart) else piece for piece in pieces]
    known |= {content for piece, content in zip(pieces, contents, strict=True) if isinstance(piece, SecretPart)}
    return Filled(value="".join(contents), secrets=frozenset(known - {""}))


def fill_url(text: str, environ: Mapping[str, str], *, place: str, folder: Path = _HERE) -> Filled:
    """Return a url, filled in; its files stay references that are read at each use.

    What fills the user, the password or a parameter's value is taken literally and percent-encoded, so that a
    password may hold any character. What fills any other part, or the whole, is taken as it is.

    Raises:
        ValueError: A variable is unset or the text is malformed.
        ConfigError: A file cannot be read.
    """
    template = parse(text)
    parts: list[str | SecretPart] = []
    known: set[str] = set()
    for number, part in enumerate(template):
        if isinstance(part, str):
            parts.append(part)
            continue
        before = "".join(piece if isinstance(piece, str) else "x" for piece in parts)
        after = "".join(piece if isinstance(piece, str) else "x" for piece in template[number + 1 :])
        safe = _safe_characters(before, after)
        pieces, found = _resolve((part,), environ, place, folder)
        known |= found
        parts += [_quoted(piece, safe) for piece in pieces]
    known |= {part.read() for part in parts if isinstance(part, SecretPart)}
    url = SecretUrl(*_joined(parts))
    return Filled(value=url, secrets=frozenset((known | secrets.url_secrets(url.get())) - {""}))


def fill_later(text: str, environ: Mapping[str, str], *, place: str, folder: Path = _HERE) -> Filled:
    """Return a text that is secret, filled in; its files and commands stay references that are asked at each use.

    Raises:
        ValueError: A variable is unset or the text is malformed.
        ConfigError: A file cannot be read.
    """
    pieces, known = _resolve(parse(text), environ, place, folder)
    secret = SecretText(*_joined(pieces))
    return Filled(value=secret, secrets=frozenset((known | {secret.get()}) - {""}))


def _parse(text: str, start: int, *, is_nested: bool) -> tuple[Template, int]:
    """Return the parts from `start` to the end, or to the brace that closes a default, and where that is."""
    parts: list[str | Variable | File | Command] = []
    position = start
    while (mark := _MARK.search(text, position)) is not None:
        if mark[0] == "}":
            if is_nested:
                return (*parts, text[position : mark.start()]), mark.start()
            parts.append(text[position : mark.end()])
            position = mark.end()
        elif mark[0] == "$${":
            parts.append(text[position : mark.start()] + "${")
            position = mark.end()
        else:
            parts.append(text[position : mark.start()])
            reference, position = _parse_reference(text, mark.end())
            parts.append(reference)
    if is_nested:
        msg = "has a '${' without its '}' (write '$${' for a literal '${')"
        raise ValueError(msg)
    return tuple(part for part in (*parts, text[position:]) if part != ""), len(text)


def _parse_reference(text: str, start: int) -> tuple[Variable | File | Command, int]:
    if text.startswith("file:", start):
        path, end = _parse(text, start + len("file:"), is_nested=True)
        return File(path=path), end + 1
    if text.startswith("exec:", start):
        line, end = _parse(text, start + len("exec:"), is_nested=True)
        return Command(line=line), end + 1
    start += len("env:") if text.startswith("env:", start) else 0
    name = _VARIABLE.match(text, start)
    end = name.end() if name else start
    if name and text.startswith("}", end):
        return Variable(name=name[0]), end + 1
    if name and text.startswith(":-", end):
        default, end = _parse(text, end + 2, is_nested=True)
        return Variable(name=name[0], default=default), end + 1
    if "}" not in text[start:]:
        msg = "has a '${' without its '}' (write '$${' for a literal '${')"
        raise ValueError(msg)
    known = "neither ${VAR}, ${VAR:-default}, ${file:/path} nor ${exec:command}"
    msg = f"has a '${{' that is {known} (write '$${{' for a literal '${{')"
    raise ValueError(msg)


def _names(template: Template) -> frozenset[str]:
    found: frozenset[str] = frozenset()
    for part in template:
        if isinstance(part, Variable):
            found |= {part.name} | _names(part.default or ())
        elif isinstance(part, File):
            found |= _names(part.path)
        elif isinstance(part, Command):
            found |= _names(part.line)
    return found


def _resolve(
    template: Template, environ: Mapping[str, str], place: str, folder: Path
) -> tuple[list[str | SecretPart], set[str]]:
    """Return text and files in their order, and the values of variables whose name calls them secret."""
    pieces: list[str | SecretPart] = []
    known: set[str] = set()
    for part in template:
        if isinstance(part, str):
            pieces.append(part)
            continue
        found: set[str] = set()
        if isinstance(part, File):
            name, found = _filled(part.path, environ, place, folder)
            pieces.append(SecretFile(str(folder / name), place))
        elif isinstance(part, Command):
            name, found = _filled(part.line, environ, place, folder)
            pieces.append(SecretCommand(name, place))
        elif environ.get(part.name) or (part.name in environ and part.default is None):
            pieces.append(environ[part.name])
            found = {environ[part.name]} if secrets.is_secret_name(part.name) else set()
        elif part.default is not None:
            inner, found = _resolve(part.default, environ, place, folder)
            pieces += inner
        else:
            raise ValueError(_unset(part.name, environ))
        known |= found
    return pieces, known


def _filled(template: Template, environ: Mapping[str, str], place: str, folder: Path) -> tuple[str, set[str]]:
    """Return a text that is filled now, and the values of variables whose name calls them secret."""
    pieces, known = _resolve(template, environ, place, folder)
    return "".join(piece.read() if isinstance(piece, SecretPart) else piece for piece in pieces), known


def _unset(name: str, environ: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(name, environ, n=1, cutoff=0.8)
    guess = f": did you mean ${{{near[0]}}}?" if near else f" (a default is written ${{{name}:-…}})"
    return f"the environment variable {name} is not set{guess}"


def _safe_characters(before: str, after: str) -> str | None:
    """Return the characters that need no encoding at this place of a url; None where nothing is encoded."""
    _, scheme, rest = before.partition("://")
    if not scheme:
        return None
    if "?" in rest:
        return "" if "=" in re.split("[?&]", rest)[-1] else None
    if "@" in rest or "/" in rest or "@" not in re.split("[/?]", after)[0]:
        return None
    # One variable may hold user:password, but only where the user begins.
    return "" if rest else ":"


def _quoted(piece: str | SecretPart, safe: str | None) -> str | SecretPart:
    if safe is None:
        return piece
    if isinstance(piece, SecretPart):
        return dataclasses.replace(piece, is_quoted=True, safe=safe)
    return urllib.parse.quote(piece, safe=safe)


def _joined(parts: list[str | SecretPart]) -> list[str | SecretPart]:
    """Join neighbouring texts, so that equal urls are equal however they were written."""
    joined: list[str | SecretPart] = []
    for part in parts:
        if joined and isinstance(part, str) and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return joined
