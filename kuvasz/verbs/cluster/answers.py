"""What several processes that apply answer, as one answer: each knows the groups that it has. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

#: What is of each process, and of all of them together the sum.
_SUMS: Final = frozenset({"waiting_bytes", "memory_bytes", "commit_conflicts"})

#: What each process says of its own sources and targets.
_UNITED: Final = frozenset({"lsns", "snapshots"})


def united(answers: Sequence[Mapping[str, Any]], silent: Sequence[str] = ()) -> dict[str, Any]:
    """Return one answer: what are lists are of all, and what is neither is of the first.

    Args:
        answers: At least one.
        silent: Processes that did not answer, each in words: what they have is missing.
    """
    first, *others = answers
    found: dict[str, Any] = dict(first)
    for answer in others:
        for name, value in answer.items():
            if name not in found:
                found[name] = value
            elif isinstance(value, list) and isinstance(found[name], list):
                found[name] = [*found[name], *(one for one in value if one not in found[name])]
            elif name in _SUMS:
                found[name] += value
            elif name in _UNITED:
                found[name] = {**found[name], **value}
    return found | ({"silent": list(silent)} if silent else {})


__all__ = ["united"]
