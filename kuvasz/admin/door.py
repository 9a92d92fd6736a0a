"""Who is let in: how many connections, and by which names the server may be asked for.

A page that somebody's browser shows may ask this machine's ports, under a name of its own that it has resolve to
127.0.0.1 (DNS rebinding); it reads the answers then, as they are of its origin. Its name gives it away: an address
cannot be rebound, and names are asked for here.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from aiohttp import web
from aiohttp.typedefs import Middleware
from typing_extensions import override

from kuvasz.admin.tls import HANDSHAKE_S
from kuvasz.errors import ConfigError

if TYPE_CHECKING:
    from kuvasz.admin.tls import Tls
    from kuvasz.config.model import ServerConfig

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: Connections at a time: those who look at kuvasz are few, and its files and memory are for other things.
MOST_CONNECTIONS = 64

#: Bytes of a request's body.
MOST_BODY = 64 << 10

#: aiohttp's own limits: bytes of the request's line and of each header, headers, seconds without a request.
LIMITS: dict[str, Any] = {"max_line_size": 4096, "max_field_size": 4096, "max_headers": 64, "keepalive_timeout": 75.0}

#: Stands for every name in `server.hosts`.
ANY = "*"


class ConnectionLimit:
    """Makes the protocol of each new connection, and shuts those in the face that are too many.

    Args:
        server: aiohttp's.
    """

    def __init__(self, server: web.Server) -> None:
        self._server = server

    def __call__(self) -> asyncio.Protocol:
        """Return a connection's protocol."""
        return self._server() if len(self._server.connections) < MOST_CONNECTIONS else _Refused()


class _Refused(asyncio.Protocol):
    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def only_for(hosts: Iterable[str]) -> Middleware:
    """Return what refuses requests for other names than these, addresses, and those of this machine.

    Args:
        hosts: Names without a port; ``*`` for any.
    """
    known = {"localhost", socket.gethostname().lower(), *(host.lower() for host in hosts)}

    @web.middleware
    async def named(request: web.Request, handler: Handler) -> web.StreamResponse:
        # A browser always says it; whoever speaks HTTP/1.0 without is none.
        host = _host_of(request.headers.get("Host", "localhost"))
        if ANY in known or host in known or _is_address(host):
            return await handler(request)
        hint = "add it to `server.hosts` of the map, if it is a name of this server"
        said = {"code": "not_allowed", "error": f"nobody is called {host} here", "hint": hint}
        return web.json_response(said, status=421)

    return named


def _host_of(header: str) -> str:
    """Return the host of a Host header, in lower case, without port, brackets and the dot of the root."""
    host = header.strip().lower()
    bare = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return bare.removesuffix(".")


def _is_address(host: str) -> bool:
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host)
        return True
    return False


async def listen(runner: web.AppRunner, config: ServerConfig, tls: Tls | None) -> asyncio.Server:
    """Have an application answer where the configuration says.

    Raises:
        ConfigError: The address cannot be listened on.
    """
    assert runner.server is not None
    try:
        limited = ConnectionLimit(runner.server)
        options: dict[str, Any] = {} if tls is None else {"ssl": tls.context, "ssl_handshake_timeout": HANDSHAKE_S}
        return await asyncio.get_running_loop().create_server(limited, config.host, config.port or 0, **options)
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error).lower()
        raise ConfigError(
            f"server.address: cannot listen on {config.address}: {reason}",
            hint="another kuvasz may run already; choose another address, or `null` for none",
        ) from error


__all__ = ["ANY", "LIMITS", "MOST_BODY", "MOST_CONNECTIONS", "ConnectionLimit", "Handler", "listen", "only_for"]
