"""The map file: YAML in, plain values out, with the place of every key and value.

Values are made from ruamel.yaml's nodes rather than by its constructor: only nodes know where a scalar inside a
list stands, a duplicate key is ours to report beside all else, and a number keeps the text it was written in
(``spark.conf`` holds texts: 1.10 there is not 1.1).
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from kuvasz.config.problem import OptionOrigin, Path, Problem
from kuvasz.errors import ConfigError

if TYPE_CHECKING:
    from kuvasz.config.written.map_store import MapStore

_TAG = "tag:yaml.org,2002:"


class WrittenInt(int):
    """An integer that remembers its text."""

    text: str


class WrittenFloat(float):
    """A float that remembers its text."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A parsed map.

    Attributes:
        value: The root mapping.
        origins: Path -> place, for every key and list entry.
        problems: Duplicate keys and other faults that did not stop the reading.
        digest: SHA-256 of the file; empty of a text that is none.
    """

    value: dict[str, object]
    origins: dict[Path, OptionOrigin]
    problems: tuple[Problem, ...] = ()
    digest: str = ""


def read(store: MapStore) -> Document:
    """Read a map. One that is only a list is taken for ``databases``.

    Raises:
        ConfigError: It cannot be read or is no YAML.
    """
    found = store.raw()
    try:
        text = found.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        msg = f"cannot read the map {store.place!r}: byte {error.start} is not UTF-8"
        raise ConfigError(msg, hint="save the file as UTF-8") from None
    return dataclasses.replace(parse(text, name=store.place), digest=hashlib.sha256(found).hexdigest())


def parse(text: str, *, name: str) -> Document:
    """Parse the text of a map.

    Args:
        text: YAML 1.2.
        name: The file's name, for places.

    Raises:
        ConfigError: The text is no YAML, or its root is neither a mapping nor a list.
    """
    reader = _NodeReader(name)
    hint = "check quotes, colons and the indentation up to this place"
    try:
        return reader.document(YAML(typ="rt").compose(text))
    except MarkedYAMLError as error:
        # Only the problem's own words: YAML's snippets quote the line, and lines hold passwords.
        mark = error.problem_mark or error.context_mark
        place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        msg = f"{place}: not valid YAML: {error.problem or error.context}"
        if "'{'" in (error.problem or ""):
            hint = 'between { and }, a value with ${…} needs quotes: {key: "${VAR}"}'
    except YAMLError as error:
        msg = f"{name}: not valid YAML: {getattr(error, 'reason', 'unreadable')}"
    except RecursionError:
        msg = f"{name}: not a usable map: nested too deeply"
    raise ConfigError(msg, hint=hint) from None


class _NodeReader:
    """Walks the nodes of one file."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._origins: dict[Path, OptionOrigin] = {}
        self._problems: list[Problem] = []

    def document(self, root: Node | None) -> Document:
        start = OptionOrigin(value=f"{self._name}:1:1", key=f"{self._name}:1:1", order=(0, 0, 0))
        self._origins[()] = start
        value: object = {}
        if isinstance(root, SequenceNode):
            self._origins["databases",] = self._origin(root, root)
            value = {"databases": self._value(root, ("databases",), ())}
        elif root is not None:
            value = self._value(root, (), ())
            value = {} if value is None else value
        if not isinstance(value, dict):
            msg = f"{start.value}: the map must be a mapping of sections, or a list of databases"
            raise ConfigError(msg, hint="begin with 'databases:', as config/map.yaml does")
        return Document(value=value, origins=self._origins, problems=tuple(self._problems))

    def _value(self, node: Node, path: Path, active: tuple[int, ...]) -> object:
        if id(node) in active:
            self._report(path, "contains itself through an alias", node)
            return None
        active = (*active, id(node))
        if isinstance(node, MappingNode):
            return self._mapping(node, path, active)
        if isinstance(node, SequenceNode):
            entries = []
            for number, entry in enumerate(node.value):
                self._origins[*path, number] = self._origin(entry, entry)
                entries.append(self._value(entry, (*path, number), active))
            return entries
        assert isinstance(node, ScalarNode)
        self._join_surrogates(node, path)
        return self._scalar(node, path)

    def _join_surrogates(self, node: Node, path: Path) -> None:
        """Make one character of two halves: JSON writes what is beyond U+FFFF as two escapes (RFC 8259, 7)."""
        if not isinstance(node, ScalarNode) or not any("\ud800" <= one <= "\udfff" for one in node.value):
            return
        units = node.value.encode("utf-16-le", "surrogatepass")
        try:
            node.value = units.decode("utf-16-le")
        except UnicodeDecodeError:
            self._report(path, "has one half of a surrogate pair, which is no character", node)
            node.value = units.decode("utf-16-le", "replace")

    def _mapping(self, node: MappingNode, path: Path, active: tuple[int, ...]) -> dict[str, object]:
        written: dict[str, tuple[Node, Node]] = {}
        merged: dict[str, tuple[Node, Node]] = {}
        for key, value in node.value:
            self._join_surrogates(key, path)
            if key.tag == f"{_TAG}merge":
                self._merge(value, path, merged, active)
            elif not isinstance(key, ScalarNode) or not key.value:
                self._report(path, "has a key that is not a name", key)
            elif key.value in written:
                line = written[key.value][0].start_mark.line + 1
                self._report((*path, key.value), f"duplicate key {key.value!r}, first given in line {line}", key)
            else:
                written[key.value] = key, value
        result = {}
        for name, (key, value) in (merged | written).items():
            self._origins[*path, name] = self._origin(key, value)
            result[name] = self._value(value, (*path, name), active)
        return result

    def _merge(self, node: Node, path: Path, merged: dict[str, tuple[Node, Node]], active: tuple[int, ...]) -> None:
        """Collect what ``<<`` brings in; of several mappings the first counts (YAML 1.1, "Merge Key")."""
        if id(node) in active:
            self._report(path, "contains itself through an alias", node)
        elif isinstance(node, SequenceNode):
            for entry in node.value:
                self._merge(entry, path, merged, (*active, id(node)))
        elif isinstance(node, MappingNode):
            for key, value in node.value:
                if key.tag == f"{_TAG}merge":
                    self._merge(value, path, merged, (*active, id(node)))
                elif isinstance(key, ScalarNode):
                    merged.setdefault(key.value, (key, value))
        else:
            self._report(path, "'<<' must name a mapping", node)

    def _scalar(self, node: ScalarNode, path: Path) -> object:
        tag, text = str(node.tag).removeprefix(_TAG), str(node.value)
        match tag:
            case "str" | "timestamp":
                return text
            case "null":
                # The word is a value of this one option; nothing at all is not.
                return text if text and path[-1:] == ("out_of_range",) else None
            case "bool":
                return text.lower() in {"true", "yes", "on"}
            case "int":
                return _written_int(text)
            case "float":
                return _written_float(text)
            case _:
                self._report(path, f"has the unknown tag {tag!r}", node)
                return None

    def _origin(self, key: Node, value: Node) -> OptionOrigin:
        # An empty value has the place of whatever comes next: its key's place says more.
        is_empty = isinstance(value, ScalarNode) and value.tag == f"{_TAG}null" and not value.value
        mark, key_mark = (key if is_empty else value).start_mark, key.start_mark
        return OptionOrigin(
            value=f"{self._name}:{mark.line + 1}:{mark.column + 1}",
            key=f"{self._name}:{key_mark.line + 1}:{key_mark.column + 1}",
            order=(0, mark.line, mark.column),
        )

    def _report(self, path: Path, message: str, node: Node) -> None:
        self._problems.append(Problem(path=path, message=message, origin=self._origin(node, node)))


def _written_int(text: str) -> int:
    digits = text.replace("_", "")
    try:
        number = WrittenInt(digits)
    except ValueError:
        number = WrittenInt(digits, 0)  # 0x, 0o and 0b
    number.text = text
    return number


def _written_float(text: str) -> float:
    digits = text.replace("_", "").lower()
    number = WrittenFloat(digits.replace(".inf", "inf").replace(".nan", "nan"))
    number.text = text
    return number
