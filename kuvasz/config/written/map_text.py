"""The text of a map with one thing in it changed, and every other character as it was: comments, order, quotes. Pure.

ruamel.yaml's own round trip would keep comments, but moves those behind an entry to whatever is put there, and
lays out anew what nobody changed. So its nodes only say where things are. What comes out is read again and has to
mean what was meant: a place that another one shares by an alias, say, is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from kuvasz.config import file
from kuvasz.config.written import map_edit, yaml_form
from kuvasz.config.written.map_edit import Append, Drop, MapEdit, Plain, Put, Rename
from kuvasz.config.written.spot import Spot, beginning_of_line, end_of_line, is_flow
from kuvasz.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kuvasz.config.problem import Path

_MARK: Final = "\ufeff"  #: of byte order

_BY_HAND: Final = "change the file by hand, and have it read again"


def edited(text: str, edits: Iterable[MapEdit]) -> str:
    """Return the text of a map after edits.

    Raises:
        ConfigError: The map has nothing at an edit's path, or its text cannot be changed there alone.
    """
    if text.startswith(_MARK):
        return _MARK + edited(text.removeprefix(_MARK), edits)
    for edit in edits:
        wanted = map_edit.edited(meaning(text), edit)
        try:
            made = _Change(text).edited(edit)
            found = meaning(made)
        except (ConfigError, YAMLError, LookupError, ValueError, StopIteration):
            raise _unwritable(edit) from None
        if found != wanted or (isinstance(edit, Rename) and list(_flat(found)) != list(_flat(wanted))):
            raise _unwritable(edit)
        text = made
    return text


def meaning(text: str) -> dict[str, Any]:
    """Return the plain value of a map's text.

    Raises:
        ConfigError: It is no map.
    """
    return file.parse(text, name="map").value


def _flat(value: object) -> Iterable[object]:
    """Yield the keys of mappings in their order."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from _flat(one)
    elif isinstance(value, list):
        for one in value:
            yield from _flat(one)


def _unwritable(edit: MapEdit) -> ConfigError:
    place = ".".join(map(str, edit.path))
    return ConfigError(f"{place} of the map's file is written in a way that a program cannot change", hint=_BY_HAND)


class _Change:
    """Changes one text.

    Args:
        text: The map.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self._is_json = text.lstrip(" \t\r\n")[:1] in {"{", "["}
        self._root: Node = YAML(typ="rt").compose(text)

    def edited(self, edit: MapEdit) -> str:
        """Return the text after an edit."""
        match edit:
            case Put():
                return self._put(edit.path, edit.value)
            case Append():
                return self._append(edit.path, edit.value)
            case Drop():
                return self._drop(edit.path)
            case Rename():
                key = self._spot(edit.path).key
                assert key is not None
                said = yaml_form.text(edit.key, is_json=self._is_json)
                return self._cut(key.start_mark.index, key.end_mark.index, said)

    def _put(self, path: Path, value: Plain) -> str:
        holder, key = self._node(path[:-1]), str(path[-1])
        spots = Spot.all_of(holder, self._text)
        spot = next((one for one in spots if one.name == key), None)
        if spot is not None:
            said = yaml_form.flow(value, is_json=self._is_json)
            is_empty = spot.value_start == spot.end
            return self._cut(spot.value_start, spot.end, f" {said}" if is_empty else said)
        if is_flow(holder):
            name = yaml_form.text(key, is_json=self._is_json)
            return self._add(path[:-1], holder, f"{name}: {yaml_form.flow(value, is_json=self._is_json)}", [])
        return self._insert_lines(spots[-1].end, [" " * spots[0].column + yaml_form.keyed(key, value)])

    def _append(self, path: Path, value: Plain) -> str:
        holder = self._node(path)
        if is_flow(holder):
            return self._add(path, holder, yaml_form.flow(value, is_json=self._is_json), self._listed(value))
        spots = Spot.all_of(holder, self._text)
        return self._insert_lines(spots[-1].end, [" " * spots[0].column + one for one in self._listed(value)])

    def _listed(self, value: Plain) -> list[str]:
        first, *others = yaml_form.block_lines(value)
        return [f"- {first}", *(f"  {one}" for one in others)]

    def _add(self, path: Path, holder: Node, said: str, lines: list[str]) -> str:
        """Add to what is between brackets."""
        spots = Spot.all_of(holder, self._text)
        if spots:
            return self._insert(spots[-1].end, f", {said}")
        inner = self._text[holder.start_mark.index : holder.end_mark.index]
        if not self._is_json and inner in {"[]", "{}"} and (key := self._block_key(path)) is not None:
            lines = [" " * key.start_mark.column + one for one in lines] or [
                " " * (key.start_mark.column + 2) + said.replace(": null", ":")
            ]
            return self._opened(holder, lines)
        return self._insert(holder.start_mark.index + 1, said)

    def _block_key(self, path: Path) -> Node | None:
        """Return the key of a value, if it is one of a block mapping and on the value's line."""
        if not path or (isinstance(self._root, SequenceNode) and len(path) == 1):
            return None
        holder = self._node(path[:-1])
        if is_flow(holder) or not isinstance(holder, MappingNode):
            return None
        spot = self._spot(path)
        assert spot.key is not None
        is_beside = "\n" not in self._text[spot.key.end_mark.index : spot.value_start]
        return spot.key if is_beside else None

    def _opened(self, holder: Node, lines: list[str]) -> str:
        """Put entries on lines of their own in the place of empty brackets."""
        start, end = holder.start_mark.index, holder.end_mark.index
        begin = len(self._text[:start].rstrip(" "))
        rest = self._text[end : end_of_line(self._text, end)]
        is_last = not rest.endswith("\n")
        rest = rest.rstrip("\r\n ") + self._newline
        said = "".join(f"{line}{self._newline}" for line in lines)
        said = said.removesuffix(self._newline) if is_last else said
        return self._text[:begin] + rest + said + self._text[end_of_line(self._text, end) :]

    def _drop(self, path: Path) -> str:
        holder, spot = self._node(path[:-1]), self._spot(path)
        spots = Spot.all_of(holder, self._text)
        place = spots.index(spot)
        if is_flow(holder):
            if place + 1 < len(spots):
                return self._cut(spot.start, spots[place + 1].start, "")
            if place:
                return self._cut(spots[place - 1].end, spot.end, "")
            return self._cut(holder.start_mark.index + 1, holder.end_mark.index - 1, "")
        begin, end = beginning_of_line(self._text, spot.start), end_of_line(self._text, spot.end)
        if self._text[begin : spot.start].strip():  # the first key behind a dash
            return self._cut(spot.start, spots[place + 1].start, "")
        if len(spots) > 1:
            return self._cut(begin, end, "")
        key = self._spot(path[:-1])
        empty = "[]" if isinstance(holder, SequenceNode) else "{}"
        rest = self._text[:begin] + self._text[end:]
        return f"{rest[: key.value_from]} {empty}{rest[key.value_from :]}"

    def _spot(self, path: Path) -> Spot:
        holder, last = self._node(path[:-1]), path[-1]
        for number, spot in enumerate(Spot.all_of(holder, self._text)):
            if (number if spot.key is None else spot.name) == last:
                return spot
        raise map_edit.gone(path)

    def _node(self, path: Path) -> Node:
        node = self._root
        # A file that is only a list is taken for `databases`.
        for part in path[1:] if isinstance(self._root, SequenceNode) else path:
            if isinstance(node, SequenceNode) and isinstance(part, int):
                node = node.value[part]
            elif isinstance(node, MappingNode):
                node = next(value for key, value in node.value if isinstance(key, ScalarNode) and key.value == part)
        return node

    def _insert_lines(self, after: int, lines: list[str]) -> str:
        """Insert lines behind the one that a place is in."""
        place = end_of_line(self._text, after)
        is_open = not self._text[:place].endswith("\n")
        said = self._newline.join(lines)
        return self._insert(place, f"{self._newline}{said}" if is_open else f"{said}{self._newline}")

    def _insert(self, place: int, said: str) -> str:
        return self._cut(place, place, said)

    def _cut(self, start: int, end: int, said: str) -> str:
        return self._text[:start] + said + self._text[end:]


__all__ = ["edited", "meaning"]
