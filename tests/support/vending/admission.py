"""Whom a REST catalog lets in: bearers of tokens, and clients who get one for their secret (OAuth 2)."""

from __future__ import annotations

import base64
import itertools
import time
from typing import Any

import flask


class Admission:
    """The door of a catalog, which is open until somebody is admitted.

    Args:
        life_s: The life of the tokens that it gives.
    """

    def __init__(self, life_s: float = 300.0) -> None:
        self.life_s = life_s
        self.grace_s = 0.0  #: tokens count for so much longer than clients are told
        self.tokens: dict[str, float] = {}  #: token -> when it ends
        self.clients: dict[str, str] = {}  #: id -> secret
        self.refused = 0  #: requests
        self.given: list[str] = []  #: tokens that clients got
        self._numbers = itertools.count(1)

    def admit(self, *tokens: str, **clients: str) -> None:
        """Let these in from now on, and nobody else: no token that was given before counts."""
        self.clients = clients
        self.tokens = dict.fromkeys(tokens, time.time() + 3600.0)

    def guard(self, app: flask.Flask) -> None:
        """Stand before all of an application."""
        app.before_request(self._refused)
        app.post("/v1/oauth/tokens")(self._give)

    def _refused(self) -> Any:
        path = flask.request.path
        if not (self.tokens or self.clients) or path == "/v1/oauth/tokens" or not path.startswith("/v1/"):
            return None
        found = flask.request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.tokens.get(found, 0.0) > time.time():
            return None
        self.refused += 1
        return {"error": {"message": "who is it?", "type": "NotAuthorizedException", "code": 401}}, 401

    def _give(self) -> Any:
        form = flask.request.form
        known = form.get("client_id", ""), form.get("client_secret", "")
        kind, _, text = flask.request.headers.get("Authorization", "").partition(" ")
        if kind == "Basic":
            known = tuple(base64.b64decode(text).decode().split(":", 1))  # type: ignore[assignment]
        is_bearer = self.tokens.get(form.get("subject_token", ""), 0.0) > time.time()
        if not is_bearer and self.clients.get(known[0]) != known[1]:
            return {"error": "invalid_client", "error_description": "who is it?"}, 401
        token = f"given {next(self._numbers)}"
        self.given.append(token)
        self.tokens[token] = time.time() + self.life_s + self.grace_s
        kind = "urn:ietf:params:oauth:token-type:access_token"
        return {
            "access_token": token, "token_type": "bearer", "issued_token_type": kind,
            "expires_in": int(self.life_s),
        }  # fmt: skip


__all__ = ["Admission"]
