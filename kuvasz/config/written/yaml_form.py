"""Values as an edit writes them into a map: plain where that is safe, else as JSON, which YAML reads. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kuvasz.config.written.map_edit import Plain

#: Texts that mean themselves in any place of a map; whoever reads YAML 1.1 takes some words for something else.
_BARE: Final = re.compile(r"(?i)(?!(?:y|n|yes|no|on|off|true|false|null)\Z)[a-z_][a-z0-9_]*(?:[./-][a-z0-9_]+)*")


def flow(value: Plain, *, is_json: bool) -> str:
    """Return a value on one line.

    Args:
        value: The value.
        is_json: Whether the map is JSON, and stays it.
    """
    if isinstance(value, str):
        return text(value, is_json=is_json)
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        inner = (f"{text(key, is_json=is_json)}: {flow(one, is_json=is_json)}" for key, one in value.items())
        return f"{{{', '.join(inner)}}}"
    return f"[{', '.join(flow(one, is_json=is_json) for one in value)}]"


def text(value: str, *, is_json: bool) -> str:
    """Return a text as a key or a value."""
    if not is_json and _BARE.fullmatch(value):
        return value
    said = json.dumps(value, ensure_ascii=False)
    return "".join(one if one.isprintable() else _escaped(one, is_json=is_json) for one in said)


def _escaped(one: str, *, is_json: bool) -> str:
    """Return a character that a stream of YAML or an editor may not keep.

    YAML writes what is beyond U+FFFF as one escape of eight digits (YAML 1.2, 5.7), JSON as two surrogates (RFC 8259,
    7): a reader of YAML refuses half of a pair.
    """
    if is_json or ord(one) <= 0xFFFF:
        return json.dumps(one)[1:-1] if ord(one) > 0x7F else f"\\u{ord(one):04x}"
    return f"\\U{ord(one):08x}"


def block_lines(value: Plain) -> list[str]:
    """Return an entry of a block list, without its dash: the keys of a group on lines of their own."""
    if isinstance(value, Mapping) and any(not isinstance(one, str) for one in value.values()):
        return [f"{text(key, is_json=False)}: {flow(one, is_json=False)}" for key, one in value.items()]
    return [flow(value, is_json=False)]


def keyed(key: str, value: Plain) -> str:
    """Return a key with its value as a line of a block mapping; a table of which nothing is said has none."""
    said = "" if value is None else f" {flow(value, is_json=False)}"
    return f"{text(key, is_json=False)}:{said}"


__all__ = ["block_lines", "flow", "keyed", "text"]
