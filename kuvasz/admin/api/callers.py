"""Who asks: the owner of a token, by its name, and what it lets him do."""

from __future__ import annotations

import asyncio
import dataclasses
import hmac
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from kuvasz.admin.api.form import FORM
from kuvasz.config import kinds
from kuvasz.config.check import LOCAL
from kuvasz.config.model import Role
from kuvasz.errors import ConfigError
from kuvasz.events import Event, EventLog

if TYPE_CHECKING:
    from aiohttp import web

    from kuvasz.config.model import TokenConfig

_log = EventLog(__name__)

#: Seconds for which a token counts that was read from a file.
FRESH_S: Final = 1.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who brings a token."""

    name: str
    role: Role

    @property
    def is_local(self) -> bool:
        """Whether it is one of kuvasz's own verbs, which says on whose behalf it asks."""
        return self.name == LOCAL


class Callers:
    """Everybody who has a token. On the loop.

    Args:
        own: The token of kuvasz's own verbs, which may do everything.
        tokens: Returns the tokens of the map that runs.
        on_secrets: Told what tokens are now, before they count.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        own: str,
        tokens: Callable[[], Sequence[TokenConfig]] = tuple,
        on_secrets: Sequence[Callable[[Iterable[str]], None]] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._own = own
        self._tokens = tokens
        self._known: Sequence[TokenConfig] = ()  #: the tokens that were read last
        self._on_secrets = on_secrets
        self._clock = clock
        self._turn = asyncio.Lock()  #: whoever comes while tokens are read waits for that
        self._values: tuple[str | None, ...] = ()
        self._stale_at = float("-inf")
        self._why_unread: dict[str, str] = {}

    async def of(self, request: web.Request) -> Caller | None:
        """Return who asks; None without a valid token."""
        # Bytes that are no UTF-8 come as surrogates, and must not be an error of ours.
        given = _authorization(request).encode(errors="surrogateescape")
        if not given:
            return None
        if _is(given, self._own):
            return Caller(name=LOCAL, role=Role.ADMIN)
        found = None
        for config, value in await self._now():
            if value is not None and _is(given, value):  # all are compared, so the time tells nothing of which
                found = Caller(name=config.name, role=config.role)
        return found

    async def _now(self) -> list[tuple[TokenConfig, str | None]]:
        """Return what each token of the map is now; None for one that is none."""
        async with self._turn:
            tokens = self._tokens()
            if tokens != self._known or (tokens and self._clock() >= self._stale_at):
                values = await asyncio.to_thread(lambda: tuple(map(self._read, tokens)))
                if values != self._values:
                    for told in self._on_secrets:
                        told([value for value in values if value is not None])
                self._known, self._values = tokens, values
                self._stale_at = self._clock() + FRESH_S
            return list(zip(self._known, self._values, strict=True))

    def _read(self, config: TokenConfig) -> str | None:
        """Return what a token is now; tell once why it is none."""
        try:
            value = kinds.token(config.token).get()
        except (ValueError, ConfigError) as error:
            if self._why_unread.get(config.name) != str(error):
                self._why_unread[config.name] = str(error)
                _log.tell(Event.TOKEN_UNREAD, by=config.name, error=str(error))
            return None
        self._why_unread.pop(config.name, None)
        return value


def _authorization(request: web.Request) -> str:
    """Return by what somebody asks: a header, which no page of another origin can send, or a token in a form."""
    if FORM in request:
        return f"Bearer {request[FORM].token}"
    return request.headers.get("Authorization", "")


def _is(given: bytes, token: str) -> bool:
    return hmac.compare_digest(given, f"Bearer {token}".encode())


__all__ = ["FRESH_S", "Caller", "Callers"]
