"""What a request was found to bring: who asks, and its body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from kuvasz.admin.api.callers import Caller

#: Characters of a name that the log shows.
_LONGEST_PERSON: Final = 100

CALLER: Final[web.RequestKey[Caller | None]] = web.RequestKey("caller", Caller)
BODY: Final[web.RequestKey[Mapping[str, Any]]] = web.RequestKey("body", Mapping)


def person(request: web.Request) -> str:
    """Return who asks: the owner of the token, or as the verbs say of themselves, else from where."""
    caller = request[CALLER]
    if caller is not None and not caller.is_local:
        return caller.name
    by = request[BODY].get("by") if BODY in request else None
    return str(by or request.remote or "?")[:_LONGEST_PERSON]


__all__ = ["BODY", "CALLER", "person"]
