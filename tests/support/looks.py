"""What verbs that only look answer where there is no lake and no server to look at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kuvasz.verbs.served.looks import LOOKS

_WAITED: dict[str, Any] = {
    "reached": True, "stuck": False, "seconds": 0, "through": None, "lsns": {}, "silent": [], "tables": [],
}  # fmt: skip

_ANSWERS: dict[str, Any] = {
    "check": [],
    "plan": [],
    "drift": [],
    "asof": {"time": None, "lsns": {}, "tables": []},
    "init": {"text": "", "variables": {}, "tables": 0, "left_out": 0},
    "notes": [],
    "trace": {"tables": []},
    "wait": lambda _: _WAITED,
    "erase": {"would": "", "leaving": []},
}


def looks() -> Mapping[str, Any]:
    """Return all of them."""
    return {**LOOKS, **{name: lambda *_, answer=answer: answer for name, answer in _ANSWERS.items()}}


__all__ = ["looks"]
