"""What is wrong with a configuration: a path, a place, a sentence and a guess at what was meant."""

from __future__ import annotations

import dataclasses
import difflib
import re
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: The way from the root to an option: keys of mappings and indexes of lists.
Path: TypeAlias = tuple[str | int, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OptionOrigin:
    """Where a value was written.

    Attributes:
        value: The place of the value, ``map.yaml:12:3``, ``environment KUVASZ_…`` or ``flag``.
        key: The place of its key; a wrong key is reported there.
        order: Sorts problems as a reader meets them: files by line and column, then environment, then flags.
    """

    value: str
    key: str
    order: tuple[int, int, int] = (1, 0, 0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        path: The option.
        message: Completes a sentence that begins with the option's name.
        is_key: The key is at fault, not its value.
        origin: Its place, if the path does not say it.
    """

    path: Path
    message: str
    is_key: bool = False
    origin: OptionOrigin | None = None


def render(problems: Iterable[Problem], origins: Mapping[Path, OptionOrigin]) -> str:
    """Return one line for each problem, in the order of their places: ``file:line:column: option: message``."""
    lines = []
    for problem in problems:
        origin = problem.origin or nearest(problem.path, origins)
        place = f"{origin.key if problem.is_key else origin.value}: " if origin else ""
        path = f"{render_path(problem.path)}: " if problem.path else ""
        lines.append((origin.order if origin else (-1, 0, 0), f"{place}{path}{problem.message}"))
    return "\n".join(line for _, line in sorted(dict.fromkeys(lines)))


def nearest(path: Path, origins: Mapping[Path, OptionOrigin]) -> OptionOrigin | None:
    """Return the origin of an option, else that of the mapping or list it would stand in."""
    for end in range(len(path), -1, -1):
        if (origin := origins.get(path[:end])) is not None:
            return origin
    return None


def render_path(path: Path) -> str:
    """Return ``databases[0].tables."a.b".type``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            # A dotted table name is quoted as a whole here, so that the path's own dots stay clear.
            name = f'"{part}"' if "." in part and not part.startswith('"') else part
            text += f".{name}" if text else name
    return text


def suggestion(word: str, allowed: Iterable[str]) -> str:
    """Return ``: did you mean 'x'?`` for the nearest allowed word, or nothing."""
    folded = {name.lower().replace("-", "_"): name for name in allowed}
    near = difflib.get_close_matches(word.lower().replace("-", "_"), folded, n=1, cutoff=0.6)
    return f": did you mean {folded[near[0]]!r}?" if near else ""


def listed(words: Iterable[str]) -> str:
    """Return ``a, b or c``."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def quoted_words(text: str) -> list[str]:
    """Return the words in single quotes in one of pydantic's messages."""
    return re.findall(r"'([^']*)'", text)
