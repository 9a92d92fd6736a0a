"""A request that is not done, with what its sender is told."""

from __future__ import annotations

from aiohttp import web


class RequestRefused(Exception):
    """A request is not done.

    Args:
        status: The status of the answer.
        message: What is wrong.
        hint: What to do.
    """

    def __init__(self, status: int, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.hint = hint

    def answer(self) -> web.Response:
        """Return it as an answer."""
        headers = {"WWW-Authenticate": "Bearer"} if self.status == 401 else None
        return web.json_response({"error": self.message, "hint": self.hint}, status=self.status, headers=headers)


__all__ = ["RequestRefused"]
