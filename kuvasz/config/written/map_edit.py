"""Single edits of a map, by the path of what they change; here of its plain value. Pure."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from kuvasz.errors import ConfigError

if TYPE_CHECKING:
    from kuvasz.config.problem import Path

#: What an edit may put into a map.
Plain: TypeAlias = "str | Mapping[str, Plain] | Sequence[Plain] | None"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """A mapping's key gets a value; it may be a new one."""

    path: Path
    value: Plain = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """A list gets one more entry, its last."""

    path: Path  #: of the list
    value: Plain = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """A key goes, or an entry of a list."""

    path: Path


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rename:
    """A mapping's key gets another name, and stays at its place."""

    path: Path
    key: str


MapEdit: TypeAlias = Put | Append | Drop | Rename


def edited(value: object, edit: MapEdit) -> object:
    """Return what a map's plain value is after an edit.

    Raises:
        ConfigError: The map has nothing at the edit's path.
    """
    root = copy.deepcopy(value)
    last: Any = edit.path[-1]
    holder: Any = _at(root, edit.path[:-1])
    match edit, holder:
        case Put(), dict():
            holder[last] = edit.value
            return root
        case Drop(), (dict() | list()) if _has(holder, last):
            del holder[last]
            return root
        case Append(), (dict() | list()) if _has(holder, last) and isinstance(holder[last], list):
            holder[last].append(edit.value)
            return root
        case Rename(), dict() if last in holder:
            kept = {edit.key if key == last else key: one for key, one in holder.items()}
            holder.clear()
            holder.update(kept)
            return root
    raise gone(edit.path)


def gone(path: Path) -> ConfigError:
    """Return what is told of a place that a map does not have."""
    found = ".".join(map(str, path))
    return ConfigError(f"the map's file has nothing at {found} to change", hint="have it read again")


def _at(value: Any, path: Path) -> object:  # noqa: ANN401 (a map's plain value)
    for part in path:
        if not _has(value, part):
            raise gone(path)
        value = value[part]
    return value


def _has(value: object, part: str | int) -> bool:
    if isinstance(value, dict):
        return part in value
    return isinstance(value, list) and isinstance(part, int) and 0 <= part < len(value)


__all__ = ["Append", "Drop", "MapEdit", "Plain", "Put", "Rename", "edited", "gone"]
