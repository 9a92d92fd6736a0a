"""The text of a map that is made for someone: YAML with a comment for whatever a person will ask. Pure.

Names come from a database, where others choose them: in comments they take one line, in keys what does not print
stands as its escape.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.emitter import Emitter
from ruamel.yaml.scalarstring import DoubleQuotedScalarString
from typing_extensions import override

from kuvasz.shown import escapes

if TYPE_CHECKING:
    from ruamel.yaml.nodes import ScalarNode

#: What is the same in every map. Options that have these defaults stand there to be seen.
_SECTIONS = """\
# Where the tables go: an Iceberg catalog and a warehouse. A file and a folder beside this map will do for a trial; in
# earnest it is a catalog that is shared (jdbc:postgresql://…, or type: rest, hive, glue) and an object store (s3://…).
lake:
  type: jdbc
  uri: jdbc:sqlite:lake/catalog.db
  warehouse: lake/warehouse
  namespace: kuvasz             # of the tables below
  format_version: 3             # 2 for readers that do not know deletion vectors yet

pipeline:
  state: .kuvasz                # a folder of its own, on a local, lasting disk
  commit_interval: 1s           # fresher or fewer snapshots: the one knob worth turning

# Metrics, health and status: /metrics, /livez, /readyz, /status.
server:
  address: 127.0.0.1:8000

# What is replicated. `database` and `sid` are part of the slot's name, the sid of the rows' key, too: keep them.
databases: []
"""

#: Before tables and what is said of them.
_INDENT = 4

#: No line is folded.
_WIDTH = 100_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DraftEntry:
    """One table of a map."""

    table: str  #: as a map names it
    options: Mapping[str, str | Sequence[str]]  #: what the map says of it; nothing for a clone
    comments: tuple[str, ...]  #: a line each, above it
    left_out: str = ""  #: why it stands there as a comment only; empty if it does not


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A map of one source."""

    heading: tuple[str, ...]  #: lines of comment at the top
    namespace: str
    database: str
    url: str  #: with references in place of secrets
    sid: str | None
    entries: tuple[DraftEntry, ...]

    def text(self) -> str:
        """Return the map."""
        heading = "".join(f"# {escapes.one_line(line)}".rstrip() + "\n" for line in self.heading)
        document = _yaml().load(f"{heading}\n{_SECTIONS}")
        document["lake"]["namespace"] = self.namespace
        document["databases"] = [self._group()]
        return _printable(_dumped(document)) + self._left_out()

    def _group(self) -> CommentedMap:
        url: dict[str, str] = {"url": DoubleQuotedScalarString(self.url)}
        url |= {} if self.sid is None else {"sid": _value(self.sid)}
        tables = CommentedMap()
        for entry in self.entries:
            if not entry.left_out:
                tables[_scalar(entry.table)] = _options(entry)
                above = "\n".join(map(escapes.one_line, entry.comments))
                tables.yaml_set_comment_before_after_key(_scalar(entry.table), before=above, indent=_INDENT)
        return CommentedMap(database=_value(self.database), urls=[_flow(url)], tables=tables)

    def _left_out(self) -> str:
        """Return the tables that are left out, as comments below the others."""
        lines: list[str] = []
        for entry in self.entries:
            if entry.left_out:
                above = [escapes.one_line(f"# {comment}") for comment in entry.comments]
                written = _printable(_dumped(CommentedMap({_scalar(entry.table): _options(entry)}))).strip()
                lines += [*above, f"{written}  # left out: {escapes.one_line(entry.left_out)}"]
        return "".join(f"{' ' * _INDENT}# {line}\n" for line in lines)


def _options(entry: DraftEntry) -> CommentedMap | None:
    if not entry.options:
        return None
    return _flow({
        name: _value(value) if isinstance(value, str) else [_value(one) for one in value]
        for name, value in entry.options.items()
    })  # fmt: skip


def _flow(entries: Mapping[str, str | list[str]]) -> CommentedMap:
    mapping = CommentedMap(entries)
    mapping.fa.set_flow_style()
    return mapping


def _scalar(value: str) -> str:
    """Return a text that YAML writes so that what does not print can be escaped in it."""
    return value if value.isprintable() else DoubleQuotedScalarString(value)


def _value(value: str) -> str:
    """Return the text of a value, in which nothing is a reference; keys have none."""
    return _scalar(value.replace("${", "$${"))


def _printable(document: str) -> str:
    """Return YAML with escapes for what does not print, which is in double quotes: see `_scalar`."""
    return "".join(one if one.isprintable() or one == "\n" else _escaped(one) for one in document)


def _escaped(character: str) -> str:
    # As short as can be: a key of more than 1024 characters is none (YAML 1.2.2, section 7.4.2).
    code = ord(character)
    return f"\\x{code:02x}" if code < 1 << 8 else f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"


def _dumped(document: CommentedMap) -> str:
    stream = io.StringIO()
    _yaml().dump(document, stream)
    return stream.getvalue()


class _OneLineKeys(Emitter):
    """Writes every key before its colon; ruamel has ``? key`` and ``: value`` for some."""

    @override
    def check_simple_key(self) -> bool:
        return True


def _yaml() -> YAML:
    writer = YAML(typ="rt")
    writer.Emitter = _OneLineKeys
    writer.width = _WIDTH
    writer.representer.add_representer(type(None), _represent_nothing)
    return writer


def _represent_nothing(representer: Any, _: None) -> ScalarNode:  # noqa: ANN401 -- ruamel's own is untyped
    node: ScalarNode = representer.represent_scalar("tag:yaml.org,2002:null", "")
    return node


__all__ = ["Draft", "DraftEntry"]
