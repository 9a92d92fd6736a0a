"""A request that is not done, with what its sender is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kuvasz.errors import MapBusy

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from kuvasz.errors import ConfigError

#: What clients tell errors by, where nothing more is known than the status.
CODES: Final = {
    400: "invalid_request", 401: "not_allowed", 403: "not_allowed", 404: "not_found", 405: "not_allowed",
    409: "conflict", 421: "not_allowed",
}  # fmt: skip

_OTHER: Final = "error"

#: The code of what has to wait until the change of the map before it is put into use.
MAP_BUSY: Final = "map_busy"


class RequestRefused(Exception):
    """A request is not done.

    Args:
        status: The status of the answer.
        message: What is wrong.
        hint: What to do.
        code: What clients tell it by; by the status, if None.
    """

    def __init__(self, status: int, message: str, hint: str | None = None, *, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.hint = hint
        self.code = code or CODES.get(status, _OTHER)

    def answer(self) -> web.Response:
        """Return it as an answer."""
        from aiohttp import web  # not for who asks, and needs the codes alone

        headers = {"WWW-Authenticate": "Bearer"} if self.status == 401 else None
        said = {"code": self.code, "error": self.message, "hint": self.hint}
        return web.json_response(said, status=self.status, headers=headers)


def refused_map(error: ConfigError, redact: Callable[[str], str], status: int = 409) -> RequestRefused:
    """Return what is told of a map that is not taken, or not changed, or may be if it is asked for again.

    Args:
        error: Why.
        redact: Takes secrets out.
        status: Tells what kind of refusal it is.
    """
    code = MAP_BUSY if isinstance(error, MapBusy) else None
    return RequestRefused(status, redact(error.message), error.hint and redact(error.hint), code=code)


__all__ = ["CODES", "MAP_BUSY", "RequestRefused", "refused_map"]
