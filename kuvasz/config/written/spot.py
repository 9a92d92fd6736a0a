"""Where an entry of a mapping or list is in the text of a map. Pure."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What may be between a line's beginning and an entry of a block list.
_DASHES = re.compile(r"[ \t]*(?:-[ \t]+)*")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """The place of an entry; indexes into the text."""

    key: ScalarNode | None  #: None: of a list
    start: int  #: of its key, or of its dash in a block list
    value_from: int  #: behind the colon
    value_start: int  #: of the value; where one could be, if there is none
    end: int  #: behind its last character
    column: int  #: of its start

    @property
    def name(self) -> str | None:
        """The key, which JSON may have written as halves of characters."""
        if self.key is None:
            return None
        return str(self.key.value).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    @classmethod
    def all_of(cls, holder: Node, text: str) -> list[Spot]:
        """Return the places of all entries of a mapping or a list, in their order."""
        return list(cls._all_of(holder, text))

    @classmethod
    def _all_of(cls, holder: Node, text: str) -> Iterator[Spot]:
        if isinstance(holder, SequenceNode):
            for value in holder.value:
                start = value.start_mark.index if holder.flow_style else _dash(value, text)
                column = start - beginning_of_line(text, start)
                begin = value.start_mark.index
                yield cls(
                    key=None, start=start, value_from=begin, value_start=begin, end=end_of(value, text), column=column
                )  # fmt: skip
        elif isinstance(holder, MappingNode):
            for key, value in holder.value:
                behind = _behind_colon(key.end_mark.index, text)
                is_empty = _is_empty(value)
                yield cls(
                    key=key,
                    start=key.start_mark.index,
                    value_from=behind,
                    value_start=behind if is_empty else value.start_mark.index,
                    end=behind if is_empty else end_of(value, text),
                    column=key.start_mark.column,
                )


def end_of(node: Node, text: str) -> int:
    """Return where a node ends: a block ends with its last entry, not with the comments behind that."""
    start, end = int(node.start_mark.index), int(node.end_mark.index)
    if isinstance(node, ScalarNode):
        return _end_of_lines(start, end, text) if node.style in {"|", ">"} else end
    if is_flow(node) or not node.value:
        return end
    return Spot.all_of(node, text)[-1].end


def is_flow(node: Node) -> bool:
    """Say whether a mapping or list is between brackets."""
    return isinstance(node, MappingNode | SequenceNode) and bool(node.flow_style)


def beginning_of_line(text: str, place: int) -> int:
    """Return where the line of a place begins."""
    return text.rfind("\n", 0, place) + 1


def end_of_line(text: str, place: int) -> int:
    """Return where the line after that of a place begins."""
    found = text.find("\n", place)
    return len(text) if found < 0 else found + 1


def _is_empty(value: Node) -> bool:
    return isinstance(value, ScalarNode) and not value.style and not value.value


def _behind_colon(place: int, text: str) -> int:
    """Return the place behind the colon of a key that ends at a place; a key between braces may have none."""
    found = re.compile(r"\s*:").match(text, place)
    return place if found is None else found.end()


def _dash(value: Node, text: str) -> int:
    begin = beginning_of_line(text, value.start_mark.index)
    prefix = text[begin : value.start_mark.index]
    if "-" not in prefix or _DASHES.fullmatch(prefix) is None:
        raise ValueError(prefix)
    return begin + prefix.rindex("-")


def _end_of_lines(start: int, end: int, text: str) -> int:
    """Return where the text of a ``|`` or ``>`` ends: with its last line that is indented as its first one."""
    head, *lines = text[start:end].split("\n")
    indents = [len(line) - len(line.lstrip(" ")) for line in lines if line.strip()]
    found, at = start + len(head), start + len(head) + 1
    for line in lines:
        if line.strip() and len(line) - len(line.lstrip(" ")) >= indents[0]:
            found = at + len(line.rstrip("\r"))
        at += len(line) + 1
    return found


__all__ = ["Spot", "beginning_of_line", "end_of", "end_of_line", "is_flow"]
